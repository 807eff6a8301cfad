"""A person, a chat window or a coding agent as the model: requests and replies are files in one folder."""

import asyncio
from pathlib import Path
from uuid import uuid4

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.state import Usage
from tritonsmith.nodes.chat.ledger import Price
from tritonsmith.nodes.chat.records import Reply, Request, UsageRow, Waiting

REQUEST = ".request.md"
"""End of the name of a file with a request."""
REPLY = ".reply.md"
"""End of the name of the file that answers it."""
_KEY = "request key: "
"""Stands before the key in a request's file: a reply to another key is stale."""


class HandoffChat:
    """Writes `<name>.request.md`, reads `<name>.reply.md`, and waits (by ending the run) while that is not there."""

    def __init__(self, folder: Path) -> None:
        """The folder; it is made with the first request. Raises UsageError where a file is in the way."""
        self.name = f"handoff:{folder}"
        self.folder = folder
        self.price = Price(input=0.0, output=0.0)
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"--model {self.name}: that is a file; name a folder")

    async def ask(self, request: Request) -> Reply:
        """The reply that lies in the folder. Raises Waiting when there is none yet, or one to another question."""
        return await asyncio.to_thread(self._ask, request)

    def _ask(self, request: Request) -> Reply:
        asked, answered = self.folder / f"{request.label}{REQUEST}", self.folder / f"{request.label}{REPLY}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            text = answered.read_text(encoding="utf-8-sig") if answered.is_file() else ""
            same = asked.is_file() and f"{_KEY}{request.key}" in asked.read_text(encoding="utf-8")
            if text.strip() and not same:
                text = ""
                answered.replace(answered.with_name(answered.name.replace(REPLY, ".stale.md")))  # it answers an earlier question
            if not same:
                self._write(asked, request)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--model {self.name}: {asked.name} or {answered.name} cannot be read or written ({error})") from error
        if not text.strip():
            raise Waiting(f"waiting for {answered}, the reply to {asked.name}", answered)
        row = UsageRow(
            request=request.name, call=request.call, stage=request.stage, role=request.role, model=self.name, reported=False, dollars=0.0
        )
        return Reply(text=text, finish_reason="stop", usage=Usage(calls=1, stage=request.stage, role=request.role), rows=(row,))

    def _write(self, path: Path, request: Request) -> Path:
        titles = {"user": "The request", "assistant": "You wrote"}
        turns = "\n\n".join(f"## {titles[turn.role]}\n\n{turn.content}" for turn in request.messages)
        reply = path.name.replace(REQUEST, REPLY)
        title = f"# {request.stage} ({request.role}): {request.label}\n\nWrite your whole answer to `{reply}` in this folder."
        text = f"{title}\n\n{turns}\n\n<!-- {_KEY}{request.key} -->\n"
        partial = path.with_suffix(f".{uuid4().hex}.part")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)  # a program that watches the folder sees only whole requests
        return path


def waits_for(folder: Path) -> list[Path]:
    """The replies that are still to be written: requests without one, in the order of their names."""
    wanted = [path.with_name(path.name.replace(REQUEST, REPLY)) for path in sorted(folder.glob(f"*{REQUEST}"))]
    return [path for path in wanted if not path.is_file() or not path.read_text(encoding="utf-8").strip()]
