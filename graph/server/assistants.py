"""Policies as assistants of a LangGraph server, one per preset, so that Studio can compare them."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

import httpx
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient
from langgraph_sdk.errors import APIError, NotFoundError

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Record
from tritonsmith.graph.policies.presets import PRESETS
from tritonsmith.graph.server.settings import RunForm
from tritonsmith.nodes.chat.connect import web_address

GRAPH = "tritonsmith"
"""The graph's name in `langgraph.json`."""
DEV_SERVER = "http://127.0.0.1:2024"
"""Where `langgraph dev` listens unless an option names another place."""
_NAMES = UUID("6b1f1ad2-6f0e-4d0e-9d0a-6f3c1f6d7f10")
"""Makes the id of an assistant from its policy's name, the same id every time."""
_PATIENCE_SECONDS = 10
"""How long a server may take to say that it is there."""


class Assistant(Record):
    """One assistant as the server has it now."""

    id: str
    name: str
    context: dict[str, Any]
    done: str
    """`made`, `changed` or `kept`."""


def make_assistants(
    url: str = DEV_SERVER, settings: Mapping[str, Any] | None = None, policies: Sequence[str] = tuple(PRESETS)
) -> tuple[Assistant, ...]:
    """One assistant per policy, with its name and with `settings`. Existing assistants are kept or updated.

    Raises UsageError for a wrong setting, an unknown preset, and a server that does not answer or lacks the graph.
    """
    if not policies:
        raise UsageError(f"--policies: name at least one of {', '.join(PRESETS)}")
    unknown = [name for name in policies if name not in PRESETS]
    if unknown:
        raise UsageError(f"--policies {','.join(unknown)}: no such preset; choose among {', '.join(PRESETS)}")
    contexts = {name: {**(settings or {}), "policy": name} for name in policies}
    for context in contexts.values():
        RunForm(**context)
    place = web_address(url, "--url", DEV_SERVER)
    try:
        httpx.get(f"{url.rstrip('/')}/ok", timeout=_PATIENCE_SECONDS)  # the client would try for long before it says that nobody is there
        # a key in the environment is for a server behind https, never for a program that listens on a plain address
        client = get_sync_client(url=url, api_key=None) if place.scheme == "http" else get_sync_client(url=url)
        with client:
            return tuple(_update_assistant(client, name, context) for name, context in contexts.items())
    except NotFoundError as error:
        why = _first_line(error)
        raise UsageError(f"--url {url}: the server has no graph {GRAPH} ({why}); start it with this project's langgraph.json") from error
    except (httpx.HTTPError, APIError) as error:
        why = _first_line(error)
        raise UsageError(f"--url {url}: no LangGraph server answers there ({why}); start one with: langgraph dev --no-reload") from error


def _update_assistant(client: SyncLangGraphClient, name: str, context: dict[str, Any]) -> Assistant:
    assistant_id = str(uuid5(_NAMES, name))
    wanted: dict[str, Any] = {"name": name, "description": (inspect.getdoc(PRESETS[name]) or "").partition("\n")[0], "context": context}
    try:
        found = client.assistants.get(assistant_id)
    except NotFoundError:
        client.assistants.create(GRAPH, assistant_id=assistant_id, if_exists="do_nothing", metadata={"policy": name}, **wanted)
        return Assistant(id=assistant_id, name=name, context=context, done="made")
    if {key: found.get(key) for key in wanted} == wanted:
        return Assistant(id=assistant_id, name=name, context=context, done="kept")
    client.assistants.update(assistant_id, **wanted)
    return Assistant(id=assistant_id, name=name, context=context, done="changed")


def _first_line(error: Exception) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:200]
