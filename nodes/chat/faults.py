"""Failures of a model: each has a kind, a number of tries, and a last sentence for the user."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from time import time
from typing import Any

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
    ModelRateLimitError,
    ModelTimeoutError,
)

from tritonsmith.nodes.chat.records import UsageRow
from tritonsmith.prompts.author import AuthorError

_DETAIL = 300
"""Characters of a server's own words that a sentence quotes."""
_TOO_LONG = ("context_length_exceeded", "maximum context length", "context window", "prompt is too long", "too many tokens")
"""How servers say that a prompt is too long."""


class Fault(StrEnum):
    """Why a request to a model brought no reply."""

    KEY = "wrong key"
    DENIED = "not permitted"
    MODEL = "unknown model"
    ADDRESS = "wrong address"
    NETWORK = "no connection"
    BUSY = "busy"
    QUOTA = "quota used up"
    SERVER = "server error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    PROTOCOL = "not a chat reply"
    TOO_LONG = "prompt too long"
    REFUSED = "request refused"

    @property
    def tries(self) -> int:
        """How often one call is tried in all before this fault ends it."""
        return {Fault.BUSY: 6, Fault.SERVER: 4, Fault.NETWORK: 3, Fault.TIMEOUT: 2, Fault.CANCELLED: 2, Fault.PROTOCOL: 2}.get(self, 1)

    @property
    def of_the_request(self) -> bool:
        """Whether another request may well succeed; the other faults end the run."""
        return self in (Fault.TOO_LONG, Fault.REFUSED)


_STATUS = {
    401: Fault.KEY,
    402: Fault.QUOTA,
    403: Fault.DENIED,
    404: Fault.MODEL,
    405: Fault.ADDRESS,
    408: Fault.BUSY,
    409: Fault.BUSY,
    413: Fault.TOO_LONG,
    425: Fault.BUSY,
    429: Fault.BUSY,
}
_GIVEN_UP = 499
"""The status of servers for a request that was cancelled on their side."""


class RequestCancelled(Exception):
    """A request that was given up before its end, by the model's library or by the server; nobody's time was up."""


class ModelFault(AuthorError):
    """A model that could not be asked; `fault` says how it failed, `rows` what the tries cost."""

    def __init__(self, message: str, fault: Fault, rows: tuple[UsageRow, ...] = (), broken: tuple[str, ...] = ()) -> None:
        """`message` is the sentence for the user, `broken` are the raw answers."""
        super().__init__(message)
        self.fault = fault
        self.rows = rows
        self.broken = broken


@dataclass(frozen=True)
class Failure:
    """One failed try."""

    fault: Fault
    detail: str
    """The server's or the library's own words, short, without keys."""
    status: int | None = None
    """Of HTTP."""
    retry_after: float | None = None
    """Seconds that the server asks to wait."""


def failure_of(error: Exception, secrets: Iterable[str] = (), body: str = "") -> Failure:
    """The meaning of an exception of a chat model, from any library. `body` is the raw reply where it is known."""
    code = getattr(error, "status_code", None)
    status = code if isinstance(code, int) else None
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", {})
    fault = _kind(error, status, body)
    waits = _retry_after(headers) if fault in (Fault.BUSY, Fault.SERVER) else None
    return Failure(fault=fault, detail=clean(_words(error, body), secrets), status=status, retry_after=waits)


def sentence(failure: Failure, *, name: str, place: str, key: str, tries: int, seconds: float, total: float) -> str:
    """The end of a failed call for the user: who failed, in whose words, and the way out."""
    words = f"{f'{failure.status}: ' if failure.status else ''}{failure.detail}"
    where = f"{name} at {place}" if place else name
    after = f" after {tries} tries in {seconds:.0f} s" if tries > 1 else ""
    texts = {
        Fault.KEY: f"{where} refuses the key ({words}); set {key or 'its key'} to a key that is valid there",
        Fault.DENIED: f"{where} does not permit this request ({words}); use a key or a model with access",
        Fault.MODEL: f"{where}: the server knows no such model ({words}); check the name after openai: in --model",
        Fault.ADDRESS: f"{where}: there is no chat service at this address ({words}); check --base-url, which often ends in /v1",
        Fault.NETWORK: f"{where} cannot be reached{after} ({words}); check --base-url and the network",
        Fault.BUSY: f"{where} is too busy{after} ({words}); try later, or with fewer --seeds",
        Fault.QUOTA: f"{where}: the account has nothing left ({words}); add credit, or use another model",
        Fault.SERVER: f"{where} fails{after} ({words}); try later, or another model",
        Fault.TIMEOUT: f"{where} did not answer within {total:g} s{after}; raise --model-timeout, or use a faster model",
        Fault.CANCELLED: f"{where} gave the request up{after} ({words}); try later, or another model",
        Fault.PROTOCOL: f"{where} sends no chat completion{after} ({words}); check that --base-url is an OpenAI-compatible address",
        Fault.TOO_LONG: f"{where}: the prompt is longer than the model takes ({words}); use a model with a longer context",
        Fault.REFUSED: f"{where} refuses the request ({words}); check --model and its settings",
    }
    return texts[failure.fault]


