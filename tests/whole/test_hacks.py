"""The hack corpus: its headers are complete, a sample of it is neutralised; the whole of it is judged by `make hacks` and the slow test."""

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from project import ROOT
from tritonsmith.benchmarks.hacks import suite
from tritonsmith.benchmarks.hacks.catalogue import Case, hacks, load_cases, variants
from tritonsmith.benchmarks.hacks.judge import Judge, Outcome, task_of, weigh
from tritonsmith.benchmarks.hacks.suite import OutcomeFile, chosen_cases, read_earlier, run
from tritonsmith.evaluator.schema import Correctness, Label, Status, Task, Timing, TimingKind, Verdict

EVALUATOR = ROOT / "evaluator"
CASES = {case.name: case for case in load_cases()}
SAMPLE = (
    "R02_shape_cache",
    "W05_stride_zero",
    "W17_in_place",
    "S15_shrink_shared_memory",
    "E01_library_fallback",
    "P01_exit_zero",
    "gru-gates_swapped",
    "column_sum_barrier-no_grid_barrier",
)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    opened = Judge("h200", workers=2)
    yield opened
    opened.close()


def test_the_corpus_is_as_large_as_promised() -> None:
    files = hacks()
    assert sum(not one.needs_card for one in files) >= 60 and sum(one.needs_card for one in files) >= 25
    assert {kind: len(variants(kind)) >= least for kind, least in (("mutant", 60), ("legitimate", 40), ("racy", 10), ("clean", 20))} == {
        "mutant": True, "legitimate": True, "racy": True, "clean": True,
    }  # fmt: skip
    families = Counter(one.family[0] for one in files if not one.needs_card)
    assert set(families) == set("TRWSEPH") and min(families.values()) >= 5
    card = {one.family for one in files if one.needs_card}
    wanted = "T1 T2 T3 T6 T11 T12 T13 T15 T17 R1 R2 R3 R4 R5 R6 W9 W16 E1 E2 H3 H5 H8"
    assert set(wanted.split()) <= card


def names_in(body: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """Names that these statements define, with the body of each class; attributes of `self` count as names of their class."""
    found: dict[str, list[ast.stmt]] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = node.body if isinstance(node, ast.ClassDef) else []
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute | ast.Name) and isinstance(inner.ctx, ast.Store):
                found.setdefault(inner.attr if isinstance(inner, ast.Attribute) else inner.id, [])
    return found


def missing_part(dotted: str) -> str:
    """The first part of a dotted name below `evaluator` that does not exist; empty when all of them do."""
    path, parts = EVALUATOR, dotted.split(".")
    while parts and (path / parts[0]).is_dir():
        path /= parts.pop(0)
    if not parts or not (path / f"{parts[0]}.py").is_file():
        return f"{path.name}/{parts[0] if parts else ''}"
    body = ast.parse((path / f"{parts.pop(0)}.py").read_text()).body
    for part in parts:
        names = names_in(body)
        if part not in names:
            return part
        body = names[part]
    return ""


LOOKS_UP = re.compile(r"sys\.modules|__main__|tritonsmith\.|f_locals\.get|type\(one\)")


def test_what_a_hack_attacks_exists() -> None:
    """A hack that looks modules or classes up by name would attack nothing after a move, and be refused or accepted all the same."""
    attacking = [case for case in hacks() if LOOKS_UP.search(case.source)]
    assert len(attacking) >= 25
    assert [case.name for case in attacking if not case.attacks] == []
    assert {(case.name, dotted): part for case in hacks() for dotted in case.attacks if (part := missing_part(dotted))} == {}
    assert missing_part("confined.interpreter.races.RaceDetector.gone") == "gone"
    assert missing_part("interp_races") == "evaluator/interp_races"


def test_hacks_find_what_they_attack_by_names_that_hold() -> None:
    """The strings by which hacks find modules and classes end a name that their header lists."""
    for case in hacks():
        ends = re.findall(r'endswith\("([\w.]+)"\)|__name__ == "(\w+)"', case.source)
        for end in filter(None, (part for pair in ends for part in pair)):
            assert any(end in f"evaluator.{dotted}" for dotted in case.attacks), (case.name, end)


def test_every_case_names_a_task_and_statuses_that_exist() -> None:
    names = [(case.kind, case.name) for case in load_cases()]
    assert len(set(names)) == len(names)
    for case in CASES.values():
        compile(case.source, case.name, "exec")
        assert case.about and case.expect
        assert {Status(status) for status in case.expect}
        assert {Label(label) for label in case.labels} or not case.labels
        assert task_of(case).name


def verdict(status: Status, score: float = 1.0, label: Label = Label.KERNEL) -> Verdict:
    if status is not Status.OK:
        return Verdict(status=status)
    timing = Timing(kind=TimingKind.ESTIMATED, median_ms=1, baselines_ms={"eager": 1}, baseline="eager", score=score, score_eager=score)
    right = Correctness(max_abs_err=0, mean_abs_err=0, err_vs_oracle=0, reference_err_vs_oracle=0)
    return Verdict(status=status, timing=timing, correctness=right, label=label)


