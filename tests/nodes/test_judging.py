"""The way of a candidate's text: the node hands text and hash on together, and nobody hashes it again."""

from tritonsmith.evaluator import kernel_text
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator


def test_an_evaluator_gets_the_text_with_the_hash_of_its_candidate(script, monkeypatch):
    """`KernelText.of` would hash the text once more: nothing on the way from the store to the evaluator calls it."""
    seen, made = [], []

    async def evaluate(self, task, kernel, profile="quick", ask=ScriptedEvaluator.evaluate):
        seen.append(kernel)
        return await ask(self, task, kernel, profile)

    monkeypatch.setattr(ScriptedEvaluator, "evaluate", evaluate)
    monkeypatch.setattr(kernel_text, "text_sha", lambda text: made.append(text) or "anew")
    run = script({"a": 1.5, "b": 0.4}, seeds=("a", "b"))
    run.run()
    shas = {candidate.sha for candidate in run.result["candidates"].values()}
    assert {kernel.sha for kernel in seen} == shas and {kernel.text for kernel in seen} == {"a", "b"}
    assert all(isinstance(kernel, KernelText) for kernel in seen) and made == []
