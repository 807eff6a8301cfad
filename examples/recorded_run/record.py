"""Records the run of this folder anew: `python examples/recorded_run/record.py`, wherever a prompt or an evaluation has changed.

The model is a script that says what stands in `replies/`, in that order. Verdicts that are in the recording already are taken
from it, so that no kernel is judged again unless `--judge` is given.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from tritonsmith.evaluator.caller.local import open_evaluator
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.graph.run import optimize
from tritonsmith.graph.storage.summary import Summary
from tritonsmith.nodes.evaluators.tape import TapeEvaluator
from tritonsmith.nodes.tape.tape import load_tape

HERE = Path(__file__).parent
TAPE = HERE / "run.jsonl"
SETTINGS: dict[str, Any] = {"seeds": 1, "policy": "no-tune", "size": "small", "target": "h200"}


class Script(BaseChatModel):
    """Says the given texts in turn."""

    model_name: str = "script"
    texts: list[str]
    said: int = 0

    @property
    def _llm_type(self) -> str:
        return "script"

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> ChatResult:
        text, self.said = self.texts[self.said], self.said + 1
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text, response_metadata={"finish_reason": "stop"}))])


def play(judge: Evaluator, out: Path, tape: Path) -> Summary:
    """The run, recorded."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((HERE / "replies").glob("*.md"))]
    return optimize(HERE / "task.py", model=Script(texts=texts), evaluator=judge, record=str(tape), out=str(out), **SETTINGS)


def main() -> None:
    """Record, and write the decisions beside the recording."""
    with tempfile.TemporaryDirectory() as folder:
        out, tape = Path(folder) / "out", Path(folder) / "run.jsonl"
        if TAPE.exists() and "--judge" not in sys.argv:
            summary = play(TapeEvaluator(load_tape(TAPE)), out, tape)
        else:
            summary = play(open_evaluator(SETTINGS["target"], Path(folder) / "raw"), out, tape)
        TAPE.write_text(tape.read_text(encoding="utf-8"), encoding="utf-8")
    decisions = [decision.model_dump(mode="json") for decision in summary.decisions]
    (HERE / "decisions.json").write_text(json.dumps(decisions, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{summary.result or summary.stopped_because}; {len(decisions)} decisions\n")


if __name__ == "__main__":
    main()
