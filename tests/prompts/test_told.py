"""What a prompt says to some tasks alone, and the blocks that an ablation leaves out."""

from project import ROOT
from tritonsmith.author.examples import prompt_for
from tritonsmith.author.prompt_pages import read_briefs
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.schema import OpNode, Task, TaskFacts
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
