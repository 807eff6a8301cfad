"""Who plays in a run: the author and the evaluator, alive, recorded, or from a recording."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.authors.make import make_author, make_replaying_author
from tritonsmith.nodes.authors.memory import Memory, Recall
from tritonsmith.nodes.authors.model import ModelAuthor
from tritonsmith.nodes.authors.several import SeveralAuthors
from tritonsmith.nodes.chat.connect import Models, split_names
from tritonsmith.nodes.chat.handoff import HandoffChat, waits_for
from tritonsmith.nodes.chat.records import Chat
from tritonsmith.nodes.evaluators.spool import Spool, SpoolEvaluator
from tritonsmith.nodes.evaluators.tape import TapeEvaluator
from tritonsmith.nodes.tape.chats import GatedChat, KeptChat, RecordedChat
from tritonsmith.nodes.tape.recorder import RunTape, TapeRecorder
from tritonsmith.nodes.tape.tape import Tape, load_tape
from tritonsmith.prompts.author import Author

_HANDOFF = "handoff:"
"""How the name of a model begins for which a person answers in files."""


@dataclass(frozen=True)
class SharedPlayers:
    """What the runs of one process have in common, opened from their settings."""

    evaluator: Evaluator | None = None
    """It stays open when a run ends."""
    gate: asyncio.Semaphore | None = None
    """Limits the requests to models that are under way at a time."""


@dataclass(frozen=True)
class Players:
    """The author, and what is done with the evaluator."""

    author: Author
    tape: Tape | None = None
    """The recording that is played."""
    recorder: TapeRecorder | None = None
    folders: tuple[Path, ...] = ()
    """Where requests wait for a person."""
    spool: Path | None = None
    """Where kernels wait for a worker."""
    run_tape: RunTape = field(default_factory=RunTape)
    memory: Memory | None = None

    @property
    def may_wait(self) -> bool:
        """Whether the run may end before it is over, and go on later."""
        return bool(self.folders) or self.spool is not None

    def evaluator(self, tape_file: Path | None, target: str, open_inner: Callable[[], Evaluator]) -> Evaluator:
        """The evaluator of the run; `opened` is called only where it is needed.

        `kept` is the file with replies and verdicts of the run itself, so that none is asked for twice when it goes on.
        """
        inner: Evaluator
        if self.tape is not None:
            inner = TapeEvaluator(self.tape)
        else:
            inner = open_inner() if self.spool is None else SpoolEvaluator(self.spool, target)
        if self.recorder is not None:
            inner = TapeEvaluator(Tape([], self.recorder.path), inner, self.recorder, portable=True)
        if tape_file is None:
            return inner
        tape, recorder = self.run_tape.open(tape_file, self.author.name)
        return TapeEvaluator(tape, inner, recorder, stopping=self.run_tape.stopping)

    def recall(self) -> Recall | None:
        """Examples of earlier runs for the authors. Call it after `evaluator`, which opens the run's own tape."""
        if self.tape is not None:
            return Recall(None, self.tape)
        recorders = [recorder for recorder in (self.recorder, self.run_tape.recorder) if recorder is not None]
        return Recall(self.memory, self.run_tape.tape, recorders) if self.memory is not None else None

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Replies that are still to be written, and results that are still to come."""
        replies = tuple(str(path) for folder in self.folders for path in waits_for(folder))
        return replies if self.spool is None else (*replies, *Spool(self.spool).waits_for)


def open_players(
    models: Models,
    *,
    author: Author | None = None,
    record: str | None = None,
    replay: str | None = None,
    spool: str | None = None,
    memory: str | None = None,
    remember: bool = True,
    budget: Budget | None = None,
    resumed: bool = False,
    gate: asyncio.Semaphore | None = None,
) -> Players:
    """The players of a run; one that is resumed goes on with its recording. Raises UsageError where settings contradict each other."""
    if replay is not None:
        if spool is not None:
            raise UsageError("--replay and --evaluator: a recording has its verdicts; drop --evaluator")
        if memory is not None:
            raise UsageError("--replay and --memory: a recording has what its run was given; drop --memory")
        return _open_replay(replay, models, author, record)
    asked = (*split_names(models.author)[1], models.analyst, models.repair)
    named = [model for model in asked if isinstance(model, str) and model.startswith(_HANDOFF)]
    if record is not None and (named or spool is not None):
        waits = f"--model {named[0]}" if named else f"--evaluator spool:{spool}"
        raise UsageError(f"--record {record}: a run with {waits} is kept in its own folders; drop --record")
    writer = author or make_author(models)  # first: a wrong name or a missing key must not leave a recording behind
    unpriced = getattr(writer, "unpriced", ())
    if budget is not None and budget.money is not None and unpriced:
        raise UsageError(f"--budget-money {budget.money:g}: no price is known for {', '.join(unpriced)}; give it with --prices FILE")
    if resumed and record is not None and not Path(record).is_file():
        raise UsageError(f"--record {record}: the recording that this run began is gone; put it back, or begin a new run")
    recorder = TapeRecorder(Path(record), model=writer.name, more=resumed) if record is not None else None
    run_tape, remembered = RunTape(), Memory(Path(memory), adds=remember) if memory is not None else None

    def wrap(chat: Chat) -> Chat:
        own = chat if isinstance(chat, HandoffChat) else KeptChat(chat if gate is None else GatedChat(chat, gate), run_tape)
        return own if recorder is None else RecordedChat(own, recorder)

    if author is None:
        writer = make_author(models, wrap=wrap)
    elif isinstance(author, ModelAuthor | SeveralAuthors):
        writer = author.wrap_chats(wrap)
    folders = tuple(dict.fromkeys(Path(model.removeprefix(_HANDOFF)) for model in named))
    jobs = Path(spool) if spool is not None else None
    return Players(writer, recorder=recorder, folders=folders, spool=jobs, run_tape=run_tape, memory=remembered)


def _open_replay(replay: str, models: Models, author: Author | None, record: str | None) -> Players:
    if record is not None:
        raise UsageError("--record and --replay: choose one of them")
    tape = load_tape(replay)
    if author is not None or models.author not in ("offline", tape.model):
        raise UsageError(f"--replay {replay}: the recording speaks for {tape.model}; drop --model")
    run_tape = RunTape()
    return Players(author=make_replaying_author(tape, wrap=lambda chat: KeptChat(chat, run_tape)), tape=tape, run_tape=run_tape)
