"""Reads replies: LangChain's message, and the raw bytes for what it leaves out (thoughts, tokens of broken replies)."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage

from tritonsmith.graph.state import Usage
from tritonsmith.nodes.chat.records import Reply

_CUT = {"length", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_length"}
"""What servers call a reply that stops at the limit."""
_LONGEST_BODY = 2_000_000
"""Characters of an answer that are kept."""


@dataclass(frozen=True)
class Wire:
    """One HTTP answer as it came."""

    status: int
    body: str


_LISTENING: ContextVar[list[Wire] | None] = ContextVar("tritonsmith_wire", default=None)


@contextmanager
def listen(wire: list[Wire]) -> Iterator[None]:
    """Collect the answers that `note_response` sees in this context."""
    token = _LISTENING.set(wire)
    try:
        yield
    finally:
        _LISTENING.reset(token)


def note_response(response: Any) -> None:
    """A response hook for the HTTP client; requests, and with them keys, are never looked at."""
    wire = _LISTENING.get()
    if wire is not None:
        response.read()
        wire.append(Wire(response.status_code, response.text[:_LONGEST_BODY]))


def reply_of(message: AIMessage, wire: list[Wire], form: str) -> Reply:
    """The reply in a message; `usage.unreported` is 1 where the server reported no tokens."""
    raw = _json(wire)
    text = message.text or str(message.additional_kwargs.get("refusal") or "")
    return Reply(
        text=_writable(text),
        reasoning=_writable(_reasoning(message, raw)),
        finish_reason=_finish(message.response_metadata),
        usage=_usage(message, raw),
        model=str(message.response_metadata.get("model_name") or message.response_metadata.get("model") or ""),
        form=form,
    )


def _writable(text: str) -> str:
    """Without half characters, which JSON can carry and files cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def usage_on(wire: list[Wire]) -> Usage:
    """What a reply that could not be used cost by the server's account; nothing where it says nothing."""
    account = _json(wire).get("usage")
    return _usage_in(account) if isinstance(account, dict) else Usage()


def body_on(wire: list[Wire]) -> str:
    """The last raw answer; empty when there was none."""
    return wire[-1].body if wire else ""


def _json(wire: list[Wire]) -> dict[str, Any]:
    try:
        found = json.loads(body_on(wire))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _usage(message: AIMessage, raw: Mapping[str, Any]) -> Usage:
    account = raw.get("usage")
    if isinstance(account, dict):
        return _usage_in(account)
    tokens = message.usage_metadata
    if not tokens:
        return Usage(calls=1, unreported=1)
    return Usage(
        calls=1,
        input_tokens=tokens["input_tokens"],
        output_tokens=tokens["output_tokens"],
        cached_tokens=tokens.get("input_token_details", {}).get("cache_read", 0),
        reasoning_tokens=tokens.get("output_token_details", {}).get("reasoning", 0),
    )


def _usage_in(account: Mapping[str, Any]) -> Usage:
    """Tokens from the `usage` object of a chat completion or of the Responses API. DeepSeek has another key for cached ones."""
    read = _part(account, "prompt_tokens_details") or _part(account, "input_tokens_details")
    wrote = _part(account, "completion_tokens_details") or _part(account, "output_tokens_details")
    return Usage(
        calls=1,
        input_tokens=_count(account, "prompt_tokens", "input_tokens"),
        output_tokens=_count(account, "completion_tokens", "output_tokens"),
        cached_tokens=_count(read, "cached_tokens") or _count(account, "prompt_cache_hit_tokens"),
        reasoning_tokens=_count(wrote, "reasoning_tokens"),
    )


def _part(account: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = account.get(key)
    return found if isinstance(found, dict) else {}


def _count(account: Mapping[str, Any], *keys: str) -> int:
    return next((int(account[key]) for key in keys if isinstance(account.get(key), int | float)), 0)


def _finish(metadata: Mapping[str, Any]) -> str:
    """`length` for every way to say that a reply was cut off, else the server's word."""
    details = metadata.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    reason = reason or metadata.get("finish_reason") or metadata.get("stop_reason") or metadata.get("done_reason") or ""
    return "length" if reason in _CUT else str(reason)


def _reasoning(message: AIMessage, raw: Mapping[str, Any]) -> str:
    """Thoughts that came apart from the text; LangChain's OpenAI client drops them."""
    choices = raw.get("choices")
    spoken = choices[0].get("message") if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    for source in (message.additional_kwargs, spoken):
        if isinstance(source, dict):
            found = source.get("reasoning_content") or source.get("reasoning")
            if isinstance(found, str):
                return found
    return ""
