"""A checkpoint file that does not grow with the number of steps: only the newest checkpoint of each line of work is kept.

Each step writes the whole state, so a history of all steps would grow with the square of the number of candidates. Going on after a
stop needs the newest checkpoint alone, and a fork plays its parent's tape.
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
    """Let the file of this saver drop a checkpoint, and what was pending on it, in the transaction that writes a newer one.

    Call it once, before the first step; a file remembers it. Afterwards `aget_state_history` knows the last state only.
    """
    await saver.setup()
    async with saver.lock, saver.conn.executescript(_TRIGGER):
        await saver.conn.commit()
