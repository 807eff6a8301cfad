"""A conversation with a model, as plain records: what is asked, what comes back, and who can answer."""

from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field

from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.schema import Record
from tritonsmith.graph.state import Usage
from tritonsmith.prompts.author import AuthorError

Role = Literal["author", "analyst", "repair"]
"""Who is asked: the author also tunes."""
ROLE_OF: dict[str, Role] = {"seed": "author", "optimize": "author", "tune": "author", "analyze": "analyst", "repair": "repair"}
"""Which role answers for a stage."""

Wants = Literal["text", "analysis"]


class Message(Record):
    """One turn."""

    role: Literal["user", "assistant"]
    content: str


class Request(Record):
    """One question to a model, with the turns before it."""

    name: str
    """Of the request within the run, such as `seed0-01-seed`; the same in every repetition."""
    call: int = 1
    """1, or 2 after an unusable answer."""
    stage: str
    role: Role
    messages: tuple[Message, ...]
    wants: Wants = "text"
    """Whether the answer is to be an analysis in JSON."""

    prompt: dict[str, Any] = Field(default_factory=dict)
    """What the prompt was made of: stage, family, version, digest and parts."""

    @property
    def label(self) -> str:
        """Names the files of this question."""
        return f"{self.name}-{self.call}"

    @property
    def key(self) -> str:
        """Two requests with the same key are the same question."""
        spoken = "\0".join(f"{message.role}\1{message.content}" for message in self.messages)
        return text_sha(f"{self.role}\0{self.stage}\0{spoken}")


class UsageRow(Record):
    """One try of one request to a model: a line of `usage.csv`."""

    request: str = ""
    call: int = 1
    """1 for the first question of a request, 2 for its repetition after an unusable answer."""
    attempt: int = 1
    """Tries of one call: the server was busy, or did not answer."""
    stage: str = ""
    role: str = ""
    model: str = ""
    status: str = "ok"
    finish_reason: str = ""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    reported: bool = True
    """False where the server did not say and tokens are estimated from the length of the texts."""
    dollars: float | None = None
    """None without a known price."""
    seconds: float = 0.0


class Reply(Record):
    """What a model answered; the text is raw."""

    text: str
    reasoning: str = ""
    """What the model thought, where the server sends it apart."""
    finish_reason: str = ""
    """`stop`, `length` (cut off) or the server's own word."""
    usage: Usage = Field(default_factory=Usage)
    """Of all tries together."""
    rows: tuple[UsageRow, ...] = ()
    """Every try, for `usage.csv`."""
    model: str = ""
    """As the server names it."""
    broken: tuple[str, ...] = ()
    """Raw answers of tries that could not be used."""
    form: str = "text"
    """How an analysis was asked for: `schema`, `json` or `text`."""

    @property
    def cut(self) -> bool:
        """Whether the answer stops in the middle."""
        return self.finish_reason == "length"


class Chat(Protocol):
    """Answers requests: a model, a recording, or a person with files."""

    name: str
    """As the user named it."""

    async def ask(self, request: Request) -> Reply:
        """The reply. Raises ModelFault when there is none, Waiting when it comes later."""
        ...


NOTICE: ContextVar[Callable[[str], None] | None] = ContextVar("tritonsmith_notice", default=None)
"""Where a chat says, while it is asked, what the user may want to know; None where nobody listens."""


def notice(text: str) -> None:
    """Say something to the user while a request goes on."""
    tell = NOTICE.get()
    if tell is not None:
        tell(text)


class Waiting(AuthorError):
    """The answer will be there in a later process; the message says what is waited for."""

    def __init__(self, message: str, file: Path) -> None:
        """`file` is where the answer will lie."""
        super().__init__(message)
        self.file = file
