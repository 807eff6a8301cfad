"""The built-in author: which tasks it can write, what it renders, what its analysis says, how it mends and tunes."""

import ast
import asyncio
from typing import Any

import pytest

from recipe_cases.regions import RegionCase
from tritonsmith.author.book import match
from tritonsmith.author.built_in import RecipeAuthor
from tritonsmith.author.families.chain.plan import ChainPlan
from tritonsmith.author.families.recurrent.plan import RecurrentPlan
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import (
    Candidate,
    Correctness,
    Hardware,
    KernelFacts,
    LaunchFacts,
    OpNode,
    PrecisionClass,
    Stage,
    Status,
    Task,
    TaskFacts,
    TensorSpec,
    Timing,
    TimingKind,
    Verdict,
)
from tritonsmith.evaluator.texts.advice.advise import advise
from tritonsmith.prompts.analysis import Category
from tritonsmith.prompts.author import Attempt, Brief, Draft

H200 = CARDS["h200"]
MODEL = """
from torch import nn
class Model(nn.Module):
    def __init__(self, input_size, hidden_size, num_layers=3, bias=True, batch_first=False):
        super().__init__()
        self.gru = nn.GRU(input_size, hidden_size, num_layers, bias=bias, batch_first=batch_first)
"""


def ref(name: str) -> dict[str, str]:
    return {"ref": name}


def node(name: str, op: str, target: str, *args: Any, **rest: Any) -> OpNode:
    return OpNode(name=name, op=op, target=target, args=args, **rest)


def task(source: str = MODEL, precision: PrecisionClass = PrecisionClass.IEEE) -> Task:
    return Task(name="a_task", path="a_task.py", source=source, precision=precision)


def gru_facts(index: int = 0, hidden: int = 256, layers: int = 6, steps: int = 512, batch: int = 10, **attributes: Any) -> TaskFacts:
    sizes = {"input_size": 128, "hidden_size": hidden, "num_layers": layers, "bias": True, "batch_first": False, "bidirectional": False}
    shape = (batch, steps, 128) if attributes.get("batch_first") else (steps, batch, 128)
    out = (steps, batch, hidden) if index == 0 else (layers, batch, hidden)
    return TaskFacts(
        inputs=(TensorSpec(shape=shape), TensorSpec(shape=(layers, batch, hidden))),
        outputs=(TensorSpec(shape=out),),
        returns="the states",
        parameters={f"gru.weight_{side}_l{n}": TensorSpec(shape=(3 * hidden, hidden)) for n in range(layers) for side in ("ih", "hh")},
        ops=(
            node("x", "placeholder", "x"),
            node("h0", "placeholder", "h0"),
            node("gru", "call_module", "gru", ref("x"), ref("h0"), module_type="GRU", attributes=sizes | attributes),
            node("getitem", "call_function", "_operator.getitem", ref("gru"), index),
            node("output", "output", "output", ref("getitem")),
        ),
        flops=2.0 * steps * batch * layers * 3 * hidden * 2 * hidden,
        min_bytes=2.8e7,
        serial_steps=layers * steps,
        modules={"GRU": 1},
    )


def chain_facts(
    *middle: OpNode, inputs: tuple[TensorSpec, ...], out: tuple[int, ...], parameters: dict[str, TensorSpec] | None = None
) -> TaskFacts:
    holders = tuple(node(f"x{n}", "placeholder", f"x{n}") for n in range(len(inputs)))
    end = node("output", "output", "output", ref(middle[-1].name))
    ops = (*holders, *middle, end)
    return TaskFacts(inputs=inputs, outputs=(TensorSpec(shape=out),), parameters=parameters or {}, ops=ops, min_bytes=1e8, flops=1e8)


