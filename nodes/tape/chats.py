"""Chats that write down what another chat answers, or answer from a recording."""

from __future__ import annotations

import asyncio
from typing import Any

from tritonsmith.nodes.chat.faults import Fault, ModelFault
from tritonsmith.nodes.chat.records import Chat, Reply, Request
from tritonsmith.nodes.tape.recorder import RunTape, TapeRecorder, refuse_when
from tritonsmith.nodes.tape.tape import Line, Tape


class RecordedChat:
    """Asks another chat, and writes down its replies and failures."""

    def __init__(self, chat: Chat, recorder: TapeRecorder) -> None:
        """The chat that answers, and where it is written."""
        self.name = chat.name
        self._chat, self._recorder = chat, recorder

    @property
    def price(self) -> Any:
        """Of the chat that answers."""
        return getattr(self._chat, "price", None)

    async def ask(self, request: Request) -> Reply:
        """The other chat's reply."""
        line: Line = {"kind": "reply", "key": request.key, **request.model_dump(mode="json")}
        try:
            reply = await self._chat.ask(request)
        except ModelFault as fault:
            await asyncio.to_thread(self._recorder.write, {**line, "fault": fault.fault.value, "error": str(fault)})
            raise
        await asyncio.to_thread(self._recorder.write, {**line, "reply": reply.model_dump(mode="json")})
        return reply


class KeptChat:
    """Asks another chat once for each question. An answer of an earlier part of the run is not paid for again."""

    def __init__(self, chat: Chat, run_tape: RunTape) -> None:
        """The chat that answers, and what the run has kept."""
        self.name = chat.name
        self._chat, self._run_tape = chat, run_tape

    @property
    def price(self) -> Any:
        """Of the chat that answers."""
        return getattr(self._chat, "price", None)

    async def ask(self, request: Request) -> Reply:
        """The kept reply, or the other chat's; failures are not kept, and the question is then asked again."""
        line = self._run_tape.tape.find_exact(request) if self._run_tape.tape else None
        if line is not None:
            return Reply.model_validate(line["reply"])
        refuse_when(self._run_tape.stopping)
        reply = await self._chat.ask(request)
        if self._run_tape.recorder is not None:
            line = {"kind": "reply", "key": request.key, **request.model_dump(mode="json"), "reply": reply.model_dump(mode="json")}
            await asyncio.to_thread(self._run_tape.recorder.write, line)
            if self._run_tape.tape is not None:
                self._run_tape.tape.add(line)
        return reply


class GatedChat:
    """Asks another chat while no more than so many requests of all runs are under way."""

    def __init__(self, chat: Chat, gate: asyncio.Semaphore) -> None:
        """The chat that answers, and the limit that the runs share."""
        self.name = chat.name
        self._chat, self._gate = chat, gate

    @property
    def price(self) -> Any:
        """Of the chat that answers."""
        return getattr(self._chat, "price", None)

    async def ask(self, request: Request) -> Reply:
        """The other chat's reply."""
        async with self._gate:
            return await self._chat.ask(request)


class ReplayedChat:
    """Answers from a recording, with the tokens and the time that were recorded."""

    def __init__(self, tape: Tape) -> None:
        """The recording that answers."""
        self.name = tape.model
        self._tape = tape

    async def ask(self, request: Request) -> Reply:
        """The recorded reply, or the recorded failure. Raises UsageError for a request that was never recorded."""
        line = self._tape.reply(request)
        if "fault" in line:
            raise ModelFault(str(line["error"]), Fault(line["fault"]))
        return Reply.model_validate(line["reply"])
