"""A card with noise for tests of tuning searches: a kernel whose best constants are known, races about it, and verdicts."""

import math
import re
from collections.abc import Mapping

import numpy as np

from project import ROOT
from tritonsmith.evaluator.oracle.timing.halving import run_race
from tritonsmith.evaluator.protocol import Fate, RaceReport, RaceRow
from tritonsmith.evaluator.schema import Comparison, TimingKind
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

TASK = ROOT / "examples/recorded_run/task.py"
"""Any task will do: nothing runs."""
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
    if "BM, BN, BK" not in text:  # the module itself, which is asked about as well
        return 0.3
    steps = sum(abs(math.log2(constants_of(text)[name] / best)) for name, best in BEST.items())
    return 0.9**steps * (0.98 if "maxnreg" in text or "eviction" in text else 1.0)


class Card:
    """A card with noise: races texts, and prunes those whose tiles are too large for it."""

    def __init__(self, seed=0, speed=speed_of):
        self.random, self.speed = np.random.default_rng(seed), speed
        self.races = []

    def __call__(self, incumbent, entrants, keep):
        self.races.append((incumbent.sha, [entrant.sha for entrant in entrants]))
        large = {entrant.sha for entrant in entrants if self.is_large(entrant.text)}
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

    def is_large(self, text):
        return constants_of(text)["BM"] * constants_of(text)["BN"] > 128 * 256

    def call(self, text):
        return 1.0 / self.speed(text) * float(1.0 + 0.005 * self.random.standard_normal())


class RowCard(Card):
    """A card for the study's softmax: longer tiles pay only with as much work per thread, and more warps alone cost."""

    def __init__(self, seed=0):
        super().__init__(seed, speed=lambda text: row_speed(*row_constants(text)))

    def is_large(self, text):
        tile, warps = row_constants(text)
        return tile / (32 * warps) > 64


def row_constants(text):
    """Tile and warps of a text."""
    return tuple(int(re.search(pattern, text)[1]) for pattern in (r'"BLOCK": (\d+)', r'"num_warps": (\d+)'))


def row_speed(tile, warps):
    """1 for the untuned constants."""
    return (1.0 + 0.15 * min(3.0, math.log2(tile / 1024))) * (1.0 - 0.12 * math.log2(tile / (32 * warps * 8)) ** 2)


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


def judge_with(card):
    """An evaluator with this card."""
    judge = ScriptedEvaluator(Verdicts(card.speed), racer=card)
    judge.hardware = judge.hardware.model_copy(update={"present": True})
    return judge
