"""What a prompt says to some tasks alone, and the blocks that an ablation leaves out."""

import re

import torch

from project import ROOT
from tritonsmith.author.examples import prompt_for
from tritonsmith.author.prompt_pages import read_briefs
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.oracle.checks.inputs import KINDS
from tritonsmith.evaluator.schema import OpNode, PrecisionClass, Task, TaskFacts, TensorSpec
from tritonsmith.prompts.author import Brief

SNAPSHOTS = sorted((ROOT / "tests" / "prompts").glob("*.json"))


def node(name, target, args=(), **fields):
    return OpNode(name=name, op="call_function", target=target, args=args, **fields)


def test_what_only_some_tasks_need_is_told_to_them_alone():
    present = named_card("h200").model_copy(update={"present": True})
    largest = node("m", "torch.amax", ({"ref": "x"}, -1))
    quotient, codes = node("q", "_operator.truediv", ({"ref": "m"}, 127.0)), node("c", "torch.round", ({"ref": "q"},))
    by_tensor = node("q", "_operator.truediv", ({"ref": "m"}, {"ref": "x"}))
    drops, reciprocal, window = "`tl.max` and `tl.min` drop NaN", "multiplies by its fp32 reciprocal", "window[t + k]"

    def told(source="class Model: ...", hardware=present, **fields):
        facts = TaskFacts(**{"modules": {"LayerNorm": 1}, **fields})
        task = Task(name="t", path="t.py", source=source)
        return prompt_for("seed", Brief(task=task, facts=facts, hardware=hardware)).text

    text = told(ops=(largest, quotient, codes))
    assert drops in text and reciprocal in text and "`num_stages` x (BM" not in text and window not in text
    plain = told(ops=(by_tensor, codes))
    assert drops not in plain and reciprocal not in plain and reciprocal not in told(ops=(largest, quotient))
    assert drops in told(ops=(OpNode(name="p", op="call_module", target="p", module_type="MaxPool3d"),))
    assert window in told("nn.Conv1d(8, 8, 31, groups=8)", modules={"Conv1d": 1}) and window not in told("...", modules={"Conv1d": 1})
    assert "keep `num_stages` x (BM + BN) x BK x bytes" in told(modules={"Linear": 1})
    assert "Kernels run on the card, not in the interpreter" in told()
    small = "SMALL = {'n': 4}\nn = 8\n\nclass Model: ...\n"
    assert "smaller size of the inputs alone" in told(small, init_inputs=()) and "not in the interpreter" not in told(small)
    assert "inputs and the constructor's arguments" in told(small, init_inputs=("8",))
    assert "Kernels run in Triton's interpreter" in told(hardware=named_card("h200"))


def test_the_mode_and_the_inputs_are_told_as_the_judge_has_them():
    def told(source="class Model: ...", **fields):
        asked = Brief(task=Task(name="t", path="t.py", source=source), facts=TaskFacts(**fields), hardware=named_card("h200"))
        return prompt_for("seed", asked).text

    normed = told(modules={"BatchNorm2d": 1})
    assert "Mode: evaluation. Batch norm takes its running statistics" in normed and "Dropout" not in normed
    assert "Mode: evaluation. Dropout changes nothing." in told("x = F.dropout(x, 0.1, self.training)") and "Mode:" not in told()
    like, seed = torch.zeros(8192, 32), torch.Generator()
    drawn = {name: kind.draw(like, seed.manual_seed(3)) for name, kind in KINDS.items() if kind.draw}
    largest = max(float(values.abs().max()) for values in drawn.values())
    assert 200 < largest < 350 and "(up to about 350)" in normed  # what stands at few places
    told_numbers = (drawn["large"].std() / 40, drawn["below"].mean() / -40, drawn["holes"].abs().max() * 256 / 4.5, drawn["ints"].max() / 2)
    assert all(0.8 < float(number) < 1.25 for number in told_numbers)
    assert bool(drawn["signed"].tril(-1).any() and drawn["signed"].triu(1).any())
    assert "No range, triangle or symmetry of get_inputs stays." in normed
    assert "They stay in their DOMAINS." in told("DOMAINS = {0: (0.0, 1.0)}\nclass Model: ...\n")
    assert "They stay in 0 to 1." in told("F.binary_cross_entropy(p, y)")
    weights, codes = TensorSpec(shape=(4,)), TensorSpec(shape=(4,), dtype="int64")
    assert "scales of 1 and shifts of 0 move by 20 %" in told(parameters={"w": weights})
    masked = told("self.register_buffer('mask', m)", parameters={"w": weights})
    assert "its buffers (masks) as it makes them" in masked and "drawn anew;" not in normed
    assert "(-100 only if it does)" in told(inputs=(codes,)) and "-100" not in normed


