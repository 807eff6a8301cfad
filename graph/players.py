"""Who plays in a run: the author and the evaluator, alive, recorded, or from a recording."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Evaluator
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.authors import make_author, replaying_author
from tritonsmith.nodes.chat_connect import Models
from tritonsmith.nodes.chat_handoff import waits_for
from tritonsmith.nodes.chat_tape import Recorder, Tape, TapeEvaluator, load_tape
from tritonsmith.prompts.author import Author

_HANDOFF = "handoff:"
_KEPT = "tape.jsonl"
"""Verdicts of a run that a person answers; so that no kernel is judged twice when it goes on."""


@dataclass(frozen=True)
class Players:
    """The author, and what is done with the evaluator."""

    author: Author
    tape: Tape | None = None
    """The recording that is played."""
    recorder: Recorder | None = None
    folders: tuple[Path, ...] = ()
    """Where requests wait for a person."""

    def evaluator(self, out: Path, opened: Callable[[], Evaluator]) -> Evaluator:
        """The evaluator of the run; opened only where it is needed."""
        if self.tape is not None:
            return TapeEvaluator(self.tape)
        if self.recorder is not None:
            return TapeEvaluator(Tape([], self.recorder.path), opened(), self.recorder, portable=True)
        if self.folders:
            kept = out / _KEPT
            tape = load_tape(kept, "--out") if kept.is_file() else Tape([], kept)
            return TapeEvaluator(tape, opened(), Recorder(kept, model=self.author.name, more=True))
        return opened()

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Replies that are still to be written."""
        return tuple(str(path) for folder in self.folders for path in waits_for(folder))


def open_players(
    models: Models, *, author: Author | None = None, record: str | None = None, replay: str | None = None, budget: Budget | None = None
) -> Players:
    """The players of a run. Raises UsageError where the settings contradict each other."""
    if replay is not None:
        return _replaying(replay, models, author, record)
    named = [one for one in (models.author, models.analyst, models.repair) if isinstance(one, str) and one.startswith(_HANDOFF)]
    if record is not None and named:
        raise UsageError(f"--record {record}: a run of --model {named[0]} is kept in its own folders; drop --record")
    writer = author or make_author(models)  # first: a wrong name or a missing key must not leave a recording behind
    unpriced = getattr(writer, "unpriced", ())
    if budget is not None and budget.money is not None and unpriced:
        raise UsageError(f"--budget-money {budget.money:g}: no price is known for {', '.join(unpriced)}; give it with --prices FILE")
    recorder = Recorder(Path(record), model=writer.name) if record is not None else None
    if recorder is not None and author is None:
        writer = make_author(models, recorder=recorder)
    folders = tuple(dict.fromkeys(Path(one.removeprefix(_HANDOFF)) for one in named))
    return Players(author=writer, recorder=recorder, folders=folders)


def _replaying(replay: str, models: Models, author: Author | None, record: str | None) -> Players:
    if record is not None:
        raise UsageError("--record and --replay: choose one of them")
    tape = load_tape(replay)
    if author is not None or models.author not in ("offline", tape.model):
        raise UsageError(f"--replay {replay}: the recording speaks for {tape.model}; drop --model")
    return Players(author=replaying_author(tape), tape=tape)
