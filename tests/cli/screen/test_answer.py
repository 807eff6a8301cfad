"""The answer of a run on the screen: what it says first, in which colour, and with which exit code."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from project import ROOT
from tritonsmith.cli.main import run
from tritonsmith.cli.screen.answer import show
from tritonsmith.evaluator.schema import Comparison, Label, SizeScore, Task, Timing, TimingKind
from tritonsmith.graph.run import optimize
from tritonsmith.graph.storage.header import describe_scores
from tritonsmith.graph.storage.sizes import list_sizes
from tritonsmith.graph.storage.summary import CandidateRow, Summary, Winner
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

GRU = str(ROOT / "benchmarks" / "tasks" / "39_gru.py")


def shown(summary: Summary, capsys: pytest.CaptureFixture[str]) -> str:
    show(summary)
    return capsys.readouterr().out


def test_the_end_of_a_run_says_what_was_proven(capsys: pytest.CaptureFixture[str]) -> None:
    """The end of a run says what was proven and which candidates may not win."""
    row = CandidateRow(id="seed0-01", stage="seed", status="ok", score=0.98, kind="measured", comparison="same", label="kernel")
    held = row.model_copy(update={"id": "seed1-01", "score": 3.0, "label": "library", "not_allowed": "the library does it"})
    verdict = scripted_verdict(0.98, comparison=Comparison.SAME, label=Label.KERNEL).model_copy(update={"profile": "strict"})
    winner = Winner(id="seed0-01", stage="seed", verdict=verdict, search_score=1.02)
    summary = Summary(task="t", policy="p", model="m", winner=winner, candidates=(row, held), allow="hybrid", kind="measured")
    printed = shown(summary, capsys)
    assert "0.98x: SAME as eager (no win; label kernel); search said 1.02x, confirmed 0.98x" in printed
    assert "0.98x measured, same" in printed and "library: may not win" in printed and "kernel win" not in printed
    assert "Not allowed to win (--allow hybrid): seed1-01: the library does it" in printed
    fruitless = summary.model_copy(update={"winner": None, "candidates": (held,), "stopped_because": "nothing that may win works"})
    printed = shown(fruitless, capsys)
    assert all(part in printed for part in ("No candidate was accepted", "seed1-01: the library does it", "nothing that may win works"))


def test_a_module_that_no_kernel_betters_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right kernel below 1.0x is no result: the sentence, the code, no best.py, no strict verdict, and the exit code as asked."""
    out, measured = tmp_path / "out", scripted_verdict(0.5, comparison=Comparison.SLOWER)
    assert measured.timing is not None
    baselines = {"eager": 1.84, "cuda_graph": 1.2, "compile": 1.5, "compile_reduce_overhead": 1.0}
    timing = measured.timing.model_copy(update={"baselines_ms": baselines, "baseline": "compile_reduce_overhead"})
    judge = ScriptedEvaluator({"slow": measured.model_copy(update={"timing": timing})})
    summary = optimize(GRU, out=str(out), seeds=1, author=ScriptedAuthor(seeds=("slow",)), evaluator=judge)
    sentence = 'keep your module; its fastest form here is torch.compile(mode="reduce-overhead"), 1.84x eager'
    first = f"{sentence} (1 ms, the fastest of 4 forms); the best kernel is 0.50x, measured"
    assert run(["resume", str(out)]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0] == first and any(line.startswith("Best kernel seed0-01 (") for line in lines) and "Winner" not in printed
    assert '    fast = torch.compile(model, mode="reduce-overhead")\n    with torch.no_grad():\n        y = fast(' in printed
    assert not (out / "best.py").exists() and summary.winner is None and summary.behind is not None
    assert f"kernels/{summary.behind.sha}.py" in printed and (out / "kernels" / f"{summary.behind.sha}.py").is_file()
    assert judge.calls == [("slow", "quick")], "neither tuned nor judged again"
    assert run(["resume", str(out), "--fail-unless-faster", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["answer"], told["winner"], told["kept"]["form"]) == ("kept", first, None, "compile_reduce_overhead")
    page = (out / "report.html").read_text()
    assert '<div class="answer kept">' in page and "The fastest form" in page and "fast = torch.compile(model, mode=" in page
    assert run(["report", str(out), "--format", "md"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == first
    assert "fast = torch.compile(model" in (out / "report.md").read_text()


def test_sizes_that_a_task_declares_stand_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The own size with its score, and each declared one with what the judge found there."""
    source = 'rows = 4\nSHAPES = [{"rows": (1, 64)}, {"rows": 128}, {"rows": 7}]\n'
    task = Task(name="t", path="t.py", source=source)
    verdict = scripted_verdict(1.5)
    told = {"right at 2 of them": "right at 2 of these 3", "right at 3 of them": "right at a size that", "": "not tried"}
    for found, words in told.items():
        audited = verdict.model_copy(update={"environment": {"audit": {"other sizes": found} if found else {}}})
        winner = Winner(id="seed0-01", stage="seed", verdict=audited)
        printed = shown(Summary(task="t", policy="p", model="m", winner=winner, sizes=list_sizes(task, audited)), capsys)
        lines = [line.split("  ")[0] for line in printed.splitlines()]
        assert [line for line in lines if line.startswith("rows = ")] == ["rows = 4", "rows = 1 to 64", "rows = 128", "rows = 7"]
        assert printed.count(words) == 3 and "1.50x eager ESTIMATE" in printed
    assert list_sizes(task, None) == () == list_sizes(Task(name="t", path="t.py", source="rows = 4\n"), verdict)


def test_each_size_has_its_score_and_slower_ones_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the screen, in both reports, in a drop-in's words; a single slow size is the original's, a range stays the kernel's."""
    source = 'rows = 4\nSHAPES = [{"rows": (1, 64)}, {"rows": 128}, {"rows": 7}]\n'
    task = Task(name="t", path="t.py", source=source)
    scores = tuple(
        SizeScore(entry=entry, sizes={"rows": rows}, timing=time_size(score, said))
        for entry, rows, score, said in ((0, 17, 0.9, Comparison.SLOWER), (1, 128, 0.5, Comparison.SLOWER), (2, 7, 1.25, Comparison.FASTER))
    )
    audited = scripted_verdict(1.5, kind=TimingKind.MEASURED).model_copy(
        update={"environment": {"audit": {"other sizes": "right at 3 of them"}}, "sizes": scores}
    )
    rows = list_sizes(task, audited)
    assert [row.words for row in rows][1:] == ["0.90x eager, SLOWER", "0.50x eager, SLOWER", "1.25x eager"]
    assert [row.proof for row in rows][1:] == ["right at rows = 17, drawn by the judge", "right", "right"]
    slow = "at rows = 128 the kernel is SLOWER than eager (0.50x); a drop-in runs the original there"
    ranged = "at rows = 17 the kernel is SLOWER than eager (0.90x); a drop-in runs the kernel in all of the range"
    assert [row.note for row in rows] == ["", ranged, slow, ""] and describe_scores(rows)[-2:] == [ranged, slow]
    winner = Winner(id="seed0-01", stage="seed", verdict=audited)
    summary = Summary(task="t", policy="p", model="m", winner=winner, sizes=rows, kind="measured", out=str(tmp_path))
    printed = " ".join(shown(summary, capsys).split())
    assert slow in printed and "1.25x eager" in printed
    summary.write(tmp_path)
    assert run(["report", str(tmp_path)]) == 0 and run(["report", str(tmp_path), "--format", "md"]) == 0
    for name in ("report.html", "report.md"):
        page = (tmp_path / name).read_text()
        assert "right at rows" in page and "1.25x eager" in page.replace("\\", "") and "SLOWER than eager" in page


def time_size(score: float, said: Comparison) -> Timing:
    """A measured timing at another size."""
    return Timing(
        kind=TimingKind.MEASURED, median_ms=1.0, baselines_ms={"eager": score}, baseline="eager", score=score, score_eager=score,
        interval=(0.99 * score, 1.01 * score), comparison=said,
    )  # fmt: skip


def test_a_kernel_that_is_not_faster_is_told_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right kernel without a measured gain is kept and called so: on the screen, in the page and the report, and by the exit code."""
    out = tmp_path / "out"
    judge = ScriptedEvaluator({"slow": scripted_verdict(0.8, comparison=Comparison.SLOWER)})
    summary = optimize(
        GRU, out=str(out), seeds=1, policy="best-of-n", claims_from=0, author=ScriptedAuthor(seeds=("slow",)), evaluator=judge
    )
    first = "NOT FASTER: the best kernel is SLOWER than eager: 0.80x, measured"
    assert run(["resume", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == first and any(line.startswith("Best kernel seed0-01 (") for line in lines) and "Winner" not in "".join(lines)
    assert run(["resume", str(out), "--fail-unless-faster", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["answer"]) == ("not_faster", first) and (out / "best.py").is_file()
    assert f'<div class="answer none">\n<h1>{first}</h1>' in (out / "report.html").read_text()
    assert run(["report", str(out), "--format", "md"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == first
    assert (out / "report.md").read_text().startswith(f"# {first}\n")
    for variable, colour in (("TERM", "\x1b[1;31m"), ("NO_COLOR", "\x1b[1m")):
        monkeypatch.setenv(variable, "xterm")
        screen = Console(force_terminal=True, color_system="standard", file=StringIO(), width=200)
        monkeypatch.setattr("tritonsmith.cli.screen.answer.out", screen)
        show(summary)
        assert isinstance(screen.file, StringIO) and screen.file.getvalue().startswith(f"{colour}{first}")
