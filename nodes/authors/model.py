"""An author that asks a language model. Kernels travel as one fenced block of plain text (JSON would escape and truncate them),
analyses as JSON."""

import asyncio
from collections.abc import Callable
from copy import copy

from tritonsmith.author.examples import prompt_for
from tritonsmith.nodes.authors.meter import current_request, record_call
from tritonsmith.nodes.chat.faults import ModelFault
from tritonsmith.nodes.chat.forms import analysis_in
from tritonsmith.nodes.chat.ledger import sum_of
from tritonsmith.nodes.chat.model import ModelChat, Source
from tritonsmith.nodes.chat.records import ROLE_OF, Chat, Message, Reply, Request, Role, Wants
from tritonsmith.nodes.chat.replies import (
    ask_again,
    ask_analysis_again,
    broken_modules_in,
    module_in,
    modules_in,
    reason_in,
    strip_thoughts,
)
from tritonsmith.nodes.chat.spans import collect_library_calls, tell_reply
from tritonsmith.prompts.analysis import Analysis, Category
from tritonsmith.prompts.author import AuthorError, Brief, Draft
from tritonsmith.prompts.promises import compare_with_facts
from tritonsmith.prompts.templates.render import Prompt

MAX_VARIANTS = 3
"""Variants of one tuning stage that are taken from an answer."""
_QUOTED = 4000
"""Characters of an unusable answer that are shown to the model again."""


