"""A candidate under Nsight Compute (`ncu`), where that tool exists and may count: throughput, cache hits and stalls of its kernels.

Never while something is timed: the oracle does one thing at a time, and the tool runs each kernel several times. The candidate is confined
as always, and the tool runs inside with it. So what it prints is evidence, which a candidate could forge, and no status depends on it.
"""

from __future__ import annotations

import csv
import glob
import io
import math
import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.lines import send_line
from tritonsmith.evaluator.records.limits import Counters, KernelCounters
from tritonsmith.evaluator.sandbox.policy import sandbox_report
from tritonsmith.evaluator.sandbox.process import SandboxedProcess

_MOST_BYTES = 8 << 20
"""Of the tool's output."""
_MOST_LAUNCHES = 24
"""Launches of one forward that are counted, from the first."""
_PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/nsight-compute*", "/opt/nvidia/nsight-compute/*", "/usr/local/cuda-*/bin")
"""Where toolkits put the program, as patterns of folders."""
_METRICS = {
    "sm_throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "active_warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "dram_throughput": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_hit_rate": "lts__t_sector_hit_rate.pct",
}
_GRID, _TIME = "launch__grid_size", "gpu__time_duration.sum"
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)(?:_per_issue_active)?\.ratio$")
_REASONS = (
    "barrier", "branch_resolve", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle", "long_scoreboard", "math_pipe_throttle",
    "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
_MEMORY = {"long_scoreboard", "lg_throttle", "drain", "membar", "mio_throttle", "short_scoreboard", "tex_throttle", "imc_miss"}
"""Reasons to wait that have to do with memory of any kind."""
_TOP = 3
"""Reasons that are told."""
_MILLISECONDS = {"ns": 1e-6, "nsecond": 1e-6, "us": 1e-3, "usecond": 1e-3, "ms": 1.0, "msecond": 1.0, "s": 1e3, "second": 1e3}
_FORBIDDEN = "Nsight Compute may not read this card's counters (ERR_NVGPUCTRPERM); the host's administrator can allow it."
_MISSING = "Nothing was counted: Nsight Compute (ncu) is not installed here."
_NO_USER = "Nothing was counted: Nsight Compute needs candidates to run as a user of their own, as root starts them."


def is_final(counters: Counters) -> bool:
    """Whether no other kernel can be counted here either."""
    return counters.reason in (_FORBIDDEN, _MISSING, _NO_USER)


def find_ncu() -> str | None:
    """Path of `ncu`; None where it is not installed. Of several versions the last by name."""
    folders = [folder for place in _PLACES for folder in sorted(glob.glob(place), reverse=True)]
    return shutil.which("ncu") or next((path for folder in folders if os.access(path := f"{folder}/ncu", os.X_OK)), None)


def run_nsight(kernel: KernelText, request: Path, seconds: float) -> Counters:
    """What Nsight Compute counts of a candidate's kernels; without any, the reason as a sentence.

    Args:
        kernel: the candidate.
        request: the file with the arguments of one call (`channel/own_call.py`).
        seconds: the longest that it may take.
    """
    program = find_ncu()
    if program is None:
        return _nothing(_MISSING)
    report = sandbox_report()
    if report["mode"] != "off" and report["layers"].get("uid") != "applied":  # the tool reads its child's /proc, and must see nobody else's
        return _nothing(_NO_USER)
    tool = [program, "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off", "--target-processes", "all"]
    tool += ["--clock-control", "none"]  # the card's clocks stay as they are
    tool += ["--launch-count", str(_MOST_LAUNCHES), "--metrics", ",".join(_list_metrics())]
    with tempfile.TemporaryDirectory(prefix="tritonsmith-count-", ignore_cleanup_errors=True) as folder:
        inbox = Path(folder)
        inbox.chmod(0o755)
        source = inbox / "candidate.py"
        source.write_text(kernel.text)
        source.chmod(0o644)
        read = [inbox, request, Path(os.path.realpath(program)).parent, Path(program).parent]
        with SandboxedProcess("tritonsmith.evaluator.confined.compiler.count", confined=True, read=read, proc=True) as sandbox:
            assert sandbox.process.stdin is not None
            send_line(sandbox.process.stdin.fileno(), {"tool": tool, "candidate": str(source), "request": str(request)})
            output = sandbox.read_output(seconds, _MOST_BYTES)
    if output is None:
        return _nothing(f"Nothing was counted: Nsight Compute took longer than {seconds:.0f} s.")
    return read_ncu_output(output.decode(errors="replace"))


def read_ncu_output(text: str) -> Counters:
    """The counters in what `ncu --csv` prints, as one column or as one line per metric; without any, the reason."""
    if "ERR_NVGPUCTRPERM" in text:
        return _nothing(_FORBIDDEN)
    kernels = [_describe(name, launches) for name, launches in _read_launches(text).items()]
    if kernels:
        return Counters(source="ncu", kernels=tuple(kernels))
    errors = [line for line in text.splitlines() if line.startswith("==ERROR==")] or [line for line in text.splitlines() if line.strip()]
    said = errors[-1].removeprefix("==ERROR==").strip()[:200] if errors else "it printed nothing"
    return _nothing(f"Nothing was counted; Nsight Compute says: {said}")


def _nothing(reason: str) -> Counters:
    return Counters(source="compiled", reason=reason)


def _list_metrics() -> list[str]:
    stalls = [f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in _REASONS]
    return [*_METRICS.values(), _GRID, _TIME, *stalls]


def _read_launches(text: str) -> dict[str, list[dict[str, float]]]:
    """The figures of every launch by kernel; times in milliseconds."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        return {}
    table = list(csv.reader(io.StringIO("\n".join(line for line in lines[start:] if line.startswith('"')))))
    head, rows = table[0], table[1:]
    launches = _read_long(head, rows) if "Metric Name" in head else _read_wide(head, rows)
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for name, figures in launches:
        found[name].append(figures)
    return found


def _read_wide(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[tuple[str, dict[str, float]]]:
    """One row per launch, one column per metric; the first row has the units."""
    if not rows or "Kernel Name" not in head:
        return []
    units = dict(zip(head, rows[0], strict=False))
    name = head.index("Kernel Name")
    return [
        (row[name], _number({column: (value, units.get(column, "")) for column, value in zip(head, row, strict=False)}))
        for row in rows[1:] if len(row) == len(head)
    ]  # fmt: skip


def _read_long(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[tuple[str, dict[str, float]]]:
    """One row per launch and metric."""
    launches: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {}
    for row in rows:
        cells = dict(zip(head, row, strict=False))
        entry = launches.setdefault(cells.get("ID", ""), (cells.get("Kernel Name", ""), {}))
        entry[1][cells.get("Metric Name", "")] = (cells.get("Metric Value", ""), cells.get("Metric Unit", ""))
    return [(name, _number(cells)) for name, cells in launches.values()]


def _number(cells: Mapping[str, tuple[str, str]]) -> dict[str, float]:
    """The cells that are numbers; what the card does not count is `n/a`."""
    found: dict[str, float] = {}
    for name, (text, unit) in cells.items():
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            continue
        if math.isfinite(value):
            found[name] = value * _MILLISECONDS.get(unit, 1e-6) if name == _TIME else value
    return found


def _describe(name: str, launches: Sequence[Mapping[str, float]]) -> KernelCounters:
    """A kernel's launches together: means weighted by their time, reasons to wait as shares of all stalls."""
    weights = [launch.get(_TIME, 0.0) for launch in launches]
    weights = weights if sum(weights) else [1.0] * len(launches)

    def mean(metric: str) -> float | None:
        rows = [(launch[metric], weight) for launch, weight in zip(launches, weights, strict=True) if metric in launch]
        total = sum(weight for _, weight in rows)
        return sum(value * weight for value, weight in rows) / total if total else None

    named = {found[1]: metric for launch in launches for metric in launch if (found := _STALL.search(metric)) and found[1] != "selected"}
    stalls = {reason: value for reason, metric in named.items() if (value := mean(metric))}
    total = sum(stalls.values())
    shares = {reason: 100.0 * value / total for reason, value in stalls.items()} if total else {}
    top = sorted(shares.items(), key=lambda item: -item[1])[:_TOP]
    read = {key: mean(metric) for key, metric in _METRICS.items()}
    figures = {key: value if value is None else min(100.0, value) for key, value in read.items()}  # hits are counted in passes of their own
    grids = [int(launch[_GRID]) for launch in launches if _GRID in launch]
    described = KernelCounters(
        name=name.partition("(")[0], launches=len(launches), grid=max(grids, default=None),
        memory_stalls=sum(share for reason, share in shares.items() if reason in _MEMORY) if shares else None,
        stalls={reason.replace("_", " "): share for reason, share in top}, ms=sum(launch.get(_TIME, 0.0) for launch in launches) or None,
    )  # fmt: skip
    return described.model_copy(update=figures)
