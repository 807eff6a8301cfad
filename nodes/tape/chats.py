"""Chats that write down what another chat answers, or answer from a recording."""

from __future__ import annotations

import asyncio
from typing import Any

from tritonsmith.nodes.chat.faults import Fault, ModelFault
from tritonsmith.nodes.chat.records import Chat, Reply, Request
from tritonsmith.nodes.tape.recorder import Kept, Recorder, refuse_when
from tritonsmith.nodes.tape.tape import Line, Tape


class RecordedChat:
    """Asks another chat and writes down what was said; failures of the model too."""

    def __init__(self, chat: Chat, recorder: Recorder) -> None:
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
    """Asks another chat once for each question: what was answered in an earlier part of the run is not paid for again."""

    def __init__(self, chat: Chat, kept: Kept) -> None:
        """The chat that answers, and what the run has kept."""
        self.name = chat.name
        self._chat, self._kept = chat, kept

    @property
    def price(self) -> Any:
        """Of the chat that answers."""
        return getattr(self._chat, "price", None)

    async def ask(self, request: Request) -> Reply:
        """The kept reply, or the other chat's; failures are not kept, and the question is then asked again."""
        line = self._kept.tape.exactly(request) if self._kept.tape else None
        if line is not None:
            return Reply.model_validate(line["reply"])
        refuse_when(self._kept.stopping)
        reply = await self._chat.ask(request)
        if self._kept.recorder is not None:
            line = {"kind": "reply", "key": request.key, **request.model_dump(mode="json"), "reply": reply.model_dump(mode="json")}
            await asyncio.to_thread(self._kept.recorder.write, line)
            if self._kept.tape is not None:
                self._kept.tape.add(line)
        return reply


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
