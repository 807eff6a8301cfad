"""What a second card gives: verdicts per hour of one suite with one card, with two and through Ray, and what a busy neighbour costs.

`python -m tritonsmith.benchmarks.two_cards [--parts one,two,...] [--list FILE] [--out FILE]` on a host with two cards of one model. Each
part is a process of its own with empty caches:

- `one`, `two`, `ray`: the suite (12 tasks x 6 candidates) with `--devices 0`, `--devices 0,1` and `--evaluator ray`;
- `alone`: as `two`, with `--confirm alone`;
- `killed`: as `ray`; a supervisor is killed with signal 9 after a third of the verdicts. Each question must have one verdict in the end;
- `neighbour`: one kernel is judged again and again on card 0, while card 1 rests, while it works on the suite, and while it rests again.

Verdicts per hour count the time from the start of the command to its end. With `--target` the parts run without cards, on estimates: that
shows that the script works, and nothing about cards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.host import begin_record, print_line, write_record
from tritonsmith.evaluator.caller.sharing.devices import visible_cards
from tritonsmith.evaluator.caller.sharing.open import JudgeSettings, open_judges
from tritonsmith.evaluator.errors import TritonsmithError, UsageError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.graph.suites.tasks import load_suite

_HERE = Path(__file__).parent
CANDIDATES = 6
"""Kernels of each task: first kernels alone, so that each run asks the same questions."""
PLACES: dict[str, list[str]] = {
    "one": ["--devices", "0"],
    "two": ["--devices", "0,1"],
    "alone": ["--devices", "0,1", "--confirm", "alone"],
    "ray": ["--evaluator", "ray"],
    "killed": ["--evaluator", "ray"],
}
"""By part: where the suite's verdicts are made."""
NEIGHBOUR = "neighbour"
ROUNDS = 6
"""Verdicts of each phase beside a neighbour, and without one."""
_CARDS = 2
_POLL = 0.2
LIST = _HERE / "two_cards.toml"
_KERNEL = _HERE / "kernelbench" / "kernels" / "softmax.py"
_CALL = "from tritonsmith.cli.main import main; main()"


def start_suite(words: Sequence[str], folder: Path, suite: Path, target: str) -> subprocess.Popen[str]:
    """A suite in a process of its own, whose compilers find nothing of earlier parts."""
    command = [sys.executable, "-c", _CALL, "optimize", str(suite), "--fresh", "--policy", "best-of-n"]
    command += ["--seeds", str(CANDIDATES), "--budget-candidates", str(CANDIDATES), "--out", str(folder / "run"), *words]
    command += ["--target", target, "--size", "small"] if target else []
    caches = {name: str(folder / name.lower()) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
    folder.mkdir(parents=True)
    with (folder / "log").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, text=True, env={**os.environ, **caches}, start_new_session=True)


