"""Texts of a run for its page: kernels, differences and conversations, coloured, folded and kept within a size.

Every text here comes from a model, a candidate or a task. It reaches the page only through an escaping template or through Pygments,
which escapes too.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import DiffLexer, PythonLexer

from tritonsmith.evaluator.kernel_text import text_sha

MOST_OF_ALL = 1_100_000
"""Bytes that kernels and conversations take on one page, markup and all; the rest stays in the folder."""
MOST_OF_ONE = 60_000
_SHORTEST_REPEATED = 200
"""A shorter section is shown again; a reference would not be shorter."""
_QUIET = re.compile(r'<span class="(?:n|p|o|w|nn|nb|bp|nc|fm|vm|esc|x)">([^<]*)</span>')
"""Tokens that the page's style gives no colour."""
_HEADING = re.compile(r"^(?=#{1,3} )", re.MULTILINE)


@dataclass
class Room:
    """How many bytes may still be shown."""

    left: int

    def take(self, text: str, most: int = MOST_OF_ONE) -> tuple[str, int]:
        """What is shown of a text, and how many characters are not. The room that it takes is that of its escaped form."""
        part = text[: max(0, min(most, self.left))]
        while (size := _size(part)) > max(0, self.left):
            part = part[: len(part) * self.left // size]
        self.left -= size
        return part, len(text) - len(part)

    def colour(self, text: str, lexer: Any) -> Markup:
        """A text that was taken, in colours while there is room for them; Pygments escapes it, and only its own tags are left."""
        found = Markup(_QUIET.sub(r"\1", highlight(text, lexer, HtmlFormatter(nowrap=True))))
        tags = len(found.encode()) - _size(text)
        if tags > self.left:
            return escape(text)
        self.left -= tags
        return found


def _size(text: str) -> int:
    return len(str(escape(text)).encode())


@dataclass(frozen=True)
class Piece:
    """A section of a text."""

    text: str
    cut: int = 0
    """Characters that are left out at its end."""
    seen_in: str = ""
    """The conversation that has shown this section already; then `text` is its first line."""
    length: int = 0


@dataclass(frozen=True)
class ConversationTurn:
    """One message."""

    role: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Conversation:
    """One request to a model with its reply."""

    label: str
    stage: str
    role: str
    model: str
    tokens: str
    reply: Piece
    turns: tuple[ConversationTurn, ...] = ()
    reasoning: Piece | None = None
    broken: tuple[Piece, ...] = field(default=())
    fault: str = ""


def python_html(source: str, room: Room) -> Markup:
    """A kernel in colours."""
    return room.colour(source, PythonLexer(stripnl=False))


def diff_html(lines: Sequence[str], room: Room) -> Markup:
    """A unified diff in colours."""
    return room.colour("\n".join(lines), DiffLexer(stripnl=False))


def conversations(calls: Sequence[dict[str, Any]], room: Room) -> tuple[Conversation, ...]:
    """All requests in the order of asking. Replies come before prompts when room gets short, and no section is shown twice."""
    replies = [_make_piece(str(call.get("reply") or ""), room) for call in calls]
    seen: dict[str, str] = {}
    return tuple(_make_conversation(call, reply, seen, room) for call, reply in zip(calls, replies, strict=True))


def _make_conversation(call: dict[str, Any], reply: Piece, seen: dict[str, str], room: Room) -> Conversation:
    label = str(call.get("file", ""))
    usage = call.get("usage") if isinstance(call.get("usage"), dict) else {}
    counts = [(usage.get(key), word) for key, word in (("input_tokens", "read"), ("output_tokens", "written"))] if usage else []
    reasoning = str(call.get("reasoning") or "")
    messages, broken = ([*texts] if isinstance(texts := call.get(key), list) else [] for key in ("messages", "broken"))
    return Conversation(
        label=label,
        stage=str(call.get("stage", "")),
        role=str(call.get("role", "")),
        model=str(call.get("model") or ""),
        tokens=", ".join(f"{count:,} {word}" for count, word in counts if isinstance(count, int) and count),
        reply=reply,
        turns=tuple(_make_turn(message, label, seen, room) for message in messages),
        reasoning=_make_piece(reasoning, room) if reasoning else None,
        broken=tuple(_make_piece(str(text), room) for text in broken),
        fault=str(call.get("error") or call.get("fault") or ""),
    )


def _make_turn(message: Any, label: str, seen: dict[str, str], room: Room) -> ConversationTurn:
    fields = message if isinstance(message, dict) else {"role": "?", "content": str(message)}
    pieces: list[Piece] = []
    for section in filter(None, _HEADING.split(str(fields.get("content", "")))):
        sha = text_sha(section.strip())
        if sha in seen and len(section) >= _SHORTEST_REPEATED:
            pieces.append(Piece(section.strip().splitlines()[0][:120], seen_in=seen[sha], length=len(section)))
            continue
        seen.setdefault(sha, label)
        pieces.append(_make_piece(section, room))
    return ConversationTurn(str(fields.get("role", "")), tuple(pieces))


def _make_piece(text: str, room: Room) -> Piece:
    part, cut = room.take(text)
    return Piece(part, cut, length=len(text))