def attempt(draft: Draft, ms: float = 1.0, launches: int = 1, programs: int = 1, status: Status = Status.OK, message: str = "") -> Attempt:
    candidate = Candidate(id="c", sha="0", stage=Stage.SEED, recipe=draft.recipe, settings=draft.settings)
    works = status is Status.OK
    facts = LaunchFacts(launches_per_forward=launches, kernels=(KernelFacts(name="k", launches=launches, grid=(programs, 1, 1)),))
    timing = Timing(kind=TimingKind.MEASURED, median_ms=ms, baselines_ms={"eager": 1.0}, baseline="eager", score=0.1, score_eager=0.1)
    good = Correctness(max_abs_err=0, mean_abs_err=0, err_vs_oracle=0, reference_err_vs_oracle=0)
    verdict = Verdict(
        status=status, message=message, facts=facts, timing=timing if works else None, correctness=good if works else None
    )  # fmt: skip
    return Attempt(candidate=candidate, source=draft.source, verdict=verdict)


def brief(facts: TaskFacts, **rest: Any) -> Brief:
    return Brief(task=rest.pop("task", task()), facts=facts, hardware=rest.pop("hardware", H200), **rest)


def seed(facts: TaskFacts, branch: int = 0, **rest: Any) -> Draft:
    return asyncio.run(RecipeAuthor().seed(brief(facts, branch=branch, **rest)))


def assignments(source: str) -> dict[str, Any]:
    """Module-level constants of a rendered kernel."""
    found: dict[str, Any] = {}
    for item in ast.parse(source).body:
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name) and isinstance(item.value, ast.Constant):
            found[item.targets[0].id] = item.value.value
    return found


def test_seeds_differ_by_branch_and_repeat_themselves() -> None:
    plain, persistent, best, again = (seed(gru_facts(), branch) for branch in range(4))
    assert (plain.recipe, persistent.recipe, best.recipe) == ("recurrent_per_step", "recurrent_persistent_batch", "recurrent_wavefront")
    assert again.recipe == plain.recipe and plain.source != again.source, "a fourth branch tries other settings"
    assert seed(gru_facts(), 0) == plain


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("level", ["recurrent_per_step", "recurrent_persistent_batch", "recurrent_wavefront"])
def test_gru_kernels_are_complete_modules_without_a_library_gru(level: str, index: int) -> None:
    found = match(task(), gru_facts(index), H200)
    assert found is not None
    recipe = found.recipe(level)
    assert recipe is not None
    source = recipe.render(found.plan, recipe.defaults(found.plan, H200, PrecisionClass.IEEE) or {})
    tree = ast.parse(source)
    calls = {ast.unparse(item.func) for item in ast.walk(tree) if isinstance(item, ast.Call)}
    assert not calls & {"nn.GRU", "nn.GRUCell", "torch.matmul", "torch.addmm", "F.linear"}
    (module,) = [item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == "ModelNew"]
    init, forward = (item for item in module.body if isinstance(item, ast.FunctionDef) and item.name in ("__init__", "forward"))
    assert ast.unparse(init.args) == "self, input_size, hidden_size, num_layers=3, bias=True, batch_first=False"
    assert ast.unparse(forward.args) == "self, x, h0"
    assert f"return {('sequence', 'last')[index]}" in ast.unparse(forward)


def test_every_wavefront_release_follows_a_barrier() -> None:
    """Every exchange of a wavefront has a barrier before its release."""
    found = match(task(), gru_facts(), H200)
    assert found is not None
    source = found.recipes[-1].render(found.plan, found.recipes[-1].defaults(found.plan, H200, PrecisionClass.IEEE) or {})
    lines = [line.split("#")[0].strip() for line in source.splitlines()]
    releases = [n for n, line in enumerate(lines) if 'sem="release"' in line]
    assert len(releases) == 2
    assert all(lines[n - 1] == "tl.debug_barrier()" for n in releases)
    assert "launch_cooperative_grid=True" in source


def test_precision_class_chooses_the_parts() -> None:
    for precision, parts in ((PrecisionClass.IEEE, 2), (PrecisionClass.TF32, 1)):
        found = match(task(precision=precision), gru_facts(), H200)
        assert found is not None
        top = found.recipes[-1]
        settings = top.defaults(found.plan, H200, precision)
        assert settings is not None and settings["parts"] == parts
        assert assignments(top.render(found.plan, settings))["PARTS"] == parts


