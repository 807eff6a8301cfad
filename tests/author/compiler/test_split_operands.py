"""fp32 on tensor cores: operands in two 16-bit halves keep 22 bits, sums are chopped. Right on every kind of inputs."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from project import ROOT
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.oracle.checks.correctness import MAX_FACTOR, RMS_FACTOR, accepted, reached_class
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import judge_outputs
from tritonsmith.evaluator.tasks.files import load_task

STEPS, DRAWS = 48, 4
Product = Callable[[Tensor, Tensor], Tensor]


@pytest.fixture(scope="module")
def session() -> LoadedTask:
    task = load_task(ROOT / "benchmarks/tasks/39_gru.py", overrides={"seq_len": STEPS})
    return LoadedTask(task, named_card("h200"), "cpu")


def split(values: Tensor) -> tuple[Tensor, Tensor]:
    """High and low half, in float64."""
    high = values.half().float()
    return high.double(), ((values - high) * 2048.0).half().double() / 2048.0


def on_tensor_cores(a: Tensor, b: Tensor) -> Tensor:
    """The product as the wavefront recipe does it: three partial products, sixteen terms at a time, each sum chopped to 24 bits."""
    (a_high, a_low), (b_high, b_low) = split(a), split(b)
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    for k in range(0, a.shape[1], 16):
        now = slice(k, k + 16)
        total += a_high[:, now] @ b_high[now] + a_high[:, now] @ b_low[now] + a_low[:, now] @ b_high[now]
        mantissa, exponent = torch.frexp(total)
        total = torch.ldexp(torch.trunc(mantissa * 2.0**24) / 2.0**24, exponent)
    return total.float()


def in_halves(a: Tensor, b: Tensor) -> Tensor:
    """Without the low halves: 11 bits."""
    return (split(a)[0] @ split(b)[0]).float()


def without_last(a: Tensor, b: Tensor) -> Tensor:
    """A loop that ends one term early."""
    return a[:, :-1] @ b[:-1]


def states(gru: nn.GRU, x: Tensor, h0: Tensor, product: Product) -> Tensor:
    """The top layer's states with another product in place of torch's."""
    size = gru.hidden_size
    for layer in range(gru.num_layers):
        w_ih, w_hh, b_ih, b_hh = (getattr(gru, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        given = product(x.reshape(-1, x.shape[-1]), w_ih.t()).view(*x.shape[:2], -1) + b_ih
        h, out = h0[layer], []
        for now in given:
            held = product(h, w_hh.t()) + b_hh
            reset = torch.sigmoid(now[:, :size] + held[:, :size])
            update = torch.sigmoid(now[:, size : 2 * size] + held[:, size : 2 * size])
            new = torch.tanh(now[:, 2 * size :] + reset * held[:, 2 * size :])
            h = new + update * (h - new)
            out.append(h)
        x = torch.stack(out)
    return x


def refusal(session: LoadedTask, kind: str, product: Product) -> str:
    """What breaks the rule, and by how much; empty where nothing does."""
    session.new_weights()
    x, h0 = session.draw(kind)
    with torch.no_grad():
        got = [states(session.model.gru, x, h0, product)]  # type: ignore[arg-type]
    trial, precision = judge_outputs(session, [x, h0], got, kind), session.task.precision
    if accepted(reached_class([trial]), precision):
        return ""
    mine, own = trial.candidate, trial.reference[precision]
    over = f"{mine.rms / own.rms:.3g} of {RMS_FACTOR} on average, {mine.max_abs / own.max_abs:.3g} of {MAX_FACTOR} at most"
    return f"{over}; part {mine.wrong_part(own)}; exact {mine.exact}, finite {trial.finite}"


SLOW = [pytest.param(kind, DRAWS, marks=pytest.mark.slow) for kind in ("signed", "tail", "shifted", "large", "edges", "holes")]


@pytest.mark.parametrize(("kind", "draws"), [("ends", 1), *SLOW])
def test_split_operands_are_fp32_on_every_kind_of_inputs(session: LoadedTask, kind: str, draws: int) -> None:
    for _ in range(draws):
        assert refusal(session, kind, on_tensor_cores) == ""


@pytest.mark.parametrize("kind", ["large", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ends", "edges"))])
@pytest.mark.parametrize("product", [in_halves, pytest.param(without_last, marks=pytest.mark.slow)])
def test_one_half_alone_and_a_lost_term_are_not(session: LoadedTask, kind: str, product: Product) -> None:
    assert refusal(session, kind, product)
