"""Where the states of a run are kept while it goes on."""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.checkpoints.allowed import serializer
from tritonsmith.graph.checkpoints.latest import keep_latest
from tritonsmith.graph.storage.folder import CHECKPOINTS

_POSTGRES = "postgres:"

Result = TypeVar("Result")


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


class _WholeSaver(AsyncSqliteSaver):
    """Writes a step to its end even when the run is given up. Half a step would keep the file locked."""

    def __init__(self, connection: aiosqlite.Connection, *, serde: SerializerProtocol) -> None:
        super().__init__(connection, serde=serde)
        self._writing: set[asyncio.Task[Any]] = set()

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        return await self._write_whole(super().aput(config, checkpoint, metadata, new_versions))

    async def aput_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        await self._write_whole(super().aput_writes(config, writes, task_id, task_path))

    async def settle(self) -> None:
        """Wait for what is written just now."""
        await asyncio.gather(*self._writing, return_exceptions=True)

    async def _write_whole(self, work: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.ensure_future(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return await asyncio.shield(task)


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
        from tritonsmith.graph.checkpoints.postgres import open_postgres  # noqa: PLC0415 - an optional extra

        address = os.environ[spec.removeprefix(_POSTGRES)]
        async with open_postgres(f"--checkpoints {spec}", address, serializer(), thread) as saver:
            yield saver


@asynccontextmanager
async def _open_sqlite(folder: Path) -> AsyncIterator[AsyncSqliteSaver]:
    async with aiosqlite.connect(folder / CHECKPOINTS) as connection:
        saver = _WholeSaver(connection, serde=serializer())
        await keep_latest(saver)
        async with connection.execute("PRAGMA synchronous=NORMAL"):  # a killed process loses nothing by it
            pass
        try:
            yield saver
        finally:
            await saver.settle()
            await connection.rollback()  # what could not be written must not keep the file locked
