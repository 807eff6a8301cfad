"""What a run shows while it goes on: recorded events drawn at several widths, as lines, after a resume, and for another process's run."""

import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from project import ROOT
from tritonsmith.cli.commands.watch import follow
from tritonsmith.cli.main import run as command
from tritonsmith.cli.screen.picture import RunPicture, read_events
from tritonsmith.cli.screen.progress import LiveProgress, LiveView, PlainProgress, open_progress
from tritonsmith.cli.screen.tables import decision_grid
from tritonsmith.evaluator.schema import Comparison
from tritonsmith.graph.run import optimize
from tritonsmith.graph.state import Decision
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

TASK = ROOT / "examples" / "recorded_run" / "task.py"
TAPE = TASK.with_name("run.jsonl")
COMMAND = Path(sys.executable).with_name("tritonsmith")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def event(event_: str, seconds: float = 0.0, candidate: str | None = None, branch: str = "main", **data: Any) -> dict[str, Any]:
    time = (BEGAN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
    return {"time": time, "event": event_, "node": event_, "branch": branch, "candidate": candidate, **data}


def written(name: str, seconds: float = 0.0, stage: str = "seed", **data: Any) -> dict[str, Any]:
    told = {"stage": stage, "parent": None, "sha": f"sha of {name}", "rationale": "why", **data}
    return event("candidate", seconds, name, name.partition("-")[0], **told)


def judged(name: str, seconds: float = 0.0, score: float | None = 1.5, **data: Any) -> dict[str, Any]:
    timing = {"score": score, "kind": "measured", "median_ms": 0.25, "launches_per_forward": 1} if score is not None else {}
    told = {"status": "ok" if score is not None else "compile_error", "profile": "quick", "not_allowed": "", **timing, **data}
    return event("verdict", seconds, name, name.partition("-")[0], **told)


def begun(**data: Any) -> dict[str, Any]:
    about = {"folder": "runs/r", "task": "39_gru", "size": "full", "policy": "notes", "model": "openai:m", "target": "NVIDIA H200"}
    budget = {"candidates": 60, "seconds": 600, "tokens": 50000, "money": 1.0}
    return event("run", **{**about, "run": "r", "budget": budget, "resumed": False, **data})


def picture_of(*events: dict[str, Any]) -> RunPicture:
    picture = RunPicture()
    for one in events:
        picture.update(one)
    return picture


def drawn(picture: RunPicture, width: int = 80, height: int = 24) -> list[str]:
    """The live view as a terminal of that size shows it."""
    console = Console(width=width, height=height, force_terminal=True, record=True, file=io.StringIO(), color_system=None)
    console.print(LiveView(picture))
    return console.export_text().splitlines()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The events of a whole run with a model: repair, rescue, confirmation; estimates."""
    events: list[dict[str, Any]] = []
    out = tmp_path_factory.mktemp("recorded") / "run"
    optimize(TASK, replay=str(TAPE), seeds=1, policy="no-tune", size="small", out=str(out), on_event=events.append)
    return events


def tokens_of_requests() -> dict[str, int]:
    """The tokens of every request of the recording, by its name."""
    lines = [json.loads(line) for line in TAPE.read_text().splitlines()]
    usages = {line["name"]: line["reply"]["usage"] for line in lines if line["kind"] == "reply"}
    return {name: usage["input_tokens"] + usage["output_tokens"] for name, usage in usages.items()}


def test_the_table_has_all_figures_of_every_candidate(
    recorded: list[dict[str, Any]],
) -> None:
    """The table has stage, verdict, score, time and tokens of every candidate, and says that a score is an estimate."""
    lines, tokens = drawn(picture_of(*recorded)), tokens_of_requests()
    table = {line.split()[0]: line.split() for line in lines if line.startswith("seed0-")}
    assert table["seed0-01"] == ["seed0-01", "seed", "compile_error", "-", "-", f"{tokens['seed0-01-seed']:,}"]
    assert table["seed0-03"][:5] == ["seed0-03", "optimize", "ok", "3.04x", "ESTIMATE,"]
    assert table["seed0-03"][-1] == f"{tokens['seed0-03-optimize']:,}"
    assert table["seed0-03"][5] == "ambiguous" and float(table["seed0-03"][6]) == pytest.approx(0.001412, rel=1e-3)
    assert lines[0].startswith("task (small), policy no-tune, script, for NVIDIA H200")
    assert "3 of 60 candidates" in lines[-1] and f"{sum(tokens.values()):,} tokens" in lines[-1]  # the analysis counts in the sum


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("height", [12, 24, 50])
def test_every_moment_of_a_run_fits_the_terminal(recorded: list[dict[str, Any]], width: int, height: int) -> None:
    picture = RunPicture()
    for one in recorded:
        picture.update(one)
        lines = drawn(picture, width, height)
        assert len(lines) < height and all(len(line) <= width for line in lines), "\n".join(lines)


def test_a_long_table_shows_the_latest_and_the_best() -> None:
    """A long table shows the latest candidates and the best one, and says what it leaves out."""
    names = [f"seed{n}-01" for n in range(40)]
    scores = {name: 9.0 if name == "seed3-01" else None if name in names[:3] else 1.0 for name in names}
    picture = picture_of(begun(), *(one for name in names for one in (written(name), judged(name, score=scores[name]))))
    lines = drawn(picture, height=24)
    assert len(lines) < 24
    shown = [line.split()[0] for line in lines if re.match(r"seed\d+-01 ", line)]
    assert "seed3-01" in shown and shown[-1] == "seed39-01" and len(shown) < 40
    assert f"... {40 - len(shown)} more candidates (3 of them failed)" in "\n".join(lines)


def test_each_branch_shows_its_node_until_it_decides() -> None:
    """Each branch has its node, with what that waits for, until it decides."""
    events = [
        begun(),
        event("stage", 1, branch="seed0") | {"node": "seed"},
        written("seed1-01", 1),
        event("stage", 2, "seed1-01", "seed1") | {"node": "evaluate"},
    ]
    picture = picture_of(*events)
    assert {branch: str(doing) for branch, doing in picture.doing.items()} == {
        "seed0": "seed",
        "seed1": "evaluate seed1-01: waits for its turn",
    }
    picture.update(event("evaluating", 3, "seed1-01", "seed1", profile="quick") | {"node": "evaluate"})
    picture.update(event("pause", 3, branch="seed0", reason="openai:m: rate limit; next try in 5 s"))
    assert str(picture.doing["seed1"]) == "evaluate seed1-01 (quick)"
    assert str(picture.doing["seed0"]) == "seed: openai:m: rate limit; next try in 5 s"
    picture.update(judged("seed1-01", 4))
    picture.update(event("decision", 4, "seed1-01", "seed1", id="seed1/00", gate="after_evaluate", choice="accept", reason="good"))
    assert set(picture.doing) == {"seed0"}
    lines = drawn(picture)
    assert any(line.startswith("seed0 seed: openai:m") for line in lines)
    assert any("seed1: after_evaluate -> accept: good" in line for line in lines)


def test_variants_that_are_judged_at_once_are_all_named() -> None:
    both = [event("evaluating", 2, name, profile="quick") | {"node": "evaluate_grid"} for name in ("grid-01", "grid-02")]
    picture = picture_of(begun(), event("stage", 1, "seed0-01") | {"node": "tune_grid"}, *both)
    assert str(picture.doing["main"]) == "evaluate_grid grid-01, grid-02 (quick)"


def test_the_budget_shows_what_is_used_of_each_limit() -> None:
    """What is used of its limit is shown for candidates, seconds, tokens and money."""
    spent = {"role": "author", "stage": "seed", "model": "openai:m", "input_tokens": 1000, "output_tokens": 234, "money": 0.05}
    picture = picture_of(
        begun(),
        event("usage", 2, branch="seed0", request="seed0-01-seed", call=1, total_tokens=1234, total_money=0.05, **spent),
        written("seed0-01", 2),
        event("end", 30, winner=None, result="", stopped_because="budget"),
    )
    assert drawn(picture)[-1] == "1 of 60 candidates, 30 s of 600, 1,234 of 50,000 tokens, $0.0500 of $1.00"
    assert picture.rows["seed0-01"].tokens == 1234


def test_a_measured_score_has_its_interval_and_comparison() -> None:
    """A measured score has its interval where there is room, and its comparison where it is no gain."""
    events = [written("seed0-01"), judged("seed0-01", score=2.5, interval=[2.4, 2.6], comparison="faster")]
    events += [written("seed1-01"), judged("seed1-01", score=0.98, interval=[0.9, 1.1], comparison="same")]
    events += [written("seed2-01"), judged("seed2-01", score=2.6, interval=[0.9, 3.1], comparison="ambiguous")]
    picture = picture_of(begun(), *events)
    assert picture.best is not None and picture.best.id == "seed0-01"  # a gain that is measured before one that may be noise
    narrow, wide = "\n".join(drawn(picture, 80)), "\n".join(drawn(picture, 200))
    assert "2.50x measured" in narrow and "0.98x measured, same" in narrow
    assert "2.50x (2.40 to 2.60) measured" in wide and "0.98x (0.90 to 1.10) measured, same" in wide


def test_a_narrow_terminal_keeps_every_figure_whole() -> None:
    """In 60 columns stages and verdicts are cut, scores, times and tokens are not, and reasons fold below their decisions."""
    names = ("memory-01", "memory-02")
    spent = {"total_tokens": 12345, "stage": "tune_memory", "input_tokens": 12345, "output_tokens": 0}
    events = [event("usage", 1, request=f"{name}-tune_memory", call=1, **spent) for name in names]
    events += [written(name, stage="tune_memory") for name in names]
    events += [judged(names[0], score=0.98, comparison="same", median_ms=0.01234), judged(names[1], score=None)]
    row, failed = (line for line in drawn(picture_of(begun(), *events), 60) if line.startswith("memory-"))
    assert row.startswith("memory-01") and row.endswith("0.98x measured, same 0.01234 12,345") and "…" in row
    assert failed.split()[-1] == "12,345" and len(failed) <= 60
    reason = "a long reason with the score 1.166 in its middle and words to the end"
    decided = Decision(id="seed0/00", site="after_evaluate", gate="after_evaluate", choice="accept", branch="seed0", reason=reason)
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(decision_grid([decided], 60))
    first, *below = console.export_text().splitlines()
    assert first.split() == ["seed0", "after_evaluate", "accept"] and " ".join(" ".join(below).split()) == reason and len(below) == 2


def test_a_kernel_that_may_not_win_is_never_shown_as_ok() -> None:
    """A kernel that works and may not win is not shown as ok, in either width."""
    held = judged("seed0-01", score=3.0, label="library", not_allowed="labelled library; hybrid is allowed")
    picture = picture_of(begun(), written("seed0-01"), held, written("seed1-01"), judged("seed1-01", score=1.1))
    row = next(line for line in drawn(picture) if line.startswith("seed0-01"))
    assert "may not win" in row and picture.best is not None and picture.best.id == "seed1-01"
    assert any("ok (library: may not win)" in line for line in drawn(picture, 200))


def test_events_that_come_again_double_nothing(recorded: list[dict[str, Any]]) -> None:
    once, twice = picture_of(*recorded), picture_of(*recorded, *recorded)
    assert twice.rows == once.rows and list(twice.sentences) == list(once.sentences) and twice.tokens == once.tokens
    assert twice.seconds() == pytest.approx(2 * once.seconds(), abs=0.01)  # two processes have worked


def test_a_resumed_run_shows_what_its_folder_tells_of_before(tmp_path: Path) -> None:
    earlier = [begun(folder=str(tmp_path)), written("seed0-01", 5), judged("seed0-01", 20), written("seed1-01", 21)]
    earlier.append(event("decision", 20, "seed0-01", "seed0", id="seed0/00", gate="after_evaluate", choice="accept", reason="good"))
    log = tmp_path / "events.jsonl"
    log.write_text("".join(json.dumps(one) + "\n" for one in earlier) + '{"time": "2026-01-01T00:0', encoding="utf-8")  # killed in a line
    now = begun(folder=str(tmp_path), resumed=True) | {"time": (BEGAN + timedelta(hours=5)).isoformat()}
    console = Console(width=200, file=io.StringIO())
    plain = PlainProgress(console)
    for one in (now, written("seed1-01", 18001), judged("seed1-01", 18002, score=2.0)):
        plain(one)
    text = console.file.getvalue()
    assert text.count("\n") == 3
    assert "goes on with 39_gru (full)" in text and "2 of 60 candidates, 21 s of 600" in text
    assert "best seed0-01 with 1.50x measured" in text
    assert "   23.0 s  seed1: seed1-01 is ok (quick): 2.00x measured, 0.25 ms, 1 launch" in text  # not five hours


def test_a_pipe_gets_one_line_per_event_without_colours(
    recorded: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.setenv(name, "1")
    console = Console(file=io.StringIO(), width=80)  # the variables make it "a terminal", which a pipe is not
    with open_progress(console) as progress:
        assert isinstance(progress, PlainProgress)
        for one in recorded:
            progress(one)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == len(recorded) and all(re.match(r" *\d+\.\d s  (main|seed0): \S", line) for line in lines)
    assert "\x1b" not in console.file.getvalue()
    assert sum("ESTIMATE" in line for line in lines) >= 3


def test_every_kind_of_event_has_words_of_its_own(recorded: list[dict[str, Any]]) -> None:
    told = [event(kind, reason="the reason") for kind in ("pause", "fault", "waiting", "stop", "stopped")]
    console = Console(file=io.StringIO(), width=200)
    plain = PlainProgress(console)
    for one in [*recorded, *told]:
        plain(one)
    for line in console.file.getvalue().splitlines():
        assert not re.search(r"None|\{|: *$", line), line


def test_follow_reads_what_another_process_writes_until_it_ends(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    (tmp_path / "run.lock").write_text(f"{os.getpid()} on {os.uname().nodename}\n", encoding="utf-8")
    lines = [json.dumps(one) + "\n" for one in (begun(), written("seed0-01"), event("end", 3, winner=None, result="", stopped_because=""))]

    def write() -> None:
        for text in (lines[0][:20], lines[0][20:], lines[1], lines[2]):  # a line may be seen half-written
            with log.open("a", encoding="utf-8") as file:
                file.write(text)
            time.sleep(0.25)

    writer = threading.Thread(target=write)
    writer.start()
    seen = [one["event"] for one in follow(tmp_path)]
    writer.join()
    assert seen == ["run", "candidate", "end"]


def test_watch_ends_when_nobody_works_on_the_run_any_longer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / "run.lock").write_text(f"{gone.pid} on {os.uname().nodename}\n", encoding="utf-8")
    (tmp_path / "events.jsonl").write_text(json.dumps(begun()) + "\n" + json.dumps(written("seed0-01")) + "\n", encoding="utf-8")
    assert command(["watch", str(tmp_path)]) == 1
    told = capfd.readouterr().err
    assert "wrote seed0-01" in told
    assert f"was killed, for nobody works on it and it has no end; go on with: tritonsmith resume {tmp_path}" in told


def test_watch_of_a_finished_run_gives_its_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    author, judge = ScriptedAuthor(seeds=["a"]), ScriptedEvaluator({"a": scripted_verdict(1.5, comparison=Comparison.FASTER)})
    optimize(TASK, author=author, evaluator=judge, policy="best-of-n", size="small", seeds=1, out=str(out))
    assert command(["watch", "--json", str(out)]) == 0
    shown = capfd.readouterr()
    assert json.loads(shown.out)["winner"]["id"] == "seed0-01"
    assert "ended: winner seed0-01" in shown.err and "1.50x measured" in shown.err


def test_ctrl_c_ends_the_watching_and_not_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(folder: Path) -> Iterator[dict[str, Any]]:
        yield begun()
        raise KeyboardInterrupt

    monkeypatch.setattr("tritonsmith.cli.commands.watch.follow", interrupted)
    (tmp_path / "events.jsonl").touch()
    assert command(["watch", str(tmp_path)]) == 0
    assert capfd.readouterr().err.endswith("No longer watching; the run itself goes on.\n")


def test_watch_of_something_else_is_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command(["watch", str(tmp_path)]) == 2
    assert capfd.readouterr().err == f"error: {tmp_path}: no run lies there; name the folder of a run\n"


class Terminal:
    """A command on a pseudo-terminal of 80 columns; `screens` is all it wrote."""

    def __init__(self, arguments: list[str], env: dict[str, str], columns: int = 80) -> None:
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._process = subprocess.Popen(arguments, stdout=follower, stderr=follower, stdin=follower, env={**os.environ, **env})
        os.close(follower)
        chunks = []
        while select.select([leader], [], [], 120)[0]:
            try:
                chunks.append(os.read(leader, 1 << 16))
            except OSError:  # the terminal is closed
                break
        self.code = self._process.wait()
        self.screens = b"".join(chunks).decode(errors="replace")


@pytest.mark.slow
@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_gets_a_live_table_and_then_the_answer(tmp_path: Path, no_color: str) -> None:
    """On a terminal the command redraws a table, and then answers."""
    env = {"TERM": "xterm-256color", "NO_COLOR": no_color}
    arguments = ["optimize", str(TASK), "--replay", str(TAPE), "--seeds", "1", "--policy", "no-tune", "--size", "small"]
    done = Terminal([str(COMMAND), *arguments, "--out", str(tmp_path / "run")], env)
    assert done.code == 0, done.screens
    assert "\x1b[2K" in done.screens  # lines are erased and drawn again
    assert bool(re.search(r"\x1b\[[\d;]*3[1-7]m", done.screens)) is (not no_color)
    assert "Best kernel seed0-03" in done.screens
    after = done.screens[done.screens.rindex("The way it took") :]
    assert "⠋" not in after  # the live view is gone when the answer stands there


@pytest.mark.slow
def test_a_terminal_that_cannot_redraw_gets_lines(tmp_path: Path) -> None:
    arguments = ["optimize", str(TASK), "--replay", str(TAPE), "--seeds", "1", "--policy", "no-tune", "--size", "small"]
    done = Terminal([str(COMMAND), *arguments, "--out", str(tmp_path / "run")], {"TERM": "dumb"})
    assert done.code == 0 and "\x1b[2K" not in done.screens and "seed0: after_evaluate -> repair" in done.screens


def test_the_live_view_takes_events_while_it_is_drawn() -> None:
    """The live view takes events from another thread while it is drawn."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    faults: list[BaseException] = []

    def tell(progress: Callable[[dict[str, Any]], None], first: int) -> None:
        try:
            for n in range(first, first + 200):
                progress(written(f"seed{n}-01"))
                progress(event("stage", branch=f"seed{n}") | {"node": "evaluate"})
                progress(judged(f"seed{n}-01"))
        except BaseException as error:  # noqa: BLE001 - a failure in a thread is otherwise not seen
            faults.append(error)

    with LiveProgress(console) as progress:
        tellers = [threading.Thread(target=tell, args=(progress, 1000 * n)) for n in range(2)]
        for one in tellers:
            one.start()
        while any(one.is_alive() for one in tellers):
            progress._live.refresh()
        for one in tellers:
            one.join()
    assert not faults and "400 candidates" in console.file.getvalue()


def test_events_of_a_file_are_read_but_for_the_one_that_was_cut(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_text(json.dumps(begun()) + '\n[1]\n{"time": "20', encoding="utf-8")
    assert [one["event"] for one in read_events(log)] == ["run"]


def test_a_lock_that_names_no_process_is_not_waited_for(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"event": "run", "time": "2026-01-01T00:00:00+00:00"}\n')
    for left in ("", "not a number", f"{10**30} on {os.uname().nodename}"):
        lock = tmp_path / "run.lock"
        lock.write_text(left)
        os.utime(lock, (0, 0))  # the process that wrote it has not just begun
        assert [event["event"] for event in follow(tmp_path)] == ["run"]
