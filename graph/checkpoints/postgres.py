"""Checkpoints in a Postgres database, for runs on machines that share one; the extra `postgres` brings what this needs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from tritonsmith.evaluator.errors import RunError, UsageError


@asynccontextmanager
async def open_postgres(option: str, address: str, serde: SerializerProtocol, thread: str) -> AsyncIterator[AsyncPostgresSaver]:
    """The saver for a connection string; what a run needs no more is dropped when it ends. `option` names it in messages.

    Raises UsageError when nobody answers there, RunError when the database is lost in the middle of a run.
    """
    try:
        connection = await psycopg.AsyncConnection.connect(
            address, autocommit=True, prepare_threshold=0, row_factory=psycopg.rows.dict_row, connect_timeout=10
        )
    except psycopg.ProgrammingError:
        raise UsageError(f"{option}: the variable holds no connection string; write postgresql://user@host/database") from None
    except psycopg.Error as error:
        raise UsageError(f"{option}: cannot connect ({_first(error)}); start the database, or fix the connection string") from error
    try:
        async with connection:
            saver = AsyncPostgresSaver(connection, serde=serde)
            await saver.setup()
            yield saver
            await saver.aprune([thread], strategy="keep_latest")  # each step has written the whole state
    except psycopg.Error as error:
        raise RunError(f"{option}: the database failed ({_first(error)}); what was finished is on the run's tape; resume it") from error


def _first(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