def clean(text: str, secrets: Iterable[str]) -> str:
    """One short line without keys."""
    return " ".join(censor(text, secrets).split())[:_DETAIL]


def censor(text: str, secrets: Iterable[str]) -> str:
    """The text without keys."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "[key]")
    return text


def _kind(error: Exception, status: int | None, body: str) -> Fault:
    if isinstance(error, RequestCancelled) or status == _GIVEN_UP:  # which LangChain takes for a wrong request
        return Fault.CANCELLED
    if isinstance(error, TimeoutError | ModelTimeoutError):  # before ModelConnectionError, whose kind it also is
        return Fault.TIMEOUT
    text = f"{error} {body}".lower()
    if isinstance(error, ContextOverflowError) or (status in (400, 413, 422) and any(words in text for words in _TOO_LONG)):
        return Fault.TOO_LONG
    if isinstance(error, ModelNotFoundError):
        return Fault.MODEL if _is_json(body) and "model" in body.lower() else Fault.ADDRESS
    if isinstance(error, ModelRateLimitError):
        return Fault.QUOTA if "insufficient_quota" in text else Fault.BUSY
    table = (
        (ModelAuthenticationError, Fault.KEY),
        (ModelPermissionDeniedError, Fault.DENIED),
        (ModelInvalidRequestError, Fault.REFUSED),
        (ModelConnectionError, Fault.NETWORK),
        (ModelAPIError, Fault.SERVER),
    )
    for kind, fault in table:
        if isinstance(error, kind):
            return fault
    if status is not None:  # what LangChain does not sort, and libraries that it does not know
        return _STATUS.get(status, Fault.SERVER if status >= 500 else Fault.REFUSED)
    if _openai_body(error) is not None:
        return Fault.SERVER
    words = type(error).__name__
    if isinstance(error, OSError) or "Connect" in words or "Timeout" in words:  # of other libraries
        return Fault.TIMEOUT if "Timeout" in words else Fault.NETWORK
    return Fault.PROTOCOL  # HTML, half a JSON object, no choices: the library fails on these with the first error it meets


def _openai_body(error: Exception) -> dict[str, Any] | None:
    """What a server told the OpenAI library, empty where that is no object; None for errors of others."""
    from openai import APIError  # noqa: PLC0415 - a second, and only after a failure

    if not isinstance(error, APIError):
        return None
    return error.body if isinstance(error.body, dict) else {}


def _words(error: Exception, body: str) -> str:
    told = _openai_body(error)
    if told:
        found: Any = told.get("message") or told.get("detail") or told.get("error")
        if found:
            return str(found)
    if body and told is None:
        return f"it sent {body[:120]!r}"
    if isinstance(error, RequestCancelled):
        return str(error)
    if isinstance(error, TimeoutError):  # its cause is how the waiting was ended
        return str(error) or "no answer in time"
    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    text = str(root) if isinstance(error, ModelConnectionError) else str(error)
    return f"{type(root).__name__}: {text.partition(chr(10))[0]}" if text else type(root).__name__


def _retry_after(headers: Any) -> float | None:
    """Seconds from `retry-after-ms` or `Retry-After` (seconds or a date)."""
    try:
        if headers.get("retry-after-ms"):
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        given = headers.get("retry-after")
        if not given:
            return None
        try:
            return max(0.0, float(given))
        except ValueError:
            return max(0.0, parsedate_to_datetime(given).timestamp() - time())
    except (ValueError, TypeError, AttributeError):
        return None


def _is_json(body: str) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False
