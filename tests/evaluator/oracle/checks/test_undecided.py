"""Elements that rounding decides may be what the reference may give; all others must be right."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.oracle.checks import undecided
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import judge_outputs
from tritonsmith.evaluator.tasks.files import load_task

TASK = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, {arguments}):
{body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""


def write_task(arguments: str, body: str, inputs: str) -> str:
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    return TASK.format(arguments=arguments, body=lines, inputs=inputs)


SPIKES = write_task(
    "x, w",
    """
v, out = torch.zeros_like(x[0]), []
for t in range(x.shape[0]):
    v = 0.9 * v + x[t] @ w
    s = (v > 0.5).to(v.dtype)
    v = v - s
    out.append(s)
return torch.stack(out).mean(0), v
""",
    "torch.randn(8, 64, 48), torch.randn(48, 48) / 7",
)
ROUTER = write_task("x, w", "return torch.topk(x @ w, 4)", "torch.randn(200, 64), torch.randn(64, 16)")
CODES = write_task(
    "x, r", "h = x + r\ns = h.abs().amax(-1, keepdim=True).float() / 127.0\nreturn torch.round(h.float() / s).to(torch.int8), s",
    "torch.randn(256, 512).{0}(), torch.randn(256, 512).{0}()",
)  # fmt: skip
COMPARED = write_task("x", "return torch.where(x > 0.5, 2.0 * x, x)", "torch.randint(0, 9, (64, 64)) / 8.0")
LARGEST = write_task("x", "return x.argmax(-1)", "torch.randint(0, 9, (64, 64)).float()")
MASKED = write_task("x, w", "y = x @ w\nreturn torch.where(y > 0.25, y, 0.0)", "torch.randn(256, 32), torch.randn(32, 512)")


class Setting(NamedTuple):
    """A task, its inputs, and what its reference gives there."""

    loaded: LoadedTask
    tensors: list[torch.Tensor]

    @property
    def own(self) -> list[torch.Tensor]:
        return self.loaded.reference_outputs(self.tensors, self.loaded.task.precision)

    def accepts(self, *outputs: torch.Tensor) -> bool:
        return judge_outputs(self.loaded, self.tensors, list(outputs)).meets(self.loaded.task.precision)


@pytest.fixture
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    (path := tmp_path / "task.py").write_text(request.param)
    loaded = LoadedTask(load_task(path), named_card("h200"), "cpu")
    yield Setting(loaded, loaded.draw("own"))
    loaded.close()


def run_spikes(x: torch.Tensor, w: torch.Tensor, lean: float = 0.0, step: int = -1, lane: tuple[int, int] = (0, 0)) -> list[torch.Tensor]:
    """The spiking layer in fp32, its sums in another order; a lane's potential may lean to one side in one step."""
    v, out = torch.zeros_like(x[0]), []
    for number, inputs in enumerate(x):
        v = 0.9 * v + (inputs[:, 24:] @ w[24:] + inputs[:, :24] @ w[:24])
        if number == step:
            v[lane] += lean
        spike = (v > 0.5).float()
        v = v - spike
        out.append(spike)
    return [torch.stack(out).mean(0), v]


@pytest.mark.parametrize("setting", [SPIKES], indirect=True)
def test_a_flip_at_a_tie_is_followed_in_its_lane_alone(setting: Setting) -> None:
    x, w = setting.tensors
    x[0, 3] += (0.5 - float(x[0, 3] @ w[:, 5])) * w[:, 5] / w[:, 5].square().sum()  # the first potential of one lane is at the threshold
    below, above = (run_spikes(x, w, lean, 0, (3, 5)) for lean in (-1e-6, 1e-6))
    assert not torch.equal(torch.stack(below), torch.stack(above)) and setting.accepts(*below) and setting.accepts(*above)
    assert not setting.accepts(*run_spikes(x, w, -0.3, 6, (9, 9)))  # no rounding moves another lane as far
    below[1][3, 6] += 0.01
    assert not setting.accepts(*below)


@pytest.mark.parametrize("setting", [ROUTER], indirect=True)
def test_places_of_nearly_equal_values_may_be_exchanged(setting: Setting) -> None:
    w = setting.tensors[1]
    w[:, 3], w[:, 12] = w[:, 8] * (1.0 + 2.0**-23), w[:, 8] * (1.0 - 2.0**-23)
    values, places = setting.own
    row = int((places == 8).any(-1).nonzero()[0])
    for other in (3, 12):
        swapped = places.clone()
        swapped[row] = torch.where(places[row] == 8, other, torch.where(places[row] == other, 8, places[row]))
        assert setting.accepts(values, swapped)
    wrong = places.clone()
    wrong[row, [0, 3]] = places[row, [3, 0]]  # the values there are far apart
    assert not setting.accepts(values, wrong)


@pytest.mark.parametrize("setting", [CODES.format("float"), pytest.param(CODES.format("bfloat16"), marks=pytest.mark.slow)], indirect=True)
def test_codes_of_a_row_may_be_rounded_either_way_at_a_tie_only(setting: Setting) -> None:
    x, r = setting.tensors
    for h in ((x.double() + r.double()).float(), (x + r).float()):  # the sum rounded to the inputs' type, or not
        scale = h.abs().amax(-1, keepdim=True) / 127.0
        assert setting.accepts(torch.round(h * (1.0 / scale)).to(torch.int8), scale)
        wrong_scale = scale * 1.001
        assert not setting.accepts(torch.round(h / wrong_scale).to(torch.int8), wrong_scale)
        assert not setting.accepts(torch.round(h / wrong_scale).to(torch.int8), scale)
        codes = torch.round(h / scale).to(torch.int8)
        codes[100, 17] += 3 if codes[100, 17] < 0 else -3
        assert not setting.accepts(codes, scale)


