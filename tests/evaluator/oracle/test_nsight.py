"""Nsight Compute through a stand-in for `ncu` on PATH that prints what the real one prints, permission error and all."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.cards.floors import add_counters, add_floor
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.nsight import is_final, run_nsight
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.sandbox.policy import use_policy
from tritonsmith.evaluator.sandbox.self_test import establish
from tritonsmith.evaluator.schema import Comparison, PrecisionClass, TaskFacts, Verdict
from tritonsmith.evaluator.texts.detect.detection import detect
from tritonsmith.nodes.evaluators.scripted import scripted_verdict
from tritonsmith.prompts.analysis import Promise

HEAD = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC"'
COLUMNS = (
    "dram__throughput.avg.pct_of_peak_sustained_elapsed", "gpu__time_duration.sum", "launch__grid_size", "lts__t_sector_hit_rate.pct",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed", "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
)  # fmt: skip
UNITS = ("%", "ns", "", "%", "%", "%", "inst", "inst", "inst", "inst")


def launch(number: int, name: str, *values: str) -> str:
    about = (number, 4021, "python3.11", "127.0.0.1", name, 1, 7, "(128, 1, 1)", "(132, 1, 1)", 0, "9.0")
    return ",".join(f'"{value}"' for value in (*about, *values))


LAUNCHES = (
    ("add_kernel", "84.50", "30,000", "2,112", "41.20", "21.00", "66.00", "1.00", "n/a", "6.00", "1.00"),
    ("add_kernel", "54.50", "10,000", "528", "61.20", "31.00", "46.00", "1.00", "n/a", "6.00", "1.00"),
    ("sum_kernel(float*, int)", "10.00", "10,000", "1", "90.00", "2.00", "3.00", "0.00", "n/a", "2.00", "2.00"),
)
PROF = "==PROF== Connected to process 4021 (/usr/bin/python3.11)\n==PROF== Profiling \"add_kernel\" - 0: 0%....50%....100% - 8 passes\n"
RAW = "\n".join([
    HEAD + "," + ",".join(f'"{column}"' for column in COLUMNS), ",".join(['""'] * 11 + [f'"{unit}"' for unit in UNITS]),
    *(launch(number, *row) for number, row in enumerate(LAUNCHES)),
])  # fmt: skip
LONG = "\n".join([
    HEAD + ',"Section Name","Metric Name","Metric Unit","Metric Value"',
    *(
        launch(number, name, "Command line profiler metrics", column, unit, value)
        for number, (name, *values) in enumerate(LAUNCHES) for column, unit, value in zip(COLUMNS, UNITS, values, strict=True)
    ),
])  # fmt: skip
FORBIDDEN = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0. "
    "For instructions on enabling permissions and to get more information see https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"
    "==WARNING== No kernels were profiled.\n"
)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Counters]]:
    """Counts a kernel with an `ncu` that prints this, where it is asked as it should be."""
    establish("auto" if os.geteuid() == 0 else "off", cuda=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        request = folder / "request.pkl"
        request.write_bytes(b"")

        def run(printed: str) -> Counters:
            (folder / "printed").write_text(printed)
            program = folder / "ncu"
            asked = "*--page\\ raw*--profile-from-start\\ off*--clock-control\\ none*dram__throughput*confined.compiler.count\\ --target*"
            program.write_text(f'#!/bin/sh\ncase "$*" in {asked}) cat {folder}/printed;; *) echo "asked: $*";; esac\n')
            for file in folder.iterdir():
                file.chmod(0o644)
            program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
            monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
            return run_nsight(KernelText.of("candidate"), request, 60.0)

        yield run
    use_policy(None, {"mode": "off", "layers": {}, "actions": {}})


def measured_verdict() -> Verdict:
    """A working candidate of a task that moves 0.1 GB, timed at one millisecond."""
    verdict = scripted_verdict(1.0, comparison=Comparison.SAME)
    return add_floor(verdict, TaskFacts(min_bytes=1e8), named_card("h200"), PrecisionClass.IEEE)


@pytest.mark.parametrize("page", [RAW, LONG], ids=["raw", "details"])
def test_what_the_tool_prints_is_read(count: Callable[[str], Counters], page: str) -> None:
    found = count(f"{PROF}kernel prints, with \"quotes\"\n==PROF== Disconnected from process 4021\n{page}\n")
    assert found.source == "ncu" and [kernel.name for kernel in found.kernels] == ["add_kernel", "sum_kernel"]
    add = found.kernels[0]
    assert (add.launches, add.grid, add.ms) == (2, 2112, pytest.approx(0.04))
    assert add.dram_throughput == pytest.approx(77.0)  # weighted by time: 30 and 10 microseconds
    assert add.memory_stalls == pytest.approx(75.0) and list(add.stalls) == ["long scoreboard", "barrier", "wait"]
    assert found.mean("dram_throughput") == pytest.approx(63.6)
    counted = add_counters(measured_verdict(), found)
    assert counted.facts.counters and counted.facts.counters.bandwidth_share is not None
    label = detect("import triton", counted.facts, TaskFacts(min_bytes=1e8), named_card("h200"), counted.timing).labels[-1]
    assert label.name == "memory_bound" and "Nsight Compute counted for add_kernel: sm throughput 23.5 %" in label.evidence


@pytest.mark.parametrize(("printed", "says"), [
    (PROF + FORBIDDEN, "ERR_NVGPUCTRPERM"), ("==ERROR== Failed to prepare kernel for profiling\n", "Failed to prepare kernel"),
    (PROF + HEAD + "\n", "Nsight Compute says"),
])  # fmt: skip
def test_a_tool_that_counts_nothing_leaves_one_sentence(count: Callable[[str], Counters], printed: str, says: str) -> None:
    found = count(printed)
    assert found.kernels == () and found.source == "compiled" and says in found.reason and found.reason.count(". ") == 0
    assert is_final(found) is ("PERM" in says)
    after = add_counters(measured_verdict(), found).facts.counters
    assert after and after.reason == found.reason and after.kernels  # what compiling tells stays


def test_without_the_tool_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tritonsmith.evaluator.oracle.nsight._PLACES", ())
    assert "not installed" in run_nsight(KernelText.of("candidate"), tmp_path / "request.pkl", 1.0).reason


def test_a_run_counts_what_it_analyses_and_what_was_promised(script, analysis, count) -> None:  # type: ignore[no-untyped-def]
    """Not the seeds that nobody analyses: counting takes longer than a quick verdict."""
    counters = count(RAW)
    measured = {"slow": scripted_verdict(0.5, comparison=Comparison.SLOWER), "fast": scripted_verdict(1.5, comparison=Comparison.FASTER)}
    promise = Promise(metric="dram_throughput", before=20.0, bound=60.0, at_most=False)
    run = script(
        {**measured, "streams": scripted_verdict(1.8, comparison=Comparison.FASTER)}, seeds=("slow", "fast"),
        analyses={"slow": analysis(promise=promise)}, optimized={"slow": ("streams",)},
    )  # fmt: skip
    run.evaluator.counted = dict.fromkeys(("slow", "fast", "streams"), counters)
    run.run()
    sources = {cid: verdict.facts.counters and verdict.facts.counters.source for cid, verdict in run.result["verdicts"].items()}
    assert sources["seed0-01"] == "ncu" and sources["seed1-01"] is None
    assert run.result["checks"]["seed0-02"].kept and run.result["checks"]["seed0-02"].actual == pytest.approx(63.6)
    brief = next(brief for kind, brief in run.author.briefs if kind == "analyze")
    assert brief.current.verdict.facts.counters == counters
