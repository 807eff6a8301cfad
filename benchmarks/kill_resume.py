"""Kill real runs with SIGKILL at random moments, resume each, and compare the result with that of the run that nobody killed.

`python -m tritonsmith.benchmarks.kill_resume [TASK] [--kills 20]`; without a card, on the task's small size and with the built-in author.
Writes `results/kill_resume.json`. Exit code 1 when a run differs, or when anything that was finished was evaluated again.
"""

import argparse
import json
import os
import platform
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
TASK = HERE / "tasks" / "26_gelu_scale_bias.py"
SETTINGS = ("--model", "offline", "--size", "small", "--budget-candidates", "4")
COMMAND = (sys.executable, "-c", "from tritonsmith.cli.main import main; main()")
PACKAGES = ("tritonsmith", "langgraph", "langgraph-checkpoint-sqlite", "triton", "torch")
Fields = dict[str, Any]
Kernel = tuple[str, str]
"""Sha and profile."""


@dataclass
class Kill:
    """One run that was killed, and what became of it."""

    seconds: list[float] = field(default_factory=list)
    """When each of its processes was killed, counted from the moment its folder was there."""
    stood: list[str] = field(default_factory=list)
    """The last event before each kill."""
    finished: int = 0
    """Evaluations that were finished before the last kill."""
    repeated: int = 0
    """Of those, how many were begun again."""
    same_winner: bool = False
    same_decisions: bool = False
    exit_code: int = -1
    """Of the process that brought the run to its end."""

    @property
    def good(self) -> bool:
        """Whether the kill has changed nothing."""
        return self.same_winner and self.same_decisions and not self.repeated and self.exit_code == 0


def start(*arguments: str) -> "subprocess.Popen[bytes]":
    """The command in a process of its own."""
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def lines_of(path: Path) -> list[Fields]:
    """The whole lines of a file; a last one that a kill has cut is left out."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def read_judged(folder: Path) -> set[Kernel]:
    """Evaluations that the tape has."""
    return {(line["kernel"], line["profile"]) for line in lines_of(folder / "tape.jsonl") if line["kind"] == "verdict"}


def read_begun(folder: Path) -> list[Kernel]:
    """Evaluations that were begun, in their order."""
    events = lines_of(folder / "events.jsonl")
    shas = {event["candidate"]: event["sha"] for event in events if event["event"] == "candidate"}
    return [(shas[event["candidate"]], event["profile"]) for event in events if event["event"] == "evaluating"]


def answer_of(folder: Path) -> tuple[Any, Any]:
    """Winner and decisions of a finished run; what is drawn anew in every evaluation (errors, times of day) is left out."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    winner = summary["winner"]
    return (winner and (winner["id"], winner["sha"], winner["verdict"]["timing"]["score"])), summary["decisions"]


def kill(process: "subprocess.Popen[bytes]", folder: Path, after: float) -> float | None:
    """Wait for the run's folder, then some seconds more, and kill; the seconds, or None where the run was over before."""
    while not (folder / "run.json").is_file() and process.poll() is None:
        time.sleep(0.01)
    since = time.monotonic()
    while time.monotonic() - since < after and process.poll() is None:
        time.sleep(0.005)
    taken = time.monotonic() - since
    if process.poll() is not None:
        return None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return taken


def kill_and_resume(task: Path, folder: Path, chance: random.Random, length: float) -> Kill | None:
    """A run that is killed, one in four of them a second time, and then goes on to its end; None where it was over too soon."""
    outcome, first = Kill(), True
    for _ in range(1 + (chance.random() < 0.25)):
        known, before = read_judged(folder), len(read_begun(folder))
        process = start("optimize", str(task), *SETTINGS, "--out", str(folder)) if first else start("resume", str(folder))
        seconds = kill(process, folder, chance.uniform(0.0, length))
        outcome.repeated += sum(kernel in known for kernel in read_begun(folder)[before:])
        if first and (seconds is None or (folder / "summary.json").is_file()):
            return None  # its answer was there already
        if seconds is not None:
            last = (lines_of(folder / "events.jsonl") or [{"event": "nothing yet", "branch": "main"}])[-1]
            outcome.seconds.append(round(seconds, 2))
            outcome.stood.append(" ".join(str(last[name]) for name in ("branch", "event", "candidate") if last.get(name)))
        first = False
    known, before = read_judged(folder), len(read_begun(folder))
    outcome.finished = len(known)
    outcome.exit_code = start("resume", str(folder)).wait()
    outcome.repeated += sum(kernel in known for kernel in read_begun(folder)[before:])
    return outcome


