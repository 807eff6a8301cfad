"""Tuning by a search, through the graph: what is proposed, pruned, raced and judged, and that it never ends below what it began with."""

import csv
import json

import pytest

from search_card import BEST, KERNEL, TASK, TUNED, Card, RowCard, Verdicts, judge_with, row_constants, row_speed, speed_of
from tritonsmith.benchmarks.tuning.cases import CASES
from tritonsmith.cli.report.write import write_report
from tritonsmith.evaluator.schema import TimingKind
from tritonsmith.evaluator.texts.spaces.read import read_space
from tritonsmith.graph.run import optimize
from tritonsmith.graph.searches import Tuning
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import scripted_verdict


def searched(script, *, text=KERNEL, card=None, tuning=None, **options):
    run = script({}, seeds=(text,), **options)
    card = card or Card()
    run.evaluator.verdicts, run.evaluator.racer = Verdicts(card.speed), card
    run.evaluator.hardware = run.evaluator.hardware.model_copy(update={"present": True})
    if tuning is not None:
        object.__setattr__(run.context, "tuning", tuning)
    run.run()
    return run, card


def test_three_searches_find_the_best_constants_and_keep_their_records(script):
    run, card = searched(script, budget=Budget(configurations=120))
    winner = run.text(run.result["winner"])
    assert speed_of(winner) > 0.85 > 1.7 * speed_of(KERNEL) and "autotune" not in winner
    assert not any(run.asked(stage) for stage in ("tune_grid", "tune_block", "tune_memory")), "no author is asked"
    assert sum(search.seconds for search in run.result["searches"].values()) == len(card.races)
    searches = run.result["searches"]
    assert list(searches) == ["tune_grid", "tune_block", "tune_memory"]
    assert [set(search.space) & set(BEST) for search in searches.values()] == [{"GROUP"}, {"BM", "BN", "BK"}, {"num_warps", "num_stages"}]
    assert sum(len(search.trials) for search in searches.values()) <= 120
    for stage, search in searches.items():
        finalists = [trial for trial in search.trials if trial.candidate]
        assert finalists and len(finalists) <= 3 and all(trial.ratio > 1 and trial.fate == "kept" for trial in finalists)
        for trial in finalists:
            assert run.result["candidates"][trial.candidate].sha == trial.sha and run.result["verdicts"][trial.candidate].profile
        assert search.kind is TimingKind.MEASURED and search.ended
        decision = next(one for one in run.result["decisions"].values() if one.gate == stage.replace("tune", "after"))
        assert decision.evidence["search"] == search.sentence() and search.sentence() in decision.reason
    assert searches["tune_grid"].proposed_by == "all" and searches["tune_block"].count("pruned") > 0
    assert searches["tune_block"].base != searches["tune_grid"].base, "a stage starts from the best of the stage before"


def test_one_search_over_all_stages(script):
    run, _ = searched(script, policy="tune-joint", budget=Budget(configurations=90))
    (search,) = run.result["searches"].values()
    assert search.joint and set(BEST) <= set(search.space) and search.proposed_by == "optuna" and len(search.trials) <= 90
    assert [choice for site, choice in run.path("main") if site == "after_stage"] == ["stop"]
    assert speed_of(run.text(run.result["winner"])) > 1.3 * speed_of(KERNEL)


def test_tiles_and_warps_that_win_only_together_are_found(script):
    tiles, warps = (2048, 4096, 8192, 16384, 32768), (8, 16, 32)
    assert max(row_speed(tile, 4) for tile in tiles) < 1.02 and max(row_speed(1024, number) for number in warps) < 1.0, "each alone loses"
    best = max(row_speed(tile, number) for tile in tiles for number in warps)
    softmax = next(case for case in CASES if case.name == "softmax").read_kernel()
    run, _ = searched(script, text=softmax, card=RowCard())
    assert best > 1.4 and row_speed(*row_constants(run.text(run.result["winner"]))) > 0.99 * best
    block = run.result["searches"]["tune_block"]
    assert block.linked == {"num_warps": ["BLOCK"]} and list(block.space) == ["BLOCK"]
    assert len(block.trials) <= 4 * len(tiles) and block.proposed_by == "all" and block.size == len(block.trials) + 1
    assert "num_warps" in block.finalists[0].values and "BLOCK" in block.finalists[0].values


def test_a_large_space_links_warps_to_tiles_too(script):
    run, _ = searched(script, budget=Budget(configurations=60))
    block = run.result["searches"]["tune_block"]
    assert block.proposed_by == "optuna" and block.linked == {"num_warps": ["BM", "BN", "BK"]}
    assert {"num_warps" in trial.values for trial in block.trials} == {True, False}


def test_a_repeated_search_proposes_the_same(script):
    first, second = (searched(script, policy="tune-joint", card=Card(3))[1].races for _ in range(2))
    assert first == second


@pytest.mark.parametrize("budget", [Budget(configurations=0), Budget(configurations=9), Budget(tuning_seconds=2.0)], ids=str)
def test_a_search_keeps_to_its_budget(script, budget):
    run, card = searched(script, budget=budget)
    assert sum(len(search.trials) for search in run.result["searches"].values()) <= budget.configurations
    assert budget.tuning_seconds == 900.0 or len(card.races) <= 3
    assert run.result["winner"]


