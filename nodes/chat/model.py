"""Asks a LangChain chat model: with our own retries, a limit for each try, and a record of each.

Our retries replace the library's. They are in the ledger, follow any Retry-After up to two minutes, and give way to Ctrl-C. They also
repeat what the library never repeats: a web page, a reply without choices. A model that is passed in with its own retries keeps those;
ours are then off for everything that its library would repeat.
"""

import asyncio
import contextvars
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.state import Usage
from tritonsmith.nodes.chat.defaults import REQUEST_SECONDS
from tritonsmith.nodes.chat.faults import Failure, Fault, ModelFault, RequestCancelled, censor, clean, failure_of, sentence
from tritonsmith.nodes.chat.forms import FORMS, Form, response_format
from tritonsmith.nodes.chat.ledger import Price, dollars, sum_of
from tritonsmith.nodes.chat.records import Reply, Request, UsageRow, notice
from tritonsmith.nodes.chat.spans import about, note_library_call
from tritonsmith.nodes.chat.wire import Wire, body_on, listen, reply_of, usage_on

CHARACTERS_PER_TOKEN = 4
"""For servers that do not tell how many tokens they took."""
_LONGEST_BROKEN = 20_000
"""Characters that are kept of an answer that could not be used."""
_GIVEN_UP = {"abort", "aborted", "cancel", "cancelled", "canceled"}
"""What servers call an answer that they gave up."""
_FORMAT_REFUSED = (Fault.REFUSED, Fault.MODEL, Fault.ADDRESS)
"""How servers say that they do not know a response format."""

Source = BaseChatModel | Callable[[], BaseChatModel]
"""A chat model, or a function that makes one when it is first asked."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Patience:
    """How failed tries are repeated."""

    first: float = 1.0
    """Seconds before the second try; each later pause doubles, and up to a quarter is added by chance."""
    longest: float = 120.0
    """The longest pause, in seconds; a server that asks for more ends the call."""
    request: float = REQUEST_SECONDS
    """The longest that one try may take, in seconds."""


@dataclass
class _Call:
    """One call while it goes on."""

    request: Request
    started: float = field(default_factory=time.monotonic)
    rows: list[UsageRow] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


class ModelChat:
    """Asks one chat model."""

    def __init__(
        self,
        model: Source,
        name: str,
        *,
        place: str = "",
        key: str = "",
        secrets: Sequence[str] = (),
        price: Price | None = None,
        patience: Patience | None = None,
    ) -> None:
        """`place` is the server's address, `key` names the variable with the key, `secrets` are kept out of every message."""
        self.name = name
        self.price = price
        self._source = model
        self._model: BaseChatModel | None = None
        self._place, self._key, self._secrets = place, key, tuple(secrets)
        self._patience = patience or Patience()
        self._form: Form = "schema"
        self._making = threading.Lock()

    async def ask(self, request: Request) -> Reply:
        """The model's reply. Raises ModelFault with a sentence once trying again is no use."""
        call = _Call(request)
        model = await asyncio.to_thread(self._get_model)
        while True:
            form: Form = self._form if request.wants == "analysis" and response_format(model, "json") else "text"
            answer = await self._try(model, call, form)
            if isinstance(answer, Reply):
                return answer.model_copy(update={"rows": tuple(call.rows), "broken": tuple(call.broken), "usage": sum_of(call.rows)})
            if form != "text" and answer.fault in _FORMAT_REFUSED:
                self._form = FORMS[FORMS.index(form) + 1]  # kept for later calls: the server will not learn it meanwhile
                continue
            call.failures.append(answer)
            pause = self._pause(answer, len(call.failures))
            if not self._may_retry(model, call, pause):
                raise self._fault(answer, call)
            notice(f"{self.name}: {_status(answer)}: {answer.detail}; next try in {pause:.0f} s")
            await asyncio.sleep(pause)

    def _get_model(self) -> BaseChatModel:
        with self._making:
            if self._model is None:
                made = self._source if isinstance(self._source, BaseChatModel) else self._from(self._source)
                if not isinstance(made, BaseChatModel):
                    raise UsageError(f"{self.name}: the factory made {type(made).__name__}; it must make a LangChain BaseChatModel")
                self._model = made
            return self._model

    def _from(self, factory: Callable[[], BaseChatModel]) -> BaseChatModel:
        try:
            return factory()
        except Exception as error:
            raise UsageError(f"{self.name}: the factory failed ({type(error).__name__}: {clean(str(error), self._secrets)})") from error

    def _may_retry(self, model: BaseChatModel, call: _Call, pause: float) -> bool:
        fault = call.failures[-1].fault
        if getattr(model, "max_retries", 0) != 0 and fault not in (Fault.PROTOCOL, Fault.CANCELLED):
            return False  # its library has tried already
        return sum(failure.fault is fault for failure in call.failures) < fault.tries and pause <= self._patience.longest

    def _pause(self, failure: Failure, tries: int) -> float:
        if failure.retry_after is not None:
            return failure.retry_after
        return min(self._patience.longest, self._patience.first * 2.0 ** (tries - 1) * (1 + random.random() / 4))

    def _fault(self, failure: Failure, call: _Call) -> ModelFault:
        asks = failure.retry_after is not None and failure.retry_after > self._patience.longest
        text = sentence(
            failure, name=self.name, place=self._place, key=self._key, tries=len(call.failures),
            seconds=time.monotonic() - call.started, total=self._patience.request,
        )  # fmt: skip
        text = f"{text}; it asks to wait {failure.retry_after:.0f} s" if asks else text
        return ModelFault(text, failure.fault, tuple(call.rows), tuple(call.broken))

    async def _try(self, model: BaseChatModel, call: _Call, form: Form) -> Reply | Failure:
        wire: list[Wire] = []
        note_library_call(call.request.label)
        started = time.monotonic()
        answer: Reply | Failure
        try:
            message = await in_daemon(lambda: _invoke(model, call.request, form, wire), self._patience.request)
            answer = reply_of(message, wire, form)
            usage = answer.usage
            if answer.finish_reason.lower() in _GIVEN_UP:
                raise RequestCancelled(f"the server ended its answer with `{answer.finish_reason}`")
        except Exception as error:  # noqa: BLE001 - a model's library raises what it likes, and any of it is a failed try
            answer, usage = failure_of(error, self._secrets, body_on(wire)), usage_on(wire)
            if body_on(wire):
                call.broken.append(censor(body_on(wire), self._secrets)[:_LONGEST_BROKEN])
        self._note(call, answer, usage, time.monotonic() - started)
        return answer

    def _note(self, call: _Call, answer: Reply | Failure, usage: Usage, seconds: float) -> None:
        request, ok = call.request, isinstance(answer, Reply)
        if usage.unreported and isinstance(answer, Reply):
            characters = sum(len(message.content) for message in request.messages)
            usage = usage.model_copy(
                update={
                    "input_tokens": characters // CHARACTERS_PER_TOKEN,
                    "output_tokens": (len(answer.text) + len(answer.reasoning)) // CHARACTERS_PER_TOKEN,
                }
            )
        call.rows.append(
            UsageRow(
                request=request.name,
                call=request.call,
                attempt=len(call.rows) + 1,
                stage=request.stage,
                role=request.role,
                model=self.name,
                status="ok" if isinstance(answer, Reply) else _status(answer),
                finish_reason=answer.finish_reason if isinstance(answer, Reply) else "",
                **usage.model_dump(include={"input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens"}),
                reported=not (ok and usage.unreported),
                dollars=dollars(usage, self.price) if ok or usage.tokens else 0.0,
                seconds=round(seconds, 3),
            )
        )


