"""The compiled graph for the LangGraph server (`langgraph.json`): settings are plain values, so that a form can be made of them.

A server holds one context per settings for as long as it lives; its kernels lie in a temporary folder unless `out` names one.
"""

import asyncio
import threading
from dataclasses import dataclass
from functools import cache

from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.context import Context
from tritonsmith.graph.run import make_context


@dataclass(frozen=True)
class Settings:
    """What an assistant may set; named assistants make ablation presets."""

    model: str = "offline"
    policy: str = "default"
    target: str = "auto"
    seeds: int = 2
    allow: str = "hybrid"
    base_url: str | None = None
    out: str | None = None


_opening = threading.Lock()


@cache
def _opened(settings: Settings) -> Context:
    return make_context(
        model=settings.model,
        base_url=settings.base_url,
        target=settings.target,
        policy=settings.policy,
        seeds=settings.seeds,
        allow=settings.allow,
        out=settings.out,
    )


def _opened_once(settings: Settings) -> Context:
    with _opening:  # the cache alone would let two runs that start together open two evaluators
        return _opened(settings)


async def open_settings(settings: Settings | None) -> Context:
    """The context for these settings; opened once, in a thread because processes are started. Raises UsageError."""
    return await asyncio.to_thread(_opened_once, settings or Settings())


graph = build_graph(Settings, open_settings).compile(name="tritonsmith")
