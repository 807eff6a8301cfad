"""Which inputs a candidate is tried on, what hides in an average, and what an author is told about hidden inputs."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from project import ROOT
from strided_task import BY_STRIDES, LAID_OUT
from tritonsmith.evaluator.caller.audits.other_sizes import audit_other_sizes
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.oracle.checks.correctness import Trial, summarize
from tritonsmith.evaluator.oracle.checks.inputs import KINDS, redraw, stress_kinds
from tritonsmith.evaluator.oracle.checks.measure import error_stats
from tritonsmith.evaluator.oracle.checks.trials import describe_error
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task, Verdict
from tritonsmith.evaluator.tasks.files import load_task

GOOD = (ROOT / "tests/helpers/kernels/gru_batch.py").read_text()
IEEE = PrecisionClass.IEEE


HIDDEN = tuple(kind.name for kind in KINDS.values() if kind.hidden)
NATURAL = tuple(kind.name for kind in KINDS.values() if kind.natural)

# ---- distributions


def test_quick_takes_one_public_kind_and_strict_takes_all() -> None:
    """Next to the sided kind, quick takes one public kind by chance; strict takes all of them."""
    quick = {stress_kinds("quick") for _ in range(60)}
    assert {(len(kinds), kinds[0]) for kinds in quick} == {(2, "sided")} and len(quick) > 1
    assert not {kind for kinds in quick for kind in kinds} & set(HIDDEN)
    strict = {stress_kinds("strict") for _ in range(20)}
    assert {frozenset(kinds) for kinds in strict} == {frozenset({"sided", "ints", "tail", *HIDDEN})}
    assert len(strict) > 1  # in no fixed order


DRAWN = ["signed", "ints", "tail", "shifted", "large", "constant", "sided", "below", "above", "holes", "ends", "edges"]


@pytest.mark.parametrize("kind", DRAWN)
def test_a_kind_keeps_shape_and_type(kind: str) -> None:
    """A kind of input keeps shape and type, and leaves other inputs alone."""
    given = [torch.rand(6, 5, 32), torch.rand(7, dtype=torch.float16), torch.rand(()), torch.arange(9), torch.tensor([True, False])]
    drawn = redraw(kind, given, 11)
    assert [(one.shape, one.dtype) for one in drawn] == [(one.shape, one.dtype) for one in given]
    assert not torch.equal(drawn[0], given[0]) and drawn[0].is_contiguous()
    assert torch.equal(drawn[3], given[3]) and torch.equal(drawn[4], given[4])
    assert torch.equal(redraw(kind, given, 11)[0], drawn[0]) and not torch.equal(redraw(kind, given, 12)[0], drawn[0])


def test_what_each_kind_is_made_of() -> None:
    given = [torch.rand(64, 256)]
    (ints,), (tail,), (shifted,), (large,), (constant,) = (
        redraw(kind, given, 5) for kind in ("ints", "tail", "shifted", "large", "constant")
    )
    assert set(ints.unique().tolist()) == {-2.0, -1.0, 0.0, 1.0, 2.0}
    assert tail[:, -16:].std() > 5 * tail[:, :-16].std()
    assert shifted.mean(-1).std() > 1 and 20 < large.std() < 60
    assert bool((constant == constant[:, :1]).all()) and constant[:, 0].std() > 0.5


@pytest.mark.parametrize("kind", ["own", *DRAWN])
def test_a_kind_keeps_the_memory_layout_of_the_tasks_own_tensors(kind: str) -> None:
    turned, cut, spread = torch.rand(5, 7).t(), torch.rand(6, 9)[1:, ::2], torch.rand(4, 1, 3).expand(4, 6, 3)
    drawn = redraw(kind, [turned, cut, spread], 3)
    assert [one.shape for one in drawn] == [(7, 5), (5, 5), (4, 6, 3)]
    assert [one.stride() for one in drawn] == [turned.stride(), cut.stride(), spread.stride()]


def test_sided_kinds_put_values_on_one_side_of_zero() -> None:
    """The sided kinds put whole rows, or everything, on one side of zero."""
    rows = torch.rand(7, 200)
    (sided,), (below,), (above,) = (redraw(kind, [rows], 2) for kind in ("sided", "below", "above"))
    low, high = (sided < 0).all(1), (sided > 0).all(1)
    assert int(low.sum()) == 4 and int(high.sum()) == 3
    assert len({tuple((redraw("sided", [rows], seed)[0][:, 0] < 0).tolist()) for seed in range(9)}) > 1
    assert bool((below < -20).all()) and bool((above > 20).all())
    assert bool((redraw("sided", [torch.rand(1, 90)], 1)[0] < 0).all())


# ---- what hides in an average


def gru(steps: int = 64, **settings: object) -> tuple[torch.nn.GRU, torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    return torch.nn.GRU(16, 32, **settings), torch.rand(steps, 10, 16), torch.rand(1, 10, 32)  # type: ignore[arg-type]


def trial(got: list[torch.Tensor], own: list[torch.Tensor], oracle: list[torch.Tensor]) -> Trial:
    return Trial(error_stats(got, oracle), {IEEE: error_stats(own, oracle)})


def states(model: torch.nn.GRU, x: torch.Tensor, h0: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(x, h0)[0]
    return found


@pytest.mark.parametrize("lay", [lambda y: y, lambda y: y.transpose(0, 1), lambda y: y.flip(0)], ids=["time", "batch first", "reversed"])
def test_an_error_that_fades_is_not_averaged_away(lay: Callable[[torch.Tensor], torch.Tensor]) -> None:
    model, x, h0 = gru()
    own, wrong = states(model, x, h0), states(model, x, h0 + 5e-7)
    oracle = states(model.double(), x.double(), h0.double())
    found = trial([lay(wrong)], [lay(own)], [lay(oracle)])
    assert found.candidate.within_on_average(found.reference[IEEE])  # the error is there, and the average does not show it
    assert not found.meets(IEEE)
    assert ("last" if lay(oracle)[0].equal(oracle[-1]) else "first") in describe_error([found], IEEE)
    assert trial([lay(own)], [lay(own)], [lay(oracle)]).meets(IEEE)


def test_a_small_output_beside_a_large_one_is_judged_by_itself() -> None:
    torch.manual_seed(4)
    a, b = torch.randn(32, 64), torch.randn(64, 48)
    oracle = [1e6 * (a.double() @ b.double()), a.double().tanh()]
    own = [1e6 * (a @ b), a.tanh()]
    found = trial([own[0], own[1] * 1.001], own, oracle)
    assert found.candidate.within_on_average(found.reference[IEEE])
    assert not found.meets(IEEE)
    assert trial(own, own, oracle).meets(IEEE)


@pytest.mark.parametrize("seed", range(12))
def test_honest_sums_in_another_order_pass_in_every_part(seed: int) -> None:
    torch.manual_seed(seed)
    a, b = torch.randn(40, 300), torch.randn(300, 70)
    split = sum((a[:, i::5] @ b[i::5] for i in range(1, 5)), a[:, 0::5] @ b[0::5])
    assert trial([split], [a @ b], [a.double() @ b.double()]).meets(IEEE)
    running = a.t().contiguous()
    blocks = torch.cat([part.cumsum(0) for part in running.split(30)])
    for block in range(1, 10):
        blocks[30 * block : 30 * (block + 1)] += blocks[30 * block - 1]
    assert trial([blocks], [running.cumsum(0)], [running.double().cumsum(0)]).meets(IEEE)


# ---- what an author is told


def test_of_hidden_inputs_an_author_learns_the_place_only() -> None:
    oracle = [torch.full((16, 16), 8723.0, dtype=torch.float64)]
    own = error_stats([oracle[0].float()], oracle)
    wrong = oracle[0].float()
    wrong[3, 4] = 5512.0
    hidden = Trial(error_stats([wrong], oracle), {IEEE: own}, hidden=True)
    said = describe_error([hidden], IEEE)
    assert "[3, 4]" in said and "8723" not in said and "5512" not in said
    assert not any(kind in said for kind in HIDDEN)
    summary = summarize([hidden], IEEE)
    assert summary.worst_index == (3, 4) and summary.worst_expected is None and summary.worst_actual is None
    assert "8723" in describe_error([Trial(error_stats([wrong], oracle), {IEEE: own})], IEEE)


# ---- through the evaluator

NORM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(48)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(20, 48)]


def get_init_inputs():
    return []
"""
OWN_NORM = NORM.replace("class Model(", "class ModelNew(").split("def get_inputs")[0]
TWO_PASS = """
        centred = x - x.sum(-1, keepdim=True) / 48
        variance = (centred * centred).sum(-1, keepdim=True) / 48
        return centred * torch.rsqrt(variance + 1e-5) * self.norm.weight + self.norm.bias
"""


