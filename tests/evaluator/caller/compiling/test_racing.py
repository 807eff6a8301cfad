"""A race from the caller's side: what compiling ahead says decides who gets to the card."""

from tritonsmith.evaluator.caller.compiling.racing import race
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Fate, RaceRow
from tritonsmith.evaluator.schema import LaunchFacts, Task

CODE = {"best": "a", "same as best": "a", "new": "b", "same as new": "b", "other warps": "b", "unknown": ""}


class Reports:
    """Compilers whose answers are known."""

    def start(self, task, text):
        pass

    def wait_for(self, task, text, *, again):
        warps = 8 if text.text == "other warps" else 4
        kernel = {"name": "k", "grid": [4, 1, 1], "launches": 1, "num_warps": warps, "code": CODE[text.text]}
        return {"status": "ok", "kernels": [kernel], "torch_ops": {}}


def test_configurations_of_the_same_code_are_raced_once():
    asked = []

    def ask(texts):
        asked.extend(text.text for text in texts)
        return [RaceRow(sha=text.sha, fate=Fate.KEPT, ratio=1.1) for text in texts], ""

    texts = [KernelText.of(name) for name in CODE]
    report = race(Reports(), ask, named_card("h200"), Task(name="t", source="x", path="t.py"), texts[0], texts[1:], LaunchFacts(), 3)
    assert asked == ["new", "other warps", "unknown"]
    rows = dict(zip(list(CODE)[1:], report.rows, strict=True))
    assert rows["same as best"].fate is Fate.PRUNED and "the best kernel so far" in rows["same as best"].reason
    assert rows["same as new"].fate is Fate.PRUNED and texts[2].sha in rows["same as new"].reason
    assert rows["other warps"].fate is Fate.KEPT