def test_the_winner_is_never_slower_than_before_tuning(script):
    flat = Card(speed=lambda text: 1.0 if text == KERNEL else 0.7)
    run, card = searched(script, card=flat)
    assert run.text(run.result["winner"]) == KERNEL and len(card.races) > 3
    assert set(run.result["candidates"]) == {"seed0-01"}, "what lost its race costs no full verdict"


@pytest.mark.parametrize(("gain", "judged"), [(1.008, 1), (1.2, 3)])
def test_a_small_gain_gets_one_full_verdict(script, gain, judged):
    run, _ = searched(script, card=Card(speed=lambda text: 1.0 if text == KERNEL else gain))
    grid = run.result["searches"]["tune_grid"]
    assert grid.count("kept") > 1 and len(grid.finalists) == min(judged, grid.count("kept"))


def test_an_autotuned_kernel_ends_with_plain_constants(script):
    run, _ = searched(script, text=TUNED)
    winner = run.text(run.result["winner"])
    assert "autotune" not in winner and "num_warps=8" in winner and "BK=64" in winner
    nearly, _ = searched(script, text=TUNED, card=Card(speed=lambda text: 1.0 if "autotune" in text else 0.99))
    assert "autotune" not in nearly.text(nearly.result["winner"]), "as fast but for noise, and nothing is tried when it runs"
    slower, _ = searched(script, text=TUNED, card=Card(speed=lambda text: 1.0 if "autotune" in text else 0.9))
    assert slower.text(slower.result["winner"]) == TUNED


def test_who_finds_variants_is_a_setting(script):
    assert not searched(script, tuning=Tuning.NONE)[0].result.get("searches")
    both, _ = searched(script, policy="tune-both")
    assert both.result["searches"] and both.asked("tune_grid")
    model, card = searched(script, policy="tune-model")
    assert not model.result.get("searches") and not card.races and model.asked("tune_grid")
    persistent = {KERNEL: ("persistent",)}
    assert ("after_detect", "skip") in searched(script, labels=persistent)[0].path("main")
    run, card = searched(script, labels=persistent, policy="tune-persistent")
    assert ("after_detect", "tune") in run.path("main") and card.races


def test_without_races_the_nearest_configurations_get_full_verdicts(script):
    run = script({}, seeds=(KERNEL,))
    run.evaluator.verdicts = Verdicts(speed_of)
    run.evaluator.hardware = run.evaluator.hardware.model_copy(update={"present": True})
    run.run()
    grid = run.result["searches"]["tune_grid"]
    assert grid.kind is None and len(grid.finalists) == 4 and "nobody can race here" in grid.ended or "tried" in grid.ended
    assert speed_of(run.text(run.result["winner"])) > speed_of(KERNEL)


def test_a_run_shows_its_searches_and_its_tape_repeats_them(tmp_path):
    given = {"author": ScriptedAuthor(seeds=(KERNEL,)), "seeds": 1, "checkpoints": "none"}
    summary = optimize(TASK, evaluator=judge_with(Card(2)), out=str(tmp_path / "one"), **given)
    assert [search.stage for search in summary.searches] == ["tune_grid", "tune_block", "tune_memory"]
    names = {path.name for path in write_report(tmp_path / "one")}
    page = (tmp_path / "one/report.html").read_text()
    assert "searches.csv" in names and "Tuning searches" in page and "constant GROUP, line" in page
    rows = list(csv.DictReader((tmp_path / "one/searches.csv").open()))
    assert len(rows) == sum(len(search.trials) for search in summary.searches)
    assert {row["candidate"] for row in rows if row["candidate"]} == {row.id for row in summary.candidates if row.stage != "seed"}
    assert summary.searches[1].sentence() in (tmp_path / "one/report.md").read_text().replace("\\", "")

    def refuse(*_):
        raise AssertionError("it is on the tape")

    (tmp_path / "two").mkdir()
    (tmp_path / "two/tape.jsonl").write_text((tmp_path / "one/tape.jsonl").read_text())
    assert sum(json.loads(line)["kind"] == "race" for line in (tmp_path / "one/tape.jsonl").read_text().splitlines()) > 3
    again = judge_with(Card(2))
    again.racer = refuse
    repeated = optimize(TASK, evaluator=again, out=str(tmp_path / "two"), **given)
    assert repeated.searches == summary.searches and repeated.winner.sha == summary.winner.sha and not again.calls


def test_an_autotuner_goes_even_where_nothing_is_searched(script):
    run = script({}, seeds=(TUNED,))
    estimate = scripted_verdict(1.0).model_copy(update={"timing": scripted_verdict(1.0).timing.model_copy(update={"median_ms": 0.001})})
    run.evaluator.verdicts = dict.fromkeys([TUNED, read_space(TUNED).write({})], estimate)
    run.run()
    assert "autotune" not in run.text(run.result["winner"]) and not run.result.get("searches")
    assert len(run.result["candidates"]) == 2, "once, whatever stage comes next"