def _status(failure: Failure) -> str:
    return f"{failure.fault.value} ({failure.status})" if failure.status else failure.fault.value


def _invoke(model: BaseChatModel, request: Request, form: Form, wire: list[Wire]) -> AIMessage:
    spoken: list[BaseMessage] = [
        HumanMessage(turn.content) if turn.role == "user" else AIMessage(turn.content) for turn in request.messages
    ]
    with listen(wire):
        return model.invoke(spoken, about(request), **response_format(model, form))


async def in_daemon(work: Callable[[], Result], limit: float) -> Result:
    """Do blocking work in a thread that ends with the process. Neither Ctrl-C nor a limit then waits for a slow server.

    Raises TimeoutError after `limit` seconds, and RequestCancelled where the work was cancelled. A thread, because the asynchronous
    client of the OpenAI library belongs to the event loop that first used it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()
    context = contextvars.copy_context()

    def tell(result: Result | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None only where the result is None

    def run() -> None:
        result: Result | None = None
        fault: Exception | None = None
        try:
            result = context.run(work)
        except Exception as error:  # noqa: BLE001 - it is raised again where the work was asked for
            fault = error
        except BaseException as error:  # noqa: BLE001 - as it is, it would cancel or end whoever waits
            fault = RequestCancelled(f"the request was cancelled by {type(error).__module__.partition('.')[0]}")
        with suppress(RuntimeError):  # the loop has ended and nobody waits
            loop.call_soon_threadsafe(tell, result, fault)

    threading.Thread(target=run, name="tritonsmith-model", daemon=True).start()
    return await asyncio.wait_for(future, limit)