@pytest.mark.parametrize("setting", [CODES.format("bfloat16").replace("256, 512", "4, 32")], indirect=True)
def test_a_tie_that_only_the_types_show_is_found_by_any_luck(setting: Setting) -> None:
    """63.6 is rounded to 63.5 in bfloat16, which is a tie; in float64 it is none."""
    x, r = setting.tensors
    x[0], r[0] = 0.0, 0.0
    x[0, 0], x[0, 5], r[0, 5] = 127.0, 63.5, 0.1
    codes, scale = setting.own
    assert float(codes[0, 5]) == 64
    codes[0, 5] = 63
    for seed in (52, 67, 82, 91):  # under which it falls the same way eight times
        torch.manual_seed(seed)
        assert setting.accepts(codes, scale)


@pytest.mark.parametrize("setting", [write_task("x", "return torch.round(x / 2)", "torch.ones(64, 64)")], indirect=True)
def test_of_thousands_of_ties_each_shows_both_sides_in_few_runs(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run and its mirror move each value both ways, so none is left to luck. By chance 16 of these fall one way in eight runs."""
    monkeypatch.setattr(undecided, "MOST_RUNS", 8)
    assert all(setting.accepts(torch.full((64, 64), value)) for value in (0.0, 1.0))
    assert not setting.accepts(torch.full((64, 64), 2.0))


@pytest.mark.parametrize("setting", [MASKED], indirect=True)
def test_values_at_a_threshold_may_be_kept_or_dropped(setting: Setting) -> None:
    """One of 131,072 values that is dropped away from the threshold is refused."""
    x, w = setting.tensors
    x[7] += (0.25 - float(x[7] @ w[:, 9])) * w[:, 9] / w[:, 9].square().sum()
    right = x[:, 16:] @ w[16:] + x[:, :16] @ w[:16]
    kept = right.where(right > 0.25, 0.0)
    for value in (0.0, float(right[7, 9])):
        kept[7, 9] = value
        assert setting.accepts(kept)
    row, column = (int(part) for part in ((right > 0.2501) & (right < 0.26)).nonzero()[0])
    kept[row, column] = 0.0
    assert not setting.accepts(kept)


@pytest.mark.parametrize("setting", [MASKED.replace("32)", "32).half()").replace("512)", "512).half()")], indirect=True)
def test_a_jump_far_below_the_largest_value_is_settled_too(setting: Setting) -> None:
    """The products reach 28 and the threshold is 0.25; a kernel compares in float32, where PyTorch compares in float16."""
    x, w = (tensor.float() for tensor in setting.tensors)
    product = x @ w
    assert setting.accepts(product.where(product > 0.25, 0.0).half())
    assert not setting.accepts(product.where(product > 0.3, 0.0).half())


@pytest.mark.parametrize("setting", [COMPARED], indirect=True)
def test_inputs_that_are_compared_as_they_are_given_are_decided(setting: Setting) -> None:
    (x,) = setting.tensors
    assert setting.accepts(x.where(x <= 0.5, 2.0 * x)) and not setting.accepts(x.where(x < 0.5, 2.0 * x))


@pytest.mark.parametrize("setting", [LARGEST], indirect=True)
def test_of_equal_inputs_the_first_is_the_largest(setting: Setting) -> None:
    """PyTorch promises that of argmax and max."""
    (x,) = setting.tensors
    assert setting.accepts(x.argmax(-1)) and not setting.accepts(63 - x.flip(-1).argmax(-1))


TOP = write_task("x", "return torch.topk(x, 4)", "torch.randint(0, 9, (64, 32)).float()")
SORTED = write_task("x", "return torch.sort(x, -1)", "torch.randint(0, 9, (64, 32)).float()")


@pytest.mark.parametrize("setting", [TOP], indirect=True)
def test_a_place_is_right_where_the_value_there_is(setting: Setting) -> None:
    """Of equal values topk may name any, each once, and no other place between those of equal values."""
    (x,) = setting.tensors
    first = torch.sort(x, descending=True, stable=True)
    last = 31 - torch.sort(x.flip(-1), descending=True, stable=True).indices
    values, places = first.values[:, :4].contiguous(), first.indices[:, :4].contiguous()
    assert setting.accepts(values, places) and setting.accepts(values, last[:, :4].contiguous())
    smaller, twice = places.clone(), places.clone()
    smaller[7, 1], twice[7, 1] = first.indices[7, 20], places[7, 0]
    assert not setting.accepts(values, smaller) and not setting.accepts(values, twice)


@pytest.mark.parametrize("setting", [SORTED], indirect=True)
def test_equal_values_may_be_sorted_in_any_order(setting: Setting) -> None:
    (x,) = setting.tensors
    stable, reverse = torch.sort(x, stable=True), 31 - torch.sort(x.flip(-1), stable=True).indices
    assert setting.accepts(*stable) and setting.accepts(stable.values, reverse)
    wrong = stable.indices.clone()
    wrong[3, [2, 30]] = stable.indices[3, [30, 2]]
    assert not setting.accepts(stable.values, wrong)


@pytest.mark.parametrize("setting", [SORTED.replace("-1)", "dim=-1, stable=True)")], indirect=True)
def test_a_stable_sort_has_one_order(setting: Setting) -> None:
    (x,) = setting.tensors
    stable, reverse = torch.sort(x, stable=True), 31 - torch.sort(x.flip(-1), stable=True).indices
    assert setting.accepts(*stable) and not setting.accepts(stable.values, reverse)