@pytest.fixture
def norm(tmp_path: Path) -> Task:
    path = tmp_path / "norm.py"
    path.write_text(NORM)
    return load_task(path)


def judged(evaluator: LocalEvaluator, task: Task, body: str) -> Verdict:
    source = OWN_NORM.replace("        return self.norm(x)\n", body.lstrip("\n"))
    assert source != OWN_NORM
    return evaluator.evaluate_now(task, source, "strict")


@pytest.mark.slow
def test_an_honest_normalisation_passes_every_kind(evaluator: LocalEvaluator, norm: Task) -> None:
    """Strict tries every kind of input, and an honest normalisation passes."""
    verdict = judged(evaluator, norm, TWO_PASS)
    assert verdict.status is Status.OK, verdict.message
    assert verdict.correctness is not None and len(NATURAL) + 2 <= verdict.correctness.trials <= 16


def test_an_answer_too_large_for_the_judge_is_an_answer(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    path = tmp_path / "total.py"
    path.write_text(NORM.replace("self.norm(x)", "x.double().sum()"))
    wrong = OWN_NORM.replace("self.norm(x)", "x.double().sum() if x.min() >= 0 else torch.tensor(1e200, dtype=torch.float64)")
    verdict = evaluator.evaluate_now(load_task(path), wrong)
    assert verdict.status is Status.INACCURATE and "1e+200" in verdict.message, verdict.message


def test_a_clipping_kernel_fails_on_the_hidden_half(evaluator: LocalEvaluator, norm: Task) -> None:
    """A kernel that clips values that its task never draws fails on the hidden half of the inputs."""
    verdict = judged(evaluator, norm, "        x = x.clamp(-60.0, 60.0)\n" + TWO_PASS.lstrip("\n"))
    assert verdict.status is Status.INACCURATE, verdict.message
    assert "others of the same shapes" in verdict.message and not any(kind in verdict.message for kind in HIDDEN)


@pytest.mark.slow
def test_weights_kept_from_the_first_call_fail_strictly(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    path = tmp_path / "scaled.py"
    path.write_text(NORM.replace("self.norm = nn.LayerNorm(48)", "self.norm = nn.Linear(48, 48)"))
    kept = "        self.kept = getattr(self, 'kept', None) if hasattr(self, 'kept') else self.norm.weight.clone()\n"
    source = OWN_NORM.replace("nn.LayerNorm(48)", "nn.Linear(48, 48)")
    wrong = source.replace("        return self.norm(x)\n", kept + "        return x @ self.kept.t() + self.norm.bias\n")
    assert wrong != source
    verdict = evaluator.evaluate_now(load_task(path), wrong, "strict")
    assert verdict.status is Status.INACCURATE, verdict.message


@pytest.mark.slow
def test_a_gru_that_is_wrong_in_its_first_steps_only_is_refused(evaluator: LocalEvaluator) -> None:
    task = load_task(ROOT / "benchmarks/tasks/39_gru.py", "small", {"num_layers": 1, "seq_len": 12, "input_size": 16, "hidden_size": 16})
    wrong = GOOD.replace("h0[layer].contiguous()", "(h0[layer] + 1e-6).contiguous()")
    assert wrong != GOOD
    verdict = evaluator.evaluate_now(task, wrong)
    assert verdict.status is Status.INACCURATE, verdict.message


@pytest.mark.slow
def test_a_candidate_gets_the_tasks_strides_and_offsets(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    """A candidate gets inputs with the strides and offsets of the task's own."""
    path = tmp_path / "laid_out.py"
    path.write_text(LAID_OUT)
    verdict = evaluator.evaluate_now(load_task(path), BY_STRIDES, "strict")
    assert verdict.status is Status.OK, verdict.message
    wrong = BY_STRIDES.replace("cut + row * c + column * d", "cut + row * columns + column")
    assert wrong != BY_STRIDES
    verdict = evaluator.evaluate_now(load_task(path), wrong)
    assert verdict.status is Status.INACCURATE, verdict.message


MIXED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, keep):
        scores = x.masked_fill(~keep, float("-inf"))
        order = scores.argmax(-1)
        return scores, torch.log(x - 0.5), x.sum(), x[:0], scores.isinf(), order - 1, torch.full((3,), -1)


def get_inputs():
    keep = torch.rand(6, 40) > 0.3
    keep[:, 0] = True
    return [torch.rand(6, 40), keep]


def get_init_inputs():
    return []
"""
SAME = MIXED.replace("class Model(", "class ModelNew(").split("def get_inputs")[0]


def test_unusual_outputs_are_matched(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    """Outputs that are not finite, scalar, empty or exact are matched with the reference's."""
    path = tmp_path / "mixed.py"
    path.write_text(MIXED)
    verdict = evaluator.evaluate_now(load_task(path), SAME)
    assert verdict.status is Status.OK, verdict.message
    assert verdict.correctness is not None and verdict.correctness.trials >= 2  # one is of its own kind
    verdict = evaluator.evaluate_now(load_task(path), SAME.replace('float("-inf")', "-3.0e38"))
    assert verdict.status is Status.INACCURATE and "output 0 " in verdict.message and "where -inf is expected" in verdict.message


# ---- other sizes

SCALED = """
import torch
from torch import nn

rows = 6
SHAPES = [{"rows": (7, 19)}]


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x) * 0.5


def get_inputs():
    return [torch.rand(rows, 40)]


def get_init_inputs():
    return []
"""
SCALE = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scaled(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * columns + column
    tl.store(out + place, tl.exp(tl.load(x + place, mask=column < columns)) * 0.5, mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scaled[(x.shape[0],)](x, out, 40, BLOCK=64)
        return out
"""


@pytest.mark.slow  # W14_hard_coded_shape of the corpus is its like
def test_a_kernel_for_one_size_fails_at_other_sizes(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    """A kernel for one size fails where its task allows other sizes."""
    path = tmp_path / "scaled.py"
    path.write_text(SCALED)
    task = load_task(path)
    verdict = evaluator.evaluate_now(task, SCALE, "strict")
    assert verdict.status is Status.OK, verdict.message
    assert verdict.timing is not None and verdict.environment["audit"]["other sizes"] == "right at 1 of them"
    fixed = SCALE.replace("(x.shape[0],)", "(6,)")
    verdict = evaluator.evaluate_now(task, fixed, "strict")
    assert verdict.status is Status.INACCURATE, verdict.message
    assert verdict.message.startswith("right at the task's size, wrong at another size that the task allows")
    assert not any(character.isdigit() for character in verdict.message)


def test_what_goes_wrong_at_another_size_is_not_told() -> None:
    task = Task(name="scaled", path="scaled.py", source=SCALED)
    told = Verdict(status=Status.WRONG_SHAPE, message="output 0 is float32[6, 40], the reference returns float32[17, 40]")
    asked: list[Task] = []

    def ask(variant: Task) -> Verdict:
        asked.append(variant)
        return told

    (found,) = audit_other_sizes(task, ask)
    assert found.status is Status.WRONG_SHAPE and found.sizes == ()
    assert not any(character.isdigit() for character in found.message + found.outcome)
    assert [7 <= int(one.overrides["rows"]) <= 19 for one in asked] == [True]
    refusal = "line 9: ValueError: this kernel is made for x float32[6, 40] on a CUDA device, and was given x float32[17, 40] on cuda:0"
    told = Verdict(status=Status.RUNTIME_ERROR, message=refusal)
    (found,) = audit_other_sizes(task, ask)
    assert found.outcome == "refuses to run" and found.message.startswith("right at the task's size, refuses to run at another size")
    assert not any(character.isdigit() for character in found.message)
