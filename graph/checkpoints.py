"""Where states are kept while a run goes on, and how they are read back as the records they were."""

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import aiosqlite
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from tritonsmith.evaluator import schema
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph import state
from tritonsmith.graph.encoded import EncodedOnce
from tritonsmith.graph.latest import keep_latest
from tritonsmith.prompts import analysis

CHECKPOINTS = "checkpoints.sqlite"
_POSTGRES = "postgres:"

RECORDS: tuple[type, ...] = tuple(
    value
    for module in (schema, state, analysis)
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == module.__name__ and (hasattr(value, "model_fields") or hasattr(value, "__members__"))
)
"""Every record and enumeration that a state may hold."""


def serializer() -> JsonPlusSerializer:
    """The `serde=` of a checkpointer for this graph: it reads our records and no other class, so a foreign checkpoint runs no code."""
    return EncodedOnce(allowed_msgpack_modules=RECORDS)


def check_checkpoints(spec: str) -> None:
    """Raise UsageError where it is not `sqlite`, `none` or `postgres:NAME`, or what the last needs is not there."""
    if spec in ("sqlite", "none"):
        return
    name = spec.removeprefix(_POSTGRES)
    if name == spec or not name:
        raise UsageError(f"--checkpoints {spec}: choose sqlite, none, or postgres:NAME, the variable that holds the connection string")
    if not os.environ.get(name):
        raise UsageError(f"--checkpoints {spec}: set {name} to the connection string, such as postgresql://user@host/database")
    if find_spec("psycopg") is None or find_spec("langgraph.checkpoint.postgres") is None:
        raise UsageError(f"--checkpoints {spec}: this needs the extra `postgres`; pip install 'tritonsmith[postgres]'")


@asynccontextmanager
async def open_checkpoints(spec: str, folder: Path, thread: str) -> AsyncIterator[BaseCheckpointSaver[str] | None]:
    """The checkpointer of a run, open until the block ends; None for `none`. Raises UsageError."""
    check_checkpoints(spec)
    if spec == "none":
        yield None
    elif spec == "sqlite":
        async with _open_sqlite(folder) as saver:
            yield saver
    else:
        from tritonsmith.graph.postgres import open_postgres  # noqa: PLC0415 - an optional extra

        address = os.environ[spec.removeprefix(_POSTGRES)]
        async with open_postgres(f"--checkpoints {spec}", address, serializer(), thread) as saver:
            yield saver


@asynccontextmanager
async def _open_sqlite(folder: Path) -> AsyncIterator[AsyncSqliteSaver]:
    path = folder / CHECKPOINTS
    async with aiosqlite.connect(path) as connection:
        saver = AsyncSqliteSaver(connection, serde=serializer())
        try:
            await keep_latest(saver)
            await connection.execute("PRAGMA synchronous=NORMAL")  # a killed process loses nothing by it
        except sqlite3.DatabaseError as error:
            if "not a database" in str(error) or "malformed" in str(error):
                raise UsageError(f"{path}: cannot be read ({error}); remove it, and the run goes on from what its tape has") from error
            raise
        try:
            yield saver
        finally:
            await connection.rollback()  # a step that was given up in the middle must not keep the file locked