@pytest.mark.parametrize("card", sorted(CARDS))
def test_a_wavefront_needs_all_programs_resident(card: str) -> None:
    """A wavefront is offered only where all programs are resident."""
    hardware: Hardware = CARDS[card]
    for hidden, layers in ((64, 6), (256, 6), (256, 40), (512, 3), (2048, 2)):
        found = match(task(), gru_facts(hidden=hidden, layers=layers), hardware)
        assert found is not None
        plan, top = found.plan, found.recipe("recurrent_wavefront")
        if top is None:
            assert hidden >= 512
            continue
        assert isinstance(plan, RecurrentPlan)
        settings = top.defaults(plan, hardware, PrecisionClass.IEEE) or {}
        at_once = min(layers, int(settings["layers_per_launch"]))
        assert 2 * at_once * -(-hidden // int(settings["slice"])) <= hardware.processors


def test_sizes_that_the_task_does_not_write_out_become_constants() -> None:
    found = match(task("class Model: pass"), gru_facts(), H200)
    assert found is not None and found.plan.signature == "*init_inputs"
    assert "self.gru = GRUWeights(input_size=128, hidden_size=256, num_layers=6, bias=True, batch_first=False)" in found.plan.members


def test_last_step_through_a_linear_layer() -> None:
    full = {"slice": [None, None, None]}
    ops = (
        *gru_facts(batch_first=True).ops[:-1],
        node("step", "call_function", "_operator.getitem", ref("getitem"), [full, -1, full]),
        node("fc", "call_module", "fc", ref("step"), module_type="Linear",
             attributes={"in_features": 256, "out_features": 5, "bias": True}),
        node("output", "output", "output", ref("fc")),
    )  # fmt: skip
    found = match(task(), gru_facts(batch_first=True).model_copy(update={"ops": ops}), H200)
    assert found is not None and isinstance(found.plan, RecurrentPlan)
    assert found.plan.tail == ("return self.fc.apply_to(last[-1])",)
    assert not found.plan.needs_sequence
    for recipe in found.recipes:
        ast.parse(recipe.render(found.plan, recipe.defaults(found.plan, H200, PrecisionClass.IEEE) or {}))


def test_launch_bound_analysis_counts_launches() -> None:
    current = attempt(seed(gru_facts()), ms=59.0, launches=3072, programs=8)
    analysis = asyncio.run(RecipeAuthor().analyze(brief(gru_facts(), current=current)))
    assert analysis.category is Category.LAUNCHES and "launch-bound: 3072 launches" in analysis.bottleneck
    assert analysis.worth_optimizing and analysis.kernel_type == "recurrent_wavefront"
    assert analysis.promise is not None and analysis.promise.metric == "launches_per_forward"
    assert analysis.promise.before == 3072 and analysis.promise.bound < 24
    assert analysis.evidence["shortest_chain"] == 512 + 6 - 1 and analysis.evidence["processors"] == H200.processors
    optimized = asyncio.run(RecipeAuthor().optimize(brief(gru_facts(), current=current, analysis=analysis)))
    assert optimized is not None and optimized.recipe == "recurrent_wavefront"


def test_one_axis_grid_analysis_counts_idle_processors() -> None:
    current = attempt(seed(gru_facts(), 1), ms=48.0, launches=12, programs=10)
    analysis = asyncio.run(RecipeAuthor().analyze(brief(gru_facts(), current=current)))
    assert analysis.category is Category.ALGORITHM and f"{H200.processors - 10} of {H200.processors} processors" in analysis.bottleneck
    assert analysis.promise is not None and analysis.promise.metric == "programs" and not analysis.promise.at_most
    assert analysis.promise.before == 10 and 10 < analysis.promise.bound <= H200.processors


def test_time_loop_is_proposed_where_no_wavefront_fits() -> None:
    facts = gru_facts(hidden=2048, layers=2)
    current = attempt(seed(facts), ms=900.0, launches=60000, programs=8)
    analysis = asyncio.run(RecipeAuthor().analyze(brief(facts, current=current)))
    assert analysis.kernel_type == "recurrent_persistent_batch" and analysis.category is Category.LAUNCHES


def test_two_directions_are_run_layer_by_layer() -> None:
    """Two directions have no wavefront: the chain is every step of every layer, and one launch per layer is proposed."""
    facts = gru_facts(bidirectional=True)
    current = attempt(seed(facts, 1), ms=90.0, launches=24, programs=10)
    analysis = asyncio.run(RecipeAuthor().analyze(brief(facts, current=current)))
    assert analysis.kernel_type == "recurrent_layers" and analysis.worth_optimizing
    assert analysis.evidence["shortest_chain"] == 512 * 6 and "both directions side by side" in analysis.optimisation_method
    assert analysis.promise is not None and analysis.promise.metric == "programs" and analysis.promise.bound == 64
    drawn = asyncio.run(RecipeAuthor().optimize(brief(facts, current=current, analysis=analysis)))
    assert drawn is not None and assignments(drawn.source)["PROGRAMS"] == 64


def test_known_device_times_outweigh_the_launch_constant() -> None:
    current = attempt(seed(gru_facts()), ms=60.0, launches=3072, programs=8)
    assert current.verdict is not None
    kernel = current.verdict.facts.kernels[0].model_copy(update={"device_ms": 59.0})
    facts = current.verdict.facts.model_copy(update={"kernels": (kernel,)})
    current = current.model_copy(update={"verdict": current.verdict.model_copy(update={"facts": facts})})
    analysis = asyncio.run(RecipeAuthor().analyze(brief(gru_facts(), current=current)))
    assert analysis.evidence["launch_ms"] == pytest.approx(1.0) and "launch-bound" not in analysis.bottleneck


def test_nothing_is_proposed_without_room_or_recipe() -> None:
    """Nothing is proposed at the floor, or without another recipe."""
    floor = attempt(Draft(source="", rationale="", recipe="recurrent_persistent_batch"), ms=0.82, launches=2, programs=96)
    at_floor = asyncio.run(RecipeAuthor().analyze(brief(gru_facts(), current=floor)))
    assert not at_floor.worth_optimizing and "within 10 %" in at_floor.reason
    top = attempt(Draft(source="", rationale="", recipe="recurrent_wavefront"), ms=1.4, launches=2, programs=96)
    seen = (attempt(seed(gru_facts()), 60.0), attempt(seed(gru_facts(), 1), 48.0))
    spent = asyncio.run(RecipeAuthor().analyze(brief(gru_facts(), current=top, history=seen)))
    assert not spent.worth_optimizing and "tuning" in spent.reason


def relu_chain() -> TaskFacts:
    return chain_facts(
        node("bias", "get_attr", "bias"),
        node("add", "call_function", "_operator.add", ref("x0"), ref("bias")),
        node("act", "call_module", "act", ref("add"), module_type="LeakyReLU", attributes={"negative_slope": 0.2, "inplace": False}),
        node("clamp", "call_function", "torch.clamp", ref("act"), kwargs={"max": 3.0}),
        inputs=(TensorSpec(shape=(64, 96)),), out=(64, 96), parameters={"bias": TensorSpec(shape=(96,))},
    )  # fmt: skip


def test_pointwise_chain_is_one_kernel() -> None:
    draft = seed(relu_chain())
    assert draft.recipe == "pointwise" and draft.source.count("@triton.jit\ndef pointwise(") == 1
    assert "t0 = v0 + v1" in draft.source and "t1 * 0.2" not in draft.source and "t0 * 0.2" in draft.source
    assert "tl.minimum(t1, 3.0, propagate_nan=tl.PropagateNan.ALL)" in draft.source and "p1 + (offset) % 96" in draft.source
    assert "self.bias = nn.Parameter(torch.empty((96,), dtype=torch.float32))" in draft.source


def linear_facts() -> TaskFacts:
    return chain_facts(
        node("linear", "call_module", "linear", ref("x0"), module_type="Linear",
             attributes={"in_features": 128, "out_features": 256, "bias": True}),
        node("mul", "call_function", "_operator.mul", ref("linear"), 2.0),
        node("gelu", "call_function", "torch._C._nn.gelu", ref("mul"), kwargs={"approximate": "tanh"}),
        inputs=(TensorSpec(shape=(64, 128)),), out=(64, 256),
        parameters={"linear.weight": TensorSpec(shape=(256, 128)), "linear.bias": TensorSpec(shape=(256,))},
    )  # fmt: skip


def test_linear_applies_its_tail_to_the_accumulator() -> None:
    found = match(task(), linear_facts(), H200)
    assert found is not None and isinstance(found.plan, ChainPlan) and found.plan.lines[:2] == ("t0 = total + v0", "t1 = t0 * 2.0")
    ieee = seed(linear_facts())
    assert ieee.settings["scheme"] == "fp16x3" and 'input_precision="tf32' not in ieee.source
    tf32 = seed(linear_facts(), task=task(precision=PrecisionClass.TF32))
    assert 'input_precision="tf32"' in tf32.source


def test_parts_are_proposed_for_a_large_product() -> None:
    """Its prediction holds the three products and the splitting ahead of them."""
    size = 4096
    facts = linear_facts().model_copy(
        update={
            "inputs": (TensorSpec(shape=(size, size)),), "outputs": (TensorSpec(shape=(size, size)),), "flops": 2.0 * size**3,
            "parameters": {"linear.weight": TensorSpec(shape=(size, size)), "linear.bias": TensorSpec(shape=(size,))},
        }
    )  # fmt: skip
    current = attempt(seed(facts), ms=1.8, programs=1024)
    assert current.candidate.recipe == "product"
    analysis = asyncio.run(RecipeAuthor().analyze(brief(facts, current=current)))
    assert analysis.worth_optimizing and analysis.kernel_type == "product_in_parts"
    multiply = 3 * facts.flops / H200.fp16 * 1e3
    assert multiply < float(analysis.evidence["predicted_ms_product_in_parts"]) < 3 * multiply
    drawn = asyncio.run(RecipeAuthor().optimize(brief(facts, current=current, analysis=analysis)))
    assert drawn is not None and assignments(drawn.source)["PARTS"] == 2


@pytest.mark.parametrize("facts", [gru_facts(), relu_chain(), linear_facts()], ids=["gru", "pointwise", "linear"])
def test_no_recipe_gets_advice(facts: TaskFacts) -> None:
    found = match(task(), facts, H200)
    assert found is not None
    for recipe in found.recipes:
        for precision in PrecisionClass:
            settings = recipe.defaults(found.plan, H200, precision)
            assert settings is None or advise(recipe.render(found.plan, settings), precision) == ()


@pytest.mark.parametrize("stage", [Stage.TUNE_GRID, Stage.TUNE_BLOCK, Stage.TUNE_MEMORY])
@pytest.mark.parametrize("facts", [relu_chain(), linear_facts()], ids=["pointwise", "linear"])
def test_each_stage_varies_only_its_tunables_and_never_repeats(facts: TaskFacts, stage: Stage) -> None:
    author, current = RecipeAuthor(), attempt(seed(facts))
    found = match(task(), facts, H200)
    assert found is not None
    tunables = found.recipes[0].tunables[stage]
    drafts = asyncio.run(author.tune(brief(facts, current=current, stage=stage)))
    assert drafts
    for draft in drafts:
        ast.parse(draft.source)
        changed = {key for key, value in draft.settings.items() if value != current.candidate.settings[key]}
        assert changed and changed <= set(tunables)
    history = tuple(attempt(draft) for draft in drafts)
    more = asyncio.run(author.tune(brief(facts, current=current, stage=stage, history=history)))
    seen = [one.candidate.settings for one in (*history, current)]
    assert all(draft.settings not in seen for draft in more)


def test_repair_of_too_much_shared_memory_names_the_numbers() -> None:
    message = "OutOfResources: out of resource: shared memory, Required: 294912, Hardware limit: 232448. Reducing block sizes may help."
    found = match(task(), gru_facts(), H200)
    assert found is not None
    top = found.recipes[-1]
    settings = top.defaults(found.plan, H200, PrecisionClass.IEEE) or {}
    failing = attempt(Draft(source="", rationale="", recipe=top.name, settings=settings), status=Status.LAUNCH_ERROR, message=message)
    mended = asyncio.run(RecipeAuthor().repair(brief(gru_facts(), current=failing)))
    assert mended is not None and "294912 bytes of shared memory of 232448" in mended.rationale
    assert int(mended.settings["slice"]) < int(settings["slice"])


def test_repair_of_inexact_products_and_of_nothing() -> None:
    author = RecipeAuthor()
    inexact = attempt(seed(linear_facts()), status=Status.INACCURATE)
    mended = asyncio.run(author.repair(brief(linear_facts(), current=inexact)))
    assert mended is not None and 'input_precision="tf32x3"' in mended.source
    racy = attempt(seed(gru_facts()), status=Status.RACY)
    assert asyncio.run(author.repair(brief(gru_facts(), current=racy))) is None


def repair_all(error: float, change: float) -> list[Draft]:
    """The texts that a linear layer in TF32 gets, where every one of them is too inexact by an error that changes by a factor."""
    mine, author = task(precision=PrecisionClass.TF32), RecipeAuthor()
    drafts = [seed(linear_facts(), task=mine)]
    tried: list[Attempt] = []
    while drafts[-1] is not None and len(tried) < 9:
        known = attempt(drafts[-1], status=Status.INACCURATE)
        correctness = Correctness(max_abs_err=1.0, mean_abs_err=1.0, err_vs_oracle=error, reference_err_vs_oracle=1e-7)
        assert known.verdict is not None
        tried.append(known.model_copy(update={"verdict": known.verdict.model_copy(update={"correctness": correctness})}))
        error *= change
        drafts.append(asyncio.run(author.repair(brief(linear_facts(), task=mine, current=tried[-1], history=tuple(tried[:-1])))))
    return drafts[:-1]


def test_an_error_that_other_products_leave_as_it_was_gets_exact_products_and_then_another_recipe() -> None:
    smaller = repair_all(1e-3, 0.1)
    repeated = repair_all(1e-3, 1.01)
    assert [one.settings["scheme"] for one in smaller[:4]] == ["tf32", "fp16x3", "tf32x3", "ieee"]
    assert [one.settings["scheme"] for one in repeated[:3]] == ["tf32", "fp16x3", "ieee"], "tf32x3 is left out"
    assert "the same error with other products" in repeated[2].rationale
    assert all(one.recipe != repeated[0].recipe for one in repeated[3:])


LINEAR = RegionCase("", "return torch.relu(self.fc(x))", "torch.randn(32, 64)", init="self.fc = nn.Linear(64, 48)").source()


@pytest.mark.parametrize(("mine", "then"), [
    (None, ["recurrent_persistent_batch", "recurrent_per_step"]), (task(LINEAR), ["regions"]),
], ids=["plainer recipes", "another family"])  # fmt: skip
def test_what_fails_for_no_known_reason_is_written_in_another_way(mine: Task | None, then: list[str]) -> None:
    given, facts = mine or task(), probe(mine)[0] if mine else gru_facts()
    found = match(given, facts, H200)
    assert found is not None
    top = found.recipes[-1]
    first = Draft(source="", rationale="", recipe=top.name, settings=top.defaults(found.plan, H200, PrecisionClass.IEEE) or {})
    tried = [attempt(first, status=Status.CRASHED)]
    while other := asyncio.run(RecipeAuthor().repair(brief(facts, task=given, current=tried[-1], history=tuple(tried[:-1])))):
        tried.append(attempt(other, status=Status.CRASHED))
    assert [one.candidate.recipe for one in tried[1:]] == then


def test_repair_of_what_may_not_win_by_its_label_is_the_next_recipe() -> None:
    author, found = RecipeAuthor(), match(task(), linear_facts(), H200)
    assert found is not None
    works = attempt(seed(linear_facts()), status=Status.OK)
    drafts = []
    while better := asyncio.run(author.repair(brief(linear_facts(), current=works, history=tuple(map(attempt, drafts))))):
        drafts.append(better)
    first = found.recipe(works.candidate.recipe)
    assert first is not None and [draft.recipe for draft in drafts] == [one.name for one in found.recipes if one.level > first.level]