def play(task: Path, root: Path, count: int, chance: random.Random, at_once: int, keep: Callable[[Fields, list[Kill]], None]) -> list[Kill]:
    """The run that nobody kills, then the others; `keep` is called after each."""
    whole = root / "whole"
    start("optimize", str(task), *SETTINGS, "--out", str(whole)).wait()
    length = float(json.loads((whole / "summary.json").read_text(encoding="utf-8"))["seconds"])
    winner, decisions = answer_of(whole)
    if winner is None:
        raise SystemExit(f"error: the run that nobody kills found no winner, so there is nothing to compare with: see {whole}")
    about = {"seconds": round(length, 1), "winner": winner, "decisions": len(decisions), "evaluations": len(read_begun(whole))}
    kills: list[Kill] = []

    def play_one(number: int) -> None:
        dice = random.Random(f"{number} {chance.random()}")
        outcome = None
        while outcome is None:
            folder = root / f"killed{number}-{dice.randrange(10**6)}"
            outcome = kill_and_resume(task, folder, dice, 1.1 * length)
        answer = answer_of(folder) if (folder / "summary.json").is_file() else (None, None)
        outcome.same_winner, outcome.same_decisions = answer[0] == winner, answer[1] == decisions
        kills.append(outcome)
        keep(about, kills)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(play_one, range(count)))
    return kills


def main(arguments: list[str] | None = None) -> int:
    """Play, print the table, write the figures after every kill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", nargs="?", type=Path, default=TASK)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=1, help="runs that are killed and resumed at the same time")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "kill_resume.json")
    given, console = parser.parse_args(arguments), Console()
    words = shlex.join(sys.argv[1:] if arguments is None else arguments)
    head = {
        "command": f"python -m tritonsmith.benchmarks.kill_resume {words}".strip(), "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "task": given.task.stem, "settings": list(SETTINGS), "cores": os.cpu_count(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }  # fmt: skip
    given.out.parent.mkdir(parents=True, exist_ok=True)

    def keep(whole: Fields, kills: list[Kill]) -> None:
        outcome = kills[-1]
        console.print(f"{len(kills)}: killed after {outcome.seconds} s at {outcome.stood}: {'the same' if outcome.good else outcome}")
        sums = {"same": sum(kill.good for kill in kills), "of": len(kills), "repeated_evaluations": sum(kill.repeated for kill in kills)}
        answer = {**head, "load": round(os.getloadavg()[1], 1), "whole": whole, **sums, "kills": [asdict(kill) for kill in kills]}
        given.out.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory(prefix="kill-resume-") as root:
        kills = play(given.task, Path(root), given.kills, random.Random(given.seed), given.at_once, keep)
    print_table(console, kills)
    return 0 if all(kill.good for kill in kills) else 1


def print_table(console: Console, kills: list[Kill]) -> None:
    """The table."""
    table = Table("kill", "after (s)", "it stood at", "finished before", "evaluated again", "winner", "decisions")
    for number, outcome in enumerate(kills, start=1):
        after = ", ".join(f"{seconds:.1f}" for seconds in outcome.seconds)
        same = ["same" if is_same else "DIFFERENT" for is_same in (outcome.same_winner, outcome.same_decisions)]
        table.add_row(str(number), after, "; ".join(outcome.stood), str(outcome.finished), str(outcome.repeated), *same)
    console.print(table)
    again = sum(kill.repeated for kill in kills)
    console.print(f"{sum(kill.good for kill in kills)} of {len(kills)} resumed to the same result; {again} evaluations were repeated.")


if __name__ == "__main__":
    sys.exit(main())