def test_rules_for_wrong_bits_and_rare_work_come_where_they_apply():
    def told(card="h200", **fields):
        asked = Brief(task=Task(name="t", path="t.py", source=""), facts=TaskFacts(**fields), hardware=named_card(card))
        return prompt_for("seed", asked).text

    risk, eighth, tiles = "Wrong bits on sm_90", "Operands of 8 bits", "Tiles by value"
    linear = told(modules={"Linear": 1})
    assert risk in linear and eighth not in linear and tiles not in linear
    assert risk not in told("a100", modules={"Linear": 1}) and risk not in told(modules={"LayerNorm": 1})
    codes = {"w": TensorSpec(shape=(64, 64), dtype="int8")}
    assert eighth in told(modules={"Linear": 1}, parameters=codes)
    assert tiles in told(modules={"Linear": 1}, ops=(node("t", "torch.topk", ({"ref": "x"}, 2)),))


def test_directions_fit_the_class_and_the_work():
    """No library's product in fp32 without tensor cores, and no split where each program has few terms."""

    def list_directions(*heavy, precision=PrecisionClass.IEEE, launches=1, **fields):
        task = Task(name="t", path="t.py", source="", precision=precision)
        facts = TaskFacts(ops=heavy, min_bytes=1e6, reference_launches=launches, **fields)
        briefs = [Brief(task=task, facts=facts, hardware=named_card("h200"), branch=branch) for branch in (1, 2, 3, 4)]
        return [re.search(r"Take this direction: ([^:(.]*)", prompt_for("seed", asked).text)[1] for asked in briefs]

    def heavy(target, shape, **fields):
        return node("h", target, outputs=(TensorSpec(shape=shape),), launches=1, **fields)

    product = heavy("torch.matmul", (4096, 4096), flops=1e12, bytes=2e8)
    library = "the library for the product that it does best, and one kernel of your own for each stretch around it"
    split = "more parallelism"
    assert library not in list_directions(product, launches=5, flops=1e12)
    assert library in list_directions(product, launches=5, flops=1e12, precision=PrecisionClass.TF32)
    assert split not in list_directions(product, flops=1e12)
    assert list_directions(heavy("torch.matmul", (64, 64), flops=1e12, bytes=2e8), flops=1e12)[0] == split
    assert split in list_directions(heavy("torch.sum", (4,), flops=1e8, bytes=4e8))
    pool = heavy("torch.max_pool3d", (16, 32, 62, 62, 62), flops=3e9, bytes=4e9)
    assert split not in list_directions(pool) and len({*list_directions(pool)}) >= 2


def test_blocks_can_be_left_out():
    """What an ablation leaves out is not there, and all else is."""
    for file in SNAPSHOTS:
        asked = read_briefs(file)["seed"]
        whole, no_examples, no_rules = (prompt_for("seed", asked, without) for without in ((), ("examples",), ("rules",)))
        assert "# Rules for Triton kernels" in whole.text and "# Rules" not in no_rules.text and "\nRight" not in no_rules.text
        assert "# Worked example" not in no_examples.text and "\nRight" not in no_examples.text and "@triton.jit\n" not in no_examples.text
        assert ("# Worked example" in whole.text) == ("# Worked example" in no_rules.text)
        assert not any(part.startswith("rules/") for part in no_rules.parts) and "rules/general" in no_examples.parts
        for text in (no_examples.text, no_rules.text):
            assert "# The module you write" in text and "# The task" in text and len(text) < len(whole.text)
