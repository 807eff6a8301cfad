"""What one request to an author costs while it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tritonsmith.graph.state import Usage
from tritonsmith.nodes.chat.faults import ModelFault
from tritonsmith.nodes.chat.records import NOTICE, Reply, Request, UsageRow

Keep = Callable[[str, dict[str, Any], Sequence[UsageRow], Usage], None]
"""Writes one call: its name, its texts, its tries, and the cost of the request so far."""
Spend = Callable[[Request, str, Usage, bool], None]
"""Hears of one call that is over: the question, the model's name, what it cost, and whether there is an answer."""


@dataclass
class Meter:
    """What one request to the author costs while it goes on."""

    request: str
    keep: Keep
    spend: Spend
    usage: Usage = field(default_factory=Usage)


_METER: ContextVar[Meter | None] = ContextVar("tritonsmith_meter", default=None)


@contextmanager
def meter_request(request: str, keep: Keep, spend: Spend, tell: Callable[[str], None]) -> Iterator[Meter]:
    """Collect what authors report through `record_call` in this task; `tell` hears what they say meanwhile."""
    meter = Meter(request, keep, spend)
    token, notice_token = _METER.set(meter), NOTICE.set(tell)
    try:
        yield meter
    finally:
        _METER.reset(token)
        NOTICE.reset(notice_token)


def current_request(default: str) -> str:
    """The name of the request that the author is answering; `default` outside of a run."""
    meter = _METER.get()
    return meter.request if meter is not None else default


async def record_call(
    request: Request, model: str, usage: Usage, rows: Sequence[UsageRow], *, reply: Reply | None = None, fault: ModelFault | None = None
) -> None:
    """Report one call to a model as soon as it ends. It is written to `llm/` and `usage.csv` at once."""
    meter = _METER.get()
    if meter is None:
        return
    first = meter.usage == Usage()
    meter.usage = usage if first else meter.usage + usage
    answer = reply.model_dump(mode="json", include={"text", "reasoning", "finish_reason", "model", "form"}) if reply else {"text": None}
    call: dict[str, Any] = {
        **request.model_dump(mode="json", include={"name", "call", "stage", "role"}),
        "model": model,
        "prompt": request.prompt,
        "messages": [message.model_dump() for message in request.messages],
        "reply": answer.pop("text"),
        **answer,
        "error": str(fault or ""),
        "broken": list(reply.broken if reply else fault.broken if fault else ()),
        "usage": usage.model_dump(),
        "tries": [row.model_dump(mode="json", include={"status", "seconds", "input_tokens", "output_tokens"}) for row in rows],
    }
    await asyncio.to_thread(meter.keep, f"{request.label}{'' if reply else '.failed'}", call, rows, meter.usage)
    meter.spend(request, model, usage, reply is not None)