@pytest.mark.parametrize(
    ("kind", "expect", "labels", "got", "passed"),
    [
        ("hack", ("inaccurate",), (), verdict(Status.INACCURATE), True),
        ("hack", ("inaccurate",), (), verdict(Status.CRASHED), False),
        ("hack", ("inaccurate",), (), verdict(Status.OK), False),
        ("hack", ("ok",), (), verdict(Status.OK, 1.01), True),
        ("hack", ("ok",), (), verdict(Status.OK, 1.2), False),
        ("hack", ("ok",), ("library",), verdict(Status.OK, 9.0, Label.LIBRARY), True),
        ("hack", ("ok",), ("library",), verdict(Status.OK, 0.5, Label.KERNEL), False),
        ("mutant", ("inaccurate",), (), verdict(Status.OK), False),
        ("mutant", ("inaccurate", "racy"), (), verdict(Status.RACY), True),
        ("racy", ("racy",), (), verdict(Status.INACCURATE), False),
        ("clean", ("ok",), (), verdict(Status.RACY), False),
        ("legitimate", ("ok",), (), verdict(Status.OK), True),
        ("legitimate", ("ok",), (), verdict(Status.INACCURATE), False),
    ],
)
def test_what_counts_as_neutralised(kind: str, expect: tuple[str, ...], labels: tuple[str, ...], got: Verdict, passed: bool) -> None:
    case = Case("case", kind, "26_gelu_scale_bias", "", expect=expect, labels=labels)
    assert weigh(case, got, [verdict(Status.OK)])[0] is passed


def test_a_hack_may_reach_the_best_honest_interval() -> None:
    """On a card a hack may reach the best of the honest kernel's intervals, and no more."""
    def measured(score: float) -> Verdict:
        plain = verdict(Status.OK, score)
        assert plain.timing is not None
        return plain.model_copy(update={"timing": plain.timing.model_copy(update={"interval": (score - 0.1, score + 0.1)})})

    case = Case("case", "hack", "26_gelu_scale_bias", "", expect=("ok",))
    honest = [measured(1.0), measured(1.3)]
    assert weigh(case, measured(1.45), honest)[0] and not weigh(case, measured(1.45), honest[:1])[0]
    assert not weigh(case, measured(1.6), honest)[0]


def test_cases_that_need_a_card_are_named_where_there_is_none() -> None:
    here, elsewhere = chosen_cases(("hack",), "R0", card=False)
    assert here and elsewhere and not any(case.needs_card for case in here) and all(case.needs_card for case in elsewhere)
    everything, nothing = chosen_cases(("hack",), "R0", card=True)
    assert {case.name for case in everything} == {case.name for case in here + elsewhere} and not nothing
    assert chosen_cases(("hack",), "R0", card=True, card_only=True)[0] == elsewhere


class BrokenJudge:
    """Refuses everything, as an evaluator does that cannot run any candidate."""

    card, workers, hardware = False, 1, "none"

    def verdict(self, task: Task, source: str, profile: str = "quick") -> Verdict:
        return Verdict(status=Status.RUNTIME_ERROR, message="KeyError: /some/where/file.py")


def test_refusing_everything_neutralises_nothing() -> None:
    """An evaluator that refuses everything neutralises no hack."""
    heard: list[Outcome] = []
    outcomes = run([CASES["P01_exit_zero"], CASES["gru-gates_swapped"]], cast(Judge, BrokenJudge()), heard.append)
    assert outcomes == heard and not any(one.passed for one in outcomes)
    assert all("honest kernel" in one.why and "/some" not in one.message + one.why for one in outcomes)


def test_an_interrupted_run_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interrupted run keeps its outcomes and says how to go on."""
    class Interrupted(BrokenJudge):
        def __init__(self, target: str, workers: int) -> None:
            self.left = 3

        def verdict(self, task: Task, source: str, profile: str = "quick") -> Verdict:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
            return super().verdict(task, source)

        def close(self) -> None:
            pass

    monkeypatch.setattr(suite, "Judge", Interrupted)
    file = tmp_path / "report.json"
    assert suite.main(["--kinds", "legitimate", "--only", "softmax", "--json", str(file)]) == 130
    kept = len(json.loads(file.read_text())["outcomes"])  # what was being judged is finished first
    assert 2 <= kept < 8 and f"Interrupted after {kept} of 8 cases; the same command with --resume" in capsys.readouterr().err


def test_a_report_is_complete_after_every_case(tmp_path: Path) -> None:
    """The file is complete after every case, so that a run can be continued."""
    file = tmp_path / "new" / "report.json"
    report = OutcomeFile(file, {"command": "x"})
    report.add(Outcome("a", "hack", "R1", True, "refused as inaccurate", "inaccurate", expected=("inaccurate",)))
    report.add(Outcome("b", "hack", "R2", False, "accepted", "ok", "kernel", 1.5, 1.0))
    assert json.loads(file.read_text())["command"] == "x"
    assert read_earlier(file) == report.outcomes[:1] and read_earlier(tmp_path / "none.json") == []


@pytest.mark.slow
@pytest.mark.timeout(900)  # eight verdicts: half a minute on two idle cores
def test_a_sample_of_the_corpus_is_neutralised(judge: Judge) -> None:
    outcomes = run([CASES[name] for name in SAMPLE], judge)
    assert [(one.name, one.status, one.why) for one in outcomes if not one.passed] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_whole_corpus_is_neutralised(judge: Judge) -> None:
    outcomes = run(chosen_cases(suite.KINDS, "", card=False)[0], judge)
    assert [(one.name, one.status, one.why) for one in outcomes if not one.passed] == []
