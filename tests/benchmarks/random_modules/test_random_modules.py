"""Random modules: the same for a seed, valid task files, judged as PyTorch's values say, and made smaller where they are wrong."""

import importlib.util
import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest
import torch

from project import ROOT
from tritonsmith.benchmarks.random_modules.corners import FixedOrder, Order
from tritonsmith.benchmarks.random_modules.digest import count_fates, read_rows
from tritonsmith.benchmarks.random_modules.draw import draw_module
from tritonsmith.benchmarks.random_modules.judge import Fate, Judged
from tritonsmith.benchmarks.random_modules.minimise import minimise
from tritonsmith.benchmarks.random_modules.module import Argument, RandomModule, Step, drop_unused
from tritonsmith.benchmarks.random_modules.rule import compare
from tritonsmith.benchmarks.random_modules.suite import ModuleRow, describe_end
from tritonsmith.benchmarks.random_modules.values import KINDS, draw_values, is_known, list_kinds

SEEDS = (
    3017, 3045, 3056, 3067, 3071, 3074, 3076, 3077, 3101, 3127, 3129, 3133, 3174, 3226, 3244, 3249,
    3276, 3282, 3283, 3285, 3287, 3291, 3302, 3308, 3382, 3384, 3405,
)
"""Seeds of modules that take the interpreter little time."""
SLOW = 8


def run_suite(path: Path, *options: str, seconds: int = 280) -> list[dict[str, object]]:
    """The rows of a run."""
    words = [sys.executable, "-W", "ignore", "-m", "tritonsmith.benchmarks.random_modules.suite", "--out", str(path), *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds, env=dict(os.environ))
    assert done.returncode == 0, done.stdout[-3000:] or done.stderr[-2000:]
    _, *rows = map(json.loads, path.read_text().splitlines())
    return rows


@pytest.mark.parametrize("seeds", [SEEDS[::18], pytest.param(SEEDS, marks=pytest.mark.slow)], ids=["some", "all"])
def test_modules_of_fixed_seeds_are_right(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    rows = run_suite(tmp_path / "rows.jsonl", "--seeds", ",".join(map(str, seeds)))
    assert [row["seed"] for row in rows] == list(seeds)
    assert sum(row["fate"] in ("right", "open") for row in rows) > 0.8 * len(seeds)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(SLOW))
def test_more_modules_are_right(part: int, tmp_path: Path) -> None:
    rows = run_suite(tmp_path / "rows.jsonl", "--seed", str(100_000 + 100 * part), "--count", "100", seconds=1150)
    assert len(rows) == 100


def test_a_seed_makes_one_module_and_a_task_file_that_runs() -> None:
    words = [sys.executable, "-c", "from tritonsmith.benchmarks.random_modules.draw import draw_module as d; print(d(3).write())"]
    elsewhere = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    module = draw_module(3)
    assert elsewhere.strip() == module.write().strip()
    space: dict[str, object] = {}
    exec(module.write(), space)
    result = space["Model"]()(*space["get_inputs"]())  # type: ignore[operator]
    assert len(result if isinstance(result, tuple) else (result,)) == len(module.outputs)


@pytest.mark.parametrize("layout", ["plain", "turned", "gaps", "shifted"])
def test_arguments_lie_in_memory_as_the_task_file_says(layout: str) -> None:
    argument = Argument("x0", (2, 3), torch.float32, layout)
    module = RandomModule((argument,), (Step(("v1",), "x0 + 1"),), ("v1",))
    (values,) = draw_values((argument,), "ends", 0)
    space: dict[str, object] = {}
    exec(module.write([values]), space)
    (written,), laid = space["get_inputs"](), argument.lay_out(values)  # type: ignore[operator]
    assert written.stride() == laid.stride() and torch.equal(written.nan_to_num(), values.nan_to_num())
    assert (layout == "plain") == (laid.is_contiguous() and laid.storage_offset() == 0)


