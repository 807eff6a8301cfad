"""Where the processor time of the tests goes: `pytest --cpu-seconds FILE` writes the seconds of each test, with its processes.

Wall time changes with what else a machine does; processor time hardly does. A fixture that several tests share is counted with the first.
"""

import json
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds_of(process: int) -> float:
    """Processor seconds of a process and of all below it, ended ones that were waited for among them."""
    folder, below = Path(f"/proc/{process}"), 0.0
    with suppress(OSError):  # it ended meanwhile
        for thread in list((folder / "task").iterdir()):
            with suppress(OSError):  # this thread ended
                below += sum(cpu_seconds_of(int(child)) for child in (thread / "children").read_text().split())
        return sum(map(int, (folder / "stat").read_text().rsplit(")", 1)[1].split()[11:15])) / _TICKS + below
    return below


class CpuSeconds:
    """The plugin: every worker measures its tests, and the one that reports adds them up.

    Args:
        out: the file that gets the seconds of each test, the costliest first; none in a worker.
    """

    def __init__(self, out: Path | None) -> None:
        self._out = out
        self._before = 0.0
        self._spent: Counter[str] = Counter()

    def pytest_collection_finish(self) -> None:
        """Begin to count; imports of the test files are not a test's."""
        self._before = cpu_seconds_of(os.getpid())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> object:
        """Add to the report of a test's last phase what its three phases took."""
        report = yield
        if call.when == "teardown":
            now = cpu_seconds_of(os.getpid())
            report.cpu_seconds = round(now - self._before, 2)
            self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a report says; a worker's come here too."""
        self._spent[report.nodeid] += getattr(report, "cpu_seconds", 0.0)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        if self._out:
            rows = {name: round(seconds, 2) for name, seconds in self._spent.most_common()}
            self._out.write_text(json.dumps(rows, indent=1) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the costliest files."""
        files: Counter[str] = Counter()
        for name, seconds in self._spent.items():
            files[name.split("::")[0]] += seconds
        terminalreporter.section(f"processor seconds: {sum(files.values()):.0f} in {len(self._spent)} tests")
        for name, seconds in files.most_common(40):
            terminalreporter.write_line(f"{seconds:8.1f} {name}")