class ModelAuthor:
    """Writes, repairs, analyses and tunes kernels by asking chat models: one for all roles, or one each."""

    def __init__(
        self, model: Source | Chat, name: str = "", *, analyst: Source | Chat | None = None, repair: Source | Chat | None = None
    ) -> None:
        """Each model is a LangChain chat model, a function that makes one, or a Chat. `name` is the user's, such as `openai:gpt-5`."""
        author = _chat(model, name or _own_name(model))
        given: dict[Role, Source | Chat | None] = {"analyst": analyst, "repair": repair}
        self._chats: dict[Role, Chat] = {"author": author}
        self._chats |= {role: author if source is None else _chat(source, _own_name(source)) for role, source in given.items()}
        others = [f"{role} {chat.name}" for role, chat in self._chats.items() if chat.name != author.name]
        self.name = ", ".join([author.name, *others])
        self.unpriced = tuple(dict.fromkeys(chat.name for chat in self._chats.values() if getattr(chat, "price", "") is None))
        """Models without a known price; a budget of money cannot hold them."""

    def wrap_chats(self, wrap: Callable[[Chat], Chat]) -> "ModelAuthor":
        """The same author, asking through what `wrap` puts around each of its chats."""
        twin, seen = copy(self), {id(chat): wrap(chat) for chat in self._chats.values()}
        twin._chats = {role: seen[id(chat)] for role, chat in self._chats.items()}
        return twin

    async def seed(self, brief: Brief) -> Draft:
        """A first kernel. Raises AuthorError when the model does not write one."""
        draft = await self._kernel("seed", brief)
        if draft is None:
            raise AuthorError(f"{self.name} wrote no complete module with a class ModelNew, twice; try another model")
        return draft

    async def repair(self, brief: Brief) -> Draft | None:
        """A fixed kernel; None when the model writes none."""
        return await self._kernel("repair", brief)

    async def optimize(self, brief: Brief) -> Draft | None:
        """A kernel by the analysis' plan; None when the model writes none."""
        return await self._kernel("optimize", brief)

    async def tune(self, brief: Brief) -> tuple[Draft, ...]:
        """Up to three variants for the stage."""
        first, second = await self._replies("tune", brief)
        texts = [reply.text for reply in (second, first) if reply is not None]
        modules = next((found for found in map(modules_in, texts) if found), [])
        return tuple(Draft(source=module, rationale=reason_in(texts[-1])) for module in modules[:MAX_VARIANTS])

    async def analyze(self, brief: Brief) -> Analysis:
        """The model's analysis, corrected by measured facts. After two unusable ones: an analysis that is not worth optimizing."""
        prompt = await _prompt("analyze", brief)
        verdict = brief.current.verdict if brief.current else None
        reply = await self._ask(prompt, _opening(prompt), 1, "analysis")
        try:
            return compare_with_facts(analysis_in(reply.text), verdict)
        except ValueError as error:
            again = ask_analysis_again(str(error), reply.cut)
        reply = await self._ask(prompt, _follow_up(prompt, reply, again), 2, "analysis")
        try:
            return compare_with_facts(analysis_in(reply.text), verdict)
        except ValueError as error:
            return Analysis(
                bottleneck="unknown",
                optimisation_method="none",
                modification_plan="",
                category=Category.ALGORITHM,
                worth_optimizing=False,
                reason=f"the model's analysis could not be used: {'it was cut off; ' if reply.cut else ''}{error}",
            )

    async def _kernel(self, stage: str, brief: Brief) -> Draft | None:
        first, second = await self._replies(stage, brief)
        for reply in (second, first):
            module = None if reply is None else module_in(reply.text, reply.cut)
            if reply is not None and module is not None:
                return Draft(source=module, rationale=reason_in(reply.text))
        # better a module from an answer that went on than none, and one that can be mended than none
        given = [reply for reply in (second, first) if reply is not None]
        left = [module for reply in given for module in modules_in(reply.text)[-1:]]
        left += [module for reply in given for module in broken_modules_in(reply.text, reply.cut)[-1:]]
        return Draft(source=left[0], rationale="from an answer that was cut off") if left else None

    async def _replies(self, stage: str, brief: Brief) -> tuple[Reply, Reply | None]:
        """The answer, and a second one where the first has no usable module."""
        prompt = await _prompt(stage, brief)
        first = await self._ask(prompt, _opening(prompt), 1)
        # a kernel with a slip is an ordinary one to repair, but nobody repairs a variant
        if module_in(first.text, first.cut) is not None and (stage != "tune" or modules_in(first.text)):
            return first, None
        return first, await self._ask(prompt, _follow_up(prompt, first, ask_again(first.text, first.cut)), 2)

    async def _ask(self, prompt: Prompt, messages: tuple[Message, ...], call: int, wants: Wants = "text") -> Reply:
        stage, about = prompt.stage, prompt.model_dump(exclude={"text"})
        request = Request(
            name=current_request(stage), call=call, stage=stage, role=ROLE_OF[stage], messages=messages, wants=wants, prompt=about
        )
        chat = self._chats[request.role]
        try:
            with collect_library_calls() as calls:
                reply = await chat.ask(request)
        except ModelFault as fault:
            await record_call(request, chat.name, sum_of(fault.rows), fault.rows, fault=fault)
            raise
        if not calls:
            await tell_reply(request, chat.name, reply)
        await record_call(request, chat.name, reply.usage, reply.rows, reply=reply)
        return reply


async def _prompt(stage: str, brief: Brief) -> Prompt:
    return await asyncio.to_thread(prompt_for, stage, brief)  # it reads templates and kernels


def _opening(prompt: Prompt) -> tuple[Message, ...]:
    return (Message(role="user", content=prompt.text),)


def _follow_up(prompt: Prompt, reply: Reply, again: str) -> tuple[Message, ...]:
    """The question once more, after the unusable answer. If that was cut off or empty, both questions are one turn."""
    answer = strip_thoughts(reply.text)
    if reply.cut or not answer:
        return (Message(role="user", content=f"{prompt.text}\n\n{again}"),)  # servers want turns to alternate
    return (*_opening(prompt), Message(role="assistant", content=answer[:_QUOTED]), Message(role="user", content=again))


def _chat(given: Source | Chat, name: str) -> Chat:
    return given if hasattr(given, "ask") else ModelChat(given, name)  # type: ignore[return-value]  # a Chat is what has `ask`


def _own_name(given: Source | Chat) -> str:
    """How a model calls itself: its name as a Chat, or the name of its class and model."""
    own = getattr(given, "name", None) or getattr(given, "model_name", None) or getattr(given, "model", None)
    return own if isinstance(own, str) and own else getattr(given, "__name__", type(given).__name__)