def test_special_values_are_among_the_arguments() -> None:
    argument = Argument("x0", (400,), torch.float32)
    seen = {kind: draw_values((argument,), kind, 1)[0] for kind in KINDS}
    assert bool(seen["nan"].isnan().any()) and bool(seen["infinities"].isinf().any()) and bool(seen["zeros"].signbit().any())
    assert float(seen["ends"].abs().max()) == torch.finfo(torch.float32).max
    assert "ends" not in list_kinds("v1 = x0 @ x0") and list_kinds("v1 = x0 + x0") == list(KINDS)


def test_known_corners_are_left_out_by_the_values_that_reach_them() -> None:
    steps = (Step(("v1",), "torch.log(x0)"), Step(("v2",), "F.scaled_dot_product_attention(v1, v1, v1)"))
    module = RandomModule((Argument("x0", (1, 2, 2), torch.float32),), steps, ("v2",))
    assert is_known(module, [torch.zeros(1, 2, 2)]) and not is_known(module, [torch.ones(1, 2, 2)])


def test_steps_that_no_result_needs_are_dropped_and_writes_are_kept() -> None:
    steps = (
        Step(("v1",), "x0 + 1"), Step(("v2",), "x1 * 2"), Step((), "v1[..., 0] = 3"), Step(("v3",), "v2.add_(1)"),
        Step(("v4",), "v1.sum()"),
    )  # fmt: skip
    arguments = (Argument("x0", (2,), torch.float32), Argument("x1", (2,), torch.float32))
    module = drop_unused(RandomModule(arguments, steps, ("v4",)))
    assert module.text == "v1 = x0 + 1\nv1[..., 0] = 3\nv4 = v1.sum()\nreturn v4" and len(module.arguments) == 1


OWN = torch.tensor([0.0, 1.0, math.nan, 3.0])


@pytest.mark.parametrize(
    ("got", "others", "right"),
    [
        ([0.0, 1.0, math.nan, 3.0], [], True),
        ([0.0, 1.0 + 2.0**-23, math.nan, 3.0], [], True),
        ([-0.0, 1.0, math.nan, 3.0], [], False),
        ([-0.0, 1.0, math.nan, 3.0], [[-0.0, 1.0, math.nan, 3.0]], True),
        ([0.0, 1.0, 2.0, 3.0], [], False),
        ([0.0, math.inf, math.nan, 3.0], [[0.0, 2.0, math.nan, 3.0]], False),
        ([0.0, 1.0, math.nan, 2.0], [[0.0, 1.0, math.nan, 3.0001]], False),
        ([0.0, 1.0, math.nan, 2.0], [[0.0, 1.0, math.nan, 2.0]], True),
    ],
)
def test_an_element_is_right_that_pytorch_gives_in_some_run(got: list[float], others: list[list[float]], right: bool) -> None:
    found = compare([torch.tensor(got)], [OWN], [OWN.double()], [[torch.tensor(other)] for other in others])
    assert (not found.phrase) is right
    assert found.rough is (right and bool(others))


def test_whole_numbers_are_equal_unless_rounding_decides_them() -> None:
    own = torch.tensor([1, 2])
    assert compare([torch.tensor([1, 3])], [own], [own], []).phrase == "result 0: 3 for 2 at [1], 1 of 2 elements"
    assert compare([torch.tensor([1, 3])], [own], [own], [[torch.tensor([1, 3])]]).rough


def test_small_elements_of_a_product_are_judged_beside_the_large_ones() -> None:
    own, got = torch.tensor([1e3, 1e-12]), torch.tensor([1e3, 2e-12])
    assert compare([got], [own], [own.double()], []).phrase
    assert not compare([got], [own], [own.double()], [], together=True).phrase
    assert compare([torch.tensor([1e3, 1.0])], [own], [own.double()], [], together=True).phrase


