"""Which roundings of an LSTM in two directions show in its result: `python -m tritonsmith.benchmarks.accuracy.states`. Needs no card.

Task 38 (6 layers, 512 steps, the last step through a linear layer) is computed in fp32 with some operands rounded to TF32, and compared
with float64. Inputs and initial states are drawn as some of the judge's kinds draw them. Each row is one kind of inputs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tritonsmith.benchmarks.host import print_line
from tritonsmith.evaluator.oracle.checks.loaded_task import round_to_tf32

_INPUTS, _HIDDEN, _LAYERS, _BATCH, _STEPS, _OUTPUTS = 128, 256, 6, 10, 512, 10
_LARGE = 40.0
Rounding = Callable[[Tensor], Tensor]
KINDS: dict[str, Callable[[tuple[int, ...]], Tensor]] = {
    "signed": lambda shape: torch.randn(shape),
    "large": lambda shape: _LARGE * torch.randn(shape),
    "above": lambda shape: torch.randn(shape) + _LARGE,
    "ints": lambda shape: torch.randint(-2, 3, shape).float(),
}
"""What draws the floating inputs of a kind."""


def _keep(values: Tensor) -> Tensor:
    return values


ROUNDED: dict[str, tuple[Rounding, Rounding, Rounding]] = {
    "nothing": (_keep, _keep, _keep),
    "linear layer": (_keep, _keep, round_to_tf32),
    "linear layer, inputs of layers": (round_to_tf32, _keep, round_to_tf32),
    "linear layer, states": (_keep, round_to_tf32, round_to_tf32),
    "all": (round_to_tf32, round_to_tf32, round_to_tf32),
}
"""Roundings of the layers' inputs, of the states, and ahead of the linear layer, each with their weights."""


def run_layers(lstm: nn.LSTM, x: Tensor, h0: Tensor, c0: Tensor, inputs: Rounding, states: Rounding) -> Tensor:
    """The last step of the top layer [batch, 2 hidden], of x [batch, steps, inputs]."""
    sequence = x.transpose(0, 1)
    for layer in range(lstm.num_layers):
        found = []
        for direction in range(2):
            end = f"_l{layer}{('', '_reverse')[direction]}"
            w_ih, w_hh, b_ih, b_hh = (getattr(lstm, f"{name}{end}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            gates = inputs(sequence.reshape(-1, sequence.shape[-1])) @ inputs(w_ih).t() + (b_ih + b_hh)
            given, weights = gates.view(*sequence.shape[:2], -1), states(w_hh).t().contiguous()
            h, c, out = h0[2 * layer + direction], c0[2 * layer + direction], [h0[0]] * len(given)
            for step in range(len(given)) if direction == 0 else reversed(range(len(given))):
                enter, forget, new, leave = (given[step] + states(h) @ weights).chunk(4, 1)
                c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(new)
                h = out[step] = torch.sigmoid(leave) * torch.tanh(c)
            found.append(torch.stack(out))
        sequence = torch.cat(found, 2)
    return sequence[-1]


@torch.no_grad()
def main() -> int:
    """Print a table; the errors are root mean squares as a share of the float64 result."""
    torch.manual_seed(0)
    lstm, linear = nn.LSTM(_INPUTS, _HIDDEN, _LAYERS, batch_first=True, bidirectional=True), nn.Linear(2 * _HIDDEN, _OUTPUTS)
    print_line(f"| inputs | {' | '.join(ROUNDED)} |")
    for kind, draw in KINDS.items():
        state = (2 * _LAYERS, _BATCH, _HIDDEN)
        x, h0, c0 = draw((_BATCH, _STEPS, _INPUTS)), draw(state), draw(state)
        exact = linear.double()(lstm.double()(x.double(), (h0.double(), c0.double()))[0][:, -1])
        lstm.float(), linear.float()
        errors = []
        for inputs, states, last in ROUNDED.values():
            top = run_layers(lstm, x, h0, c0, inputs, states)
            result = last(top) @ last(linear.weight).t() + linear.bias
            errors.append(float((result.double() - exact).norm() / exact.norm()))
        print_line(f"| {kind} | {' | '.join(f'{error:.1e}' for error in errors)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