def read_verdicts(folder: Path) -> list[dict[str, Any]]:
    """The verdicts of a suite so far, the earliest first."""
    rows = []
    for path in (folder / "run" / "tasks").glob("*/events.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if '"event": "verdict"' not in line:
                continue
            with_more = json.loads(line)
            names = ("time", "candidate", "profile", "status", "score", "interval", "kind", "median_ms", "seconds")
            rows.append({"task": path.parent.name, **{name: with_more.get(name) for name in names}})
    return sorted(rows, key=lambda row: str(row["time"]))


def find_supervisors() -> list[int]:
    """Processes that Ray's supervisors of cards live in."""
    return [pid for pid, name in _list_processes() if name.startswith("ray::Supervisor")]


def _list_processes() -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it ended


def run_suite(part: str, folder: Path, suite: Path, target: str, seconds: float) -> dict[str, Any]:
    """One part: the suite from its start to its end, with what the verdicts were and how long it took."""
    started = time.monotonic()
    process = start_suite(PLACES[part], folder, suite, target)
    after = len(load_suite(str(suite))) * CANDIDATES // 3
    killed: dict[str, Any] = {}
    while process.poll() is None and time.monotonic() - started < seconds:
        time.sleep(_POLL)
        if part == "killed" and not killed and len(read_verdicts(folder)) >= after and (found := find_supervisors()):
            os.kill(found[0], signal.SIGKILL)
            when = round(time.monotonic() - started, 1)
            killed = {"supervisors": len(found), "after_verdicts": len(read_verdicts(folder)), "after_s": when}
    took = time.monotonic() - started
    ended = process.poll() is not None
    end_suite(process)
    rows = read_verdicts(folder)
    asked = Counter((row["task"], row["candidate"], row["profile"]) for row in rows)
    different = len({(row["task"], row["profile"], row["seconds"]) for row in rows})  # equal texts are asked about once
    if ended and not rows:
        raise UsageError(f"the suite of the part {part} has no verdict; its last words: {_read_last(folder)}")
    return {
        "part": part, "words": PLACES[part], "ended": ended, "exit_code": process.returncode, "seconds": round(took, 1),
        "verdicts": len(rows), "different_answers": different,
        "per_hour": round(3600 * different / took, 1), "twice": sum(count > 1 for count in asked.values()),
        "statuses": dict(Counter(str(row["status"]) for row in rows)), "killed": killed, "rows": rows,
    }  # fmt: skip


def _read_last(folder: Path) -> str:
    """Why the first task of a suite failed, else the last line that the suite wrote."""
    results = folder / "run" / "results.json"
    rows = json.loads(results.read_text(encoding="utf-8"))["rows"] if results.is_file() else []
    if reasons := [row["reason"] for row in rows if row["state"] == "failed"]:
        return str(reasons[0])
    lines = (folder / "log").read_text(encoding="utf-8").strip().splitlines()
    return lines[-1] if lines else "none"


def end_suite(process: subprocess.Popen[str]) -> None:
    """End a suite with everything that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


async def watch_neighbour(folder: Path, suite: Path, target: str, kernel: Path) -> dict[str, Any]:
    """Verdicts of one kernel on card 0, in three phases: card 1 rests, works on the suite, rests."""
    planned = next(one for one in load_suite(str(suite)) if one.key == kernel.stem)
    task = load_task(planned.path, size="small" if target else "full", overrides=planned.overrides)
    text = kernel.read_text(encoding="utf-8")
    evaluator = open_judges(JudgeSettings(target=target or "auto", devices="0", fresh=True), keep=False)
    phases: dict[str, list[dict[str, Any]]] = {}
    asked = 0

    async def judge(phase: str, profile: str) -> None:
        nonlocal asked
        asked += 1
        verdict = await evaluator.evaluate(task, KernelText.of(f"{text}\n# {asked}\n"), profile)
        row = {"profile": profile, "status": verdict.status.value, "score": verdict.score, "seconds": round(verdict.seconds, 2)}
        row["median_ms"] = verdict.timing.median_ms if verdict.timing else None
        phases.setdefault(phase, []).append(row)

    try:
        await judge("first", "quick")
        for phase in ("rests", "works", "rests again"):
            process = start_suite(["--devices", "1"], folder, suite, target) if phase == "works" else None
            while process is not None and not read_verdicts(folder):
                await asyncio.sleep(_POLL)
                if process.poll() is not None:
                    raise UsageError(f"the neighbour ended; its last words: {_read_last(folder)}")
            for number in range(ROUNDS):
                await judge(phase, "strict" if number == ROUNDS - 1 else "quick")
            if process is not None:
                end_suite(process)
    finally:
        await evaluator.aclose()
    return {"part": NEIGHBOUR, "task": task.name, "phases": phases, "spread": {phase: _spread(rows) for phase, rows in phases.items()}}


def _spread(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The scores of a phase: median, and the largest distance from it in percent."""
    scores = [row["score"] for row in rows if row["score"] is not None]
    if not scores:
        return {"verdicts": len(rows)}
    middle = statistics.median(scores)
    far = max(abs(score / middle - 1.0) for score in scores)
    seconds = statistics.median(row["seconds"] for row in rows)
    return {"verdicts": len(rows), "median_score": round(middle, 4), "farthest_percent": round(100 * far, 2), "median_seconds": seconds}


def main(arguments: Sequence[str] | None = None) -> int:
    """0, 1 where a suite did not end or has a question with two verdicts, 2 for bad input."""
    parser = argparse.ArgumentParser(description="What a second card of a host gives.")
    parser.add_argument("--parts", default=",".join([*PLACES, NEIGHBOUR]))
    parser.add_argument("--list", type=Path, default=LIST, dest="suite")
    parser.add_argument("--kernel", type=Path, default=_KERNEL, help="the kernel beside a neighbour")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds of a part")
    parser.add_argument("--target", default="", help="estimates for a card, without one")
    parser.add_argument("--out", type=Path, default=_HERE / "results" / "two_cards.json")
    options = parser.parse_args(arguments)
    parts = options.parts.split(",")
    if unknown := sorted(set(parts) - {*PLACES, NEIGHBOUR}):
        parser.error(f"--parts {','.join(unknown)}: choose among {', '.join([*PLACES, NEIGHBOUR])}")
    record: dict[str, Any] = {**begin_record("two_cards", arguments), "parts": []}
    try:
        return _measure(parts, options, record)
    except TritonsmithError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, UsageError) else 1


def _measure(parts: Sequence[str], options: argparse.Namespace, record: dict[str, Any]) -> int:
    load_suite(str(options.suite), argument="--list")  # a list that cannot be read is told before anything starts
    found, needed = len(visible_cards()), 1 if set(parts) == {"one"} else _CARDS
    if not options.target and found < needed:
        raise UsageError(f"{needed} cards are needed, and this host shows {found}; --target h200 tries the script without cards")
    with tempfile.TemporaryDirectory(prefix="two-cards-", ignore_cleanup_errors=True) as temporary:
        for part in parts:
            folder = Path(temporary) / part
            if part == NEIGHBOUR:
                told = asyncio.run(watch_neighbour(folder, options.suite, options.target, options.kernel))
                print_line(json.dumps(told["spread"]))
            else:
                told = run_suite(part, folder, options.suite, options.target, options.limit)
                print_line(json.dumps({key: value for key, value in told.items() if key != "rows"}))
            record["parts"].append(told)
            write_record(record, options.out)
    suites = [told for told in record["parts"] if told["part"] in PLACES]
    return int(any(told["twice"] or not told["ended"] for told in suites))


if __name__ == "__main__":
    sys.exit(main())
