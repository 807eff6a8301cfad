"""Tuning by a search, through the graph: what is proposed, pruned, raced and judged, and that it never ends below what it began with."""

import math
import re
from collections.abc import Mapping

import numpy as np
import pytest

from tritonsmith.evaluator.oracle.timing.halving import run_race
from tritonsmith.evaluator.schema import Comparison, TimingKind
from tritonsmith.evaluator.timed_race import Fate, RaceReport, RaceRow
from tritonsmith.graph.searches import Tuning
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.evaluators.scripted import scripted_verdict

KERNEL = '''
import torch
import triton
import triton.language as tl

BM, BN, BK = 64, 64, 32


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    across = GROUP * tl.cdiv(N, BN)
    first = pid // across * GROUP
    m = (first + pid % GROUP) * BM + tl.arange(0, BM)
    n = (pid % across) // GROUP * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        total += tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]))
    tl.store(c + m[:, None] * N + n[None, :], total)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty(1024, 512, device=a.device)
        grid = (triton.cdiv(1024, BM) * triton.cdiv(512, BN),)
        product[grid](a, b, c, 1024, 512, a.shape[1], BM, BN, BK, 4, num_warps=4, num_stages=2)
        return c
'''
CONFIGS = '[triton.Config({"BK": 16}, num_warps=2), triton.Config({"BK": 64}, num_warps=8)]'
TUNED = KERNEL.replace("\n@triton.jit", f'\n@triton.autotune({CONFIGS}, key=["M"])\n@triton.jit')
TUNED = TUNED.replace("BM, BN, BK, 4, num_warps=4, num_stages=2)", "BM, BN, GROUP=4)")
BEST = {"BM": 128, "BN": 256, "BK": 64, "GROUP": 8, "num_warps": 8, "num_stages": 4}


def constants_of(text):
    (tiles,) = re.findall(r"BM, BN, BK = (\d+), (\d+), (\d+)", text)
    found = dict(zip(("BM", "BN", "BK"), map(int, tiles), strict=True)) | {"GROUP": 4, "num_warps": 4, "num_stages": 3}
    launch = text[text.index("product[grid]") :]
    found |= {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", launch) if name in BEST}
    return found | ({"GROUP": int(group[0])} if (group := re.findall(r"BK, (\d+), num", launch)) else {})


def speed_of(text):
    """1 for the best constants, and a tenth less for each step away from them; an autotuned text is as fast as its best configuration."""
    steps = sum(abs(math.log2(constants_of(text)[name] / best)) for name, best in BEST.items())
    return 0.9**steps * (0.98 if "maxnreg" in text or "eviction" in text else 1.0)


class Card:
    """A card with noise: races texts, and prunes those whose tiles are too large for it."""

    def __init__(self, seed=0, speed=speed_of):
        self.random, self.speed = np.random.default_rng(seed), speed
        self.races = []

    def __call__(self, incumbent, entrants, keep):
        self.races.append((incumbent.sha, [entrant.sha for entrant in entrants]))
        large = {entrant.sha for entrant in entrants if constants_of(entrant.text)["BM"] * constants_of(entrant.text)["BN"] > 128 * 256}
        texts = {entrant.sha: entrant.text for entrant in entrants if entrant.sha not in large}
        standings = run_race(list(texts), lambda sha, first: (self.call(incumbent.text), self.call(texts[sha])), keep)
        rows = [
            RaceRow(sha=entrant.sha, fate=Fate.PRUNED, reason="shared memory") if entrant.sha in large
            else RaceRow(
                sha=entrant.sha, fate=Fate.KEPT if standings[entrant.sha].left_after is None else Fate.SLOWER,
                ratio=standings[entrant.sha].ratio, interval=standings[entrant.sha].interval, pairs=len(standings[entrant.sha].ratios),
            )
            for entrant in entrants
        ]  # fmt: skip
        return RaceReport(incumbent=incumbent.sha, kind=TimingKind.MEASURED, rows=tuple(rows), seconds=1.0)

    def call(self, text):
        return 1.0 / self.speed(text) * float(1.0 + 0.005 * self.random.standard_normal())


class Verdicts(Mapping):
    """A measured verdict about any text."""

    def __init__(self, speed):
        self.speed = speed

    def __getitem__(self, text):
        score = 3.0 * self.speed(text)
        return scripted_verdict(score, comparison=Comparison.FASTER if score > 1.02 else Comparison.SLOWER)

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0


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


def test_an_autotuned_kernel_ends_with_plain_constants(script):
    run, _ = searched(script, text=TUNED)
    winner = run.text(run.result["winner"])
    assert "autotune" not in winner and "num_warps=8" in winner and "BK=64" in winner


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
