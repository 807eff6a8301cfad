"""A checkpoint file with only the newest checkpoint of each line of work.

Each step writes the whole state, so a history of all steps would grow with the square of the number of candidates. A resumed run needs
only the newest checkpoint, and a fork plays its parent's tape.
"""

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

_TRIGGER = """
CREATE TRIGGER IF NOT EXISTS only_the_latest AFTER INSERT ON checkpoints BEGIN
  DELETE FROM checkpoints
    WHERE thread_id = NEW.thread_id AND checkpoint_ns = NEW.checkpoint_ns AND checkpoint_id < NEW.checkpoint_id;
  DELETE FROM writes
    WHERE thread_id = NEW.thread_id AND checkpoint_ns = NEW.checkpoint_ns AND checkpoint_id < NEW.checkpoint_id;
END;
"""


async def keep_latest(saver: AsyncSqliteSaver) -> None:
    """Let a saver's file drop each checkpoint, with its pending writes, in the transaction that writes a newer one.

    Call it once, before the first step; the file remembers it. Afterwards `aget_state_history` knows only the last state.
    """
    await saver.setup()
    async with saver.lock, saver.conn.executescript(_TRIGGER):
        await saver.conn.commit()
