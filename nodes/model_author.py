"""An author that asks a language model: any LangChain chat model, connected over the OpenAI protocol by default.

Kernels travel as one fenced block of plain text (JSON would escape and truncate them), analyses as JSON. Requests run in a
thread, because the asynchronous client of the OpenAI library belongs to the event loop that first used it.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from langchain_core.exceptions import ModelError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from openai import OpenAIError
from pydantic import SecretStr

from tritonsmith import prompts
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.state import Usage
from tritonsmith.nodes.asking import record_call
from tritonsmith.nodes.replies import analysis_in, modules_in, reason_in
from tritonsmith.prompts.analysis import Analysis, Category
from tritonsmith.prompts.author import AuthorError, Brief, Draft

REQUEST_SECONDS = 600.0
"""The longest that one request may take; models that think need minutes."""
RETRIES = 3
"""Of the client, for a busy or unreachable server; it honours Retry-After."""
MAX_VARIANTS = 3

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(next(iter(prompts.__path__))) / "templates"),
    undefined=StrictUndefined,  # a missing variable fails the run, not the kernel
    autoescape=False,  # noqa: S701 - the texts are prompts, not pages
    trim_blocks=True,
)


class ModelAuthor:
    """Writes, repairs, analyses and tunes kernels by asking a chat model."""

    def __init__(self, model: BaseChatModel, name: str) -> None:
        """`name` is how the user named it, such as `openai:gpt-5`."""
        self.name = name
        self._model = model

    @classmethod
    def connect(cls, model: str, base_url: str | None = None) -> "ModelAuthor":
        """A model behind the OpenAI protocol; the key comes from OPENAI_API_KEY. Raises UsageError when it is missing."""
        key = os.environ.get("OPENAI_API_KEY", "")
        if not key:
            hint = " (any value, if the server at --base-url asks for none)" if base_url else ""
            raise UsageError(f"--model openai:{model}: set OPENAI_API_KEY to your key{hint}, or use --model offline")
        chat = ChatOpenAI(model=model, base_url=base_url, api_key=SecretStr(key), timeout=REQUEST_SECONDS, max_retries=RETRIES)
        return cls(chat, f"openai:{model}")

    async def seed(self, brief: Brief) -> Draft:
        """A first kernel. Raises AuthorError when the model does not write one."""
        draft = await self._kernel("seed", brief)
        if draft is None:
            raise AuthorError(f"{self.name} wrote no complete module with a class ModelNew, twice; try another model")
        return draft

    async def repair(self, brief: Brief) -> Draft | None:
        """A mended kernel; None when the model writes none."""
        return await self._kernel("repair", brief)

    async def optimize(self, brief: Brief) -> Draft | None:
        """A kernel by the analysis' plan; None when the model writes none."""
        return await self._kernel("optimize", brief)

    async def tune(self, brief: Brief) -> tuple[Draft, ...]:
        """Up to three variants for the stage."""
        reply = await self._ask([HumanMessage(render("tune", brief))])
        return tuple(Draft(source=module, rationale=reason_in(reply.text)) for module in modules_in(reply.text)[:MAX_VARIANTS])

    async def analyze(self, brief: Brief) -> Analysis:
        """The model's analysis; one that cannot be read twice is not worth optimizing, and says so."""
        messages: list[BaseMessage] = [HumanMessage(render("analyze", brief))]
        reply = await self._ask(messages)
        try:
            return analysis_in(reply.text)
        except ValueError as error:
            messages += [reply, HumanMessage(f"That cannot be read: {error}. Answer again with the one JSON object alone.")]
        reply = await self._ask(messages)
        try:
            return analysis_in(reply.text)
        except ValueError as error:
            return Analysis(
                bottleneck="unknown",
                optimisation_method="none",
                modification_plan="",
                category=Category.ALGORITHM,
                worth_optimizing=False,
                reason=f"the model's analysis could not be read: {error}",
            )

    async def _kernel(self, template: str, brief: Brief) -> Draft | None:
        messages: list[BaseMessage] = [HumanMessage(render(template, brief))]
        for _ in range(2):
            reply = await self._ask(messages)
            modules = modules_in(reply.text)
            cut = reply.response_metadata.get("finish_reason") == "length"
            if modules and not cut:
                return Draft(source=modules[-1], rationale=reason_in(reply.text))
            fault = "Your answer was cut off" if cut else "There is no complete fenced block that defines class ModelNew"
            again = f"{fault}. Answer again, with the whole file in one ```python block and no other text."
            messages = [*messages[:1], HumanMessage(again)]
        return None

    async def _ask(self, messages: list[BaseMessage]) -> AIMessage:
        started = time.monotonic()
        try:
            reply = await asyncio.to_thread(self._model.invoke, messages)
        except (OpenAIError, ModelError, ValueError, LookupError, TypeError) as error:  # the last three: a server of another protocol
            detail = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:300]}"
            raise AuthorError(f"{self.name} gave no usable answer ({detail}); check --model, --base-url and the key") from error
        self._record(messages, reply, time.monotonic() - started)
        return reply

    def _record(self, messages: list[BaseMessage], reply: AIMessage, seconds: float) -> None:
        tokens = reply.usage_metadata
        usage = Usage(
            calls=1,
            input_tokens=tokens["input_tokens"] if tokens else 0,
            output_tokens=tokens["output_tokens"] if tokens else 0,
            seconds=round(seconds, 3),
        )
        call: dict[str, Any] = {
            "model": self.name,
            "messages": [{"role": message.type, "content": message.text} for message in messages],
            "reply": reply.text,
            "finish_reason": reply.response_metadata.get("finish_reason"),
            "usage": usage.model_dump(),
        }
        record_call(usage, call)


def render(template: str, brief: Brief) -> str:
    """The prompt for a request."""
    return _TEMPLATES.get_template(f"{template}.j2").render(brief=brief)
