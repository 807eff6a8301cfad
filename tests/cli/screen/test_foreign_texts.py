"""What models, servers, kernels and policies say is printed as it is: brackets are no styles, and words between colons no pictures."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from project import ROOT
from tritonsmith.benchmarks.ablation.schema import CellRow, CellState
from tritonsmith.cli.examining import Check
from tritonsmith.cli.main import run
from tritonsmith.cli.options import choose_page, err, out
from tritonsmith.cli.screen.ablation_answer import print_row
from tritonsmith.cli.screen.answer import show
from tritonsmith.cli.screen.checks import show_checks
from tritonsmith.cli.screen.picture import RunPicture
from tritonsmith.cli.screen.progress import LiveView, open_progress
from tritonsmith.cli.screen.tables import decision_grid, verdict_lines
from tritonsmith.evaluator.schema import Label
from tritonsmith.graph.state import Decision
from tritonsmith.graph.storage.summary import CandidateRow, Summary, Winner
from tritonsmith.nodes.evaluators.scripted import scripted_verdict

ODD = "a [/bold] b [red]c :smile: [link=x]"
"""As markup it raises an error, colours, and becomes a picture."""
DECISION = {"id": "main/01", "site": "after_select", "choice": "finish", "gate": "after_select", "branch": "main", "reason": ODD}


def summary_with_odd_texts(accepted: bool) -> Summary:
    verdict = scripted_verdict(1.5, label=Label.KERNEL, message=ODD, quarantine=ODD)
    verdict = verdict.model_copy(update={"advice": (ODD,), "environment": {"card": ODD}})
    held = CandidateRow(id="seed0-02", stage="seed", status="ok", score=2.0, kind="measured", not_allowed=ODD, rationale=ODD)
    winner = Winner(id="seed0-01", stage="seed", verdict=verdict) if accepted else None
    return Summary(
        task="t", policy=ODD, model=ODD, winner=winner, candidates=(held,), decisions=(Decision.model_validate(DECISION),),
        stopped_because=ODD, target=ODD, kind="measured", allow="hybrid", out="somewhere",
    )  # fmt: skip


@pytest.mark.parametrize("accepted", [True, False])
def test_the_answer_of_a_run(accepted: bool, capsys: pytest.CaptureFixture[str]) -> None:
    show(summary_with_odd_texts(accepted))
    printed = capsys.readouterr().out
    assert printed.count(ODD) >= (10 if accepted else 6), printed


def test_the_answer_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the same texts stand in tables, which wrap them."""
    file = io.StringIO()
    for name, value in {"_file": file, "_force_terminal": True, "_width": 200}.items():
        monkeypatch.setattr(out, name, value)
    show(summary_with_odd_texts(True))
    for decision_width in (60, 200):
        out.print(decision_grid([Decision.model_validate(DECISION)], decision_width))
    assert file.getvalue().count("[/bold] b [red]c :smile:") >= 12, file.getvalue()


def test_the_events_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = [
        {"event": "run", "task": "t", "policy": ODD, "model": ODD, "target": ODD},
        {"event": "candidate", "candidate": "seed0-01", "branch": "seed0", "stage": "seed", "sha": "s", "rationale": ODD},
        {"event": "verdict", "candidate": "seed0-01", "branch": "seed0", "status": "compile_error", "message": ODD, "profile": "quick"},
        {"event": "decision", **DECISION},
        {"event": "pause", "branch": "seed0", "reason": ODD},
    ]
    file = io.StringIO()
    monkeypatch.setattr(err, "_file", file)
    with open_progress(err) as lines:
        for one in told:
            lines(one)
    assert file.getvalue().count(ODD) == 7, file.getvalue()
    picture = RunPicture()
    for one in told:
        picture.update(one)
    monkeypatch.setattr(err, "_width", 200)
    err.print(LiveView(picture), soft_wrap=False)
    assert file.getvalue().count("[/bold] b [red]c :smile:") >= 7 + 5, file.getvalue()


def test_the_texts_of_other_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Findings of `doctor`, rows of `ablate`, and the answers of a policy."""
    show_checks([Check("card", False, ODD, ODD)], [Check(ODD, True, ODD)])
    print_row(CellRow(task=ODD, policy="p", repeat=1, state=CellState.FAILED, reason=ODD), 1, 2)
    policy = tmp_path / "mine.py"
    answer = f"        return 'skip', {json.dumps(ODD)}\n"
    policy.write_text(
        f"from tritonsmith.graph.policies import Default\nclass Mine(Default):\n    {json.dumps(ODD)}\n"
        f"    def after_detect(self, view):\n{answer}"
    )
    assert run(["policies", "--show", f"{policy}:Mine"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count(ODD) == 4 + 2 and printed.err.count(ODD) == 2, printed


def test_every_console_prints_texts_as_they_are() -> None:
    """Consoles of the command line are made in one place, and nothing else there reads markup."""
    made = [path.name for path in (ROOT / "cli").rglob("*.py") if any(word in path.read_text() for word in (" Console(", "rich.markup"))]
    assert made == ["options.py"]
    page = choose_page(99)
    assert isinstance(page, Console) and page.width == 99
    for console in (out, err, page):
        assert console.render_str(ODD).plain == ODD and not console.render_str(ODD).spans
    assert any(ODD in line.plain for line in verdict_lines(scripted_verdict(1.0, message=ODD)))
