"""Examples written by hand: which fits a task, what may stand in them, and that they are right and compile at their full size."""

import ast
import asyncio

import pytest

from tritonsmith.author.examples import EXAMPLES
from tritonsmith.author.worked_examples import FOLDER, WORKED, read_worked
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import OpNode, PrecisionClass, Status, Task, TaskFacts, TensorSpec
from tritonsmith.evaluator.tasks.files import load_task, settle_task
from tritonsmith.prompts.kinds import Family
from tritonsmith.prompts.templates.families import families_of

MOST_LINES = 120


def facts_of(*nodes, half=False, **fields):
    return TaskFacts(ops=nodes, precision=PrecisionClass.HALF if half else PrecisionClass.IEEE, **fields)


def node(target, shape, op="call_function", **fields):
    return OpNode(name="n", op=op, target=target, outputs=(TensorSpec(shape=shape),), launches=1, **fields)


def chosen(facts, precision=PrecisionClass.IEEE):
    task = Task(name="t", path="t.py", source="", precision=precision)
    return EXAMPLES.name_examples(families_of(facts), task, facts)


@pytest.mark.parametrize("name", WORKED)
def test_an_example_is_short_and_calls_all_that_it_defines(name):
    source = (FOLDER / name / "kernel.py").read_text()
    tree = ast.parse(source)
    assert len(source.splitlines()) <= MOST_LINES and (FOLDER / name / "task.py").is_file()
    used = {inner.id for inner in ast.walk(tree) if isinstance(inner, ast.Name)}
    defined = {part.name for part in tree.body if isinstance(part, ast.FunctionDef)}
    constants = {target.id for part in tree.body if isinstance(part, ast.Assign) for target in part.targets if isinstance(target, ast.Name)}
    loaded = {inner.id for inner in ast.walk(tree) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)}
    assert defined <= used and constants <= loaded
    assert read_worked(name).source == source.rstrip()


def test_every_folder_is_in_the_table():
    assert {path.parent.name for path in FOLDER.glob("*/kernel.py")} == set(WORKED)


@pytest.mark.parametrize("name", [name for name in WORKED if name != "gated_recurrence"])
def test_an_example_fits_its_own_task(name):
    """Facts are those of the small size; sizes that decide are given by hand below."""
    task = load_task(FOLDER / name / "task.py")
    facts = probe(task)[0]
    task = settle_task(task, facts)
    assert EXAMPLES.name_examples(families_of(facts, task.source), task, facts)[0] == name


def test_sizes_and_types_decide_between_examples():
    large, few = node("torch.matmul", (4096, 4096), flops=1e11), node("torch.matmul", (8, 4096), flops=1e8)
    assert chosen(facts_of(large, flops=1e11)) == ("matmul_fp32",)
    assert chosen(facts_of(large, half=True), PrecisionClass.HALF) == ("matmul_epilogue",) == chosen(facts_of(large), PrecisionClass.TF32)
    assert chosen(facts_of(few, half=True), PrecisionClass.HALF) == ("skinny_product",)
    steps = [node("torch.mul", (16,), line=4) for _ in range(9)]
    assert chosen(facts_of(*steps))[0] == "gated_recurrence" and chosen(facts_of(*steps[:3])) == ()
    rows = [facts_of(node("torch.softmax", (4, size)), inputs=(TensorSpec(shape=(4, size)),)) for size in (1000, 100_000)]
    assert [chosen(facts)[0] for facts in rows] == ["norm_quantise", "long_softmax"]
    assert chosen(facts_of(node("conv", (2, 8, 9, 9), "call_module", module_type="Conv2d"), modules={"Conv2d": 1})) == ()


def test_no_example_of_another_kind_is_shown():
    """Pools, extremes, scans, losses and networks of convolutions get the rules' short kernels."""
    pool = node("pool", (2, 8, 9, 9), "call_module", module_type="MaxPool2d")
    assert chosen(facts_of(pool, modules={"MaxPool2d": 1})) == ()
    for target in ("torch.amax", "torch.cumsum", "torch.sum", "torch.nn.functional.triplet_margin_loss"):
        assert chosen(facts_of(node(target, (8, 100)), inputs=(TensorSpec(shape=(8, 100)),))) == (), target
        assert chosen(facts_of(node(target, (8, 100_000)), inputs=(TensorSpec(shape=(8, 100_000)),))) == (), target
    assert chosen(facts_of(modules={"Conv2d": 2, "GroupNorm": 2})) == ()
    assert chosen(facts_of(node("torch.softmax", (4096, 100_000)), inputs=(TensorSpec(shape=(4096, 100_000)),))) == ()
    assert chosen(facts_of(modules={"LayerNorm": 1})) == ("norm_quantise",)


@pytest.mark.parametrize("family", Family)
def test_no_example_for_16_bits_splits_fp32_operands(family):
    facts = TaskFacts(modules={"GRU": 1, "Linear": 1, "Conv2d": 1}, serial_steps=9, precision=PrecisionClass.HALF, flops=1e12)
    task = Task(name="t", path="t.py", source="", precision=PrecisionClass.HALF)
    for name in EXAMPLES.name_examples((family,), task, facts):
        assert name in WORKED and "2048" not in read_worked(name).source


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKED)
def test_examples_are_right_and_compile_at_full_size(evaluator: LocalEvaluator, name: str) -> None:
    kernel = KernelText.of(read_worked(name).source)
    task = load_task(FOLDER / name / "task.py", "small")
    task = settle_task(task, asyncio.run(evaluator.describe(task)))
    verdict = asyncio.run(evaluator.evaluate(task, kernel))
    assert verdict.status is Status.OK and not verdict.facts.races, verdict.message
    full = load_task(FOLDER / name / "task.py")
    assert asyncio.run(evaluator.read_code(full, kernel))