def test_equal_elements_have_the_order_of_pytorch_or_of_the_kernel_and_no_other() -> None:
    own, first = torch.tensor([[7, 2]]), torch.tensor([[0, 2]])

    def judge(place: int) -> str:
        got = [torch.tensor([[place, 2]])]
        return compare(got, [own], [own], []).join(compare(got, [first], [first], [])).phrase

    assert [bool(judge(place)) for place in (0, 7, 3)] == [False, False, True]


def test_orders_of_equal_elements() -> None:
    values = torch.tensor([[1.0, 3.0, -0.0, 3.0, 0.0, 3.0]])
    with FixedOrder(Order.FIRST):
        assert torch.topk(values, 3).indices.tolist() == [[1, 3, 5]]
        assert torch.topk(values, 2, largest=False).indices.tolist() == [[2, 4]]
        assert torch.argsort(values, descending=True).tolist() == [[1, 3, 5, 0, 2, 4]]
    with FixedOrder(Order.GIVEN):
        given = torch.topk(values, 3)
    assert torch.equal(given.indices, torch.topk(values, 3).indices)


class Exponentials:
    """Stands for a judge whose author raises where a module has an exponential."""

    def plan(self, module: RandomModule, seed: int) -> Judged:
        """What became of it."""
        return Judged(Fate.CRASHED if "exp" in module.text else Fate.LEFT, "raises")


def test_a_fault_is_made_as_small_as_it_gets() -> None:
    steps = (
        Step(("v1",), "torch.relu(x0)"), Step(("v2",), "v1 * x1"), Step(("v3",), "v2.exp()"), Step(("v4",), "v3.sum()"),
        Step(("v5",), "x1 - 1"),
    )  # fmt: skip
    arguments = (Argument("x0", (3,), torch.float32, "gaps"), Argument("x1", (3,), torch.float32))
    module = RandomModule(arguments, steps, ("v4", "v5"))
    failure = minimise(Exponentials(), module, Judged(Fate.CRASHED, "raises"), 0)  # type: ignore[arg-type]
    assert [step.line for step in failure.module.steps] == ["v3 = v2.exp()", "v4 = v3.sum()"]
    assert failure.signature == "exp sum" and len(failure.values) == 1


def test_the_end_names_faults_by_kind_and_counts() -> None:
    rows = [ModuleRow(1, "right"), ModuleRow(2, "wrong", "1 for 2", "nan", signature="exp"), ModuleRow(3, "refused", "no recipe")]
    *_, refused, counts = describe_end(rows)
    assert describe_end(rows)[0] == "WRONG x1 [exp] seed 2, nan: 1 for 2"
    assert refused == "refused x1: no recipe" and "1 wrong (333 per thousand)" in counts


def load_page() -> ModuleType:
    """The script docs/operators.py as a module."""
    spec = importlib.util.spec_from_file_location("operators_page", ROOT / "docs" / "operators.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_kept_counts_and_names_every_fault() -> None:
    page, text = load_page(), (ROOT / "docs" / "operators.md").read_text()
    written = page.RANDOM_BEGIN + text.partition(page.RANDOM_BEGIN)[2].partition(page.RANDOM_END)[0] + page.RANDOM_END
    assert written == page.write_modules(page.read_modules()), "run: python docs/operators.py --write"
    assert all(str(fault["seed"]) in text for fault in page.read_modules()["after"]["faults"])


def test_counts_are_per_thousand_and_name_faults(tmp_path: Path) -> None:
    for name, fate in (("a", "wrong"), ("b", "right")):
        crashed = ModuleRow(2, "crashed", "raises", signature="exp")
        rows = [ModuleRow(1, fate), crashed, ModuleRow(3, "right"), ModuleRow(4, "refused", "no")]
        (tmp_path / name).write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    counts = count_fates(read_rows([tmp_path / "a", tmp_path / "b"]))
    assert counts["per_thousand"] == {"right": 500.0, "crashed": 250.0, "refused": 250.0} and counts["refusals"] == {"no": 1}
    assert [(fault["seed"], fault["operators"]) for fault in counts["faults"]] == [(2, "exp")]
