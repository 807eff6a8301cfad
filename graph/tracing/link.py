"""The way to a trace server: bounded in time with any server, and silent but for one sentence.

LangSmith's client and OpenTelemetry's exporter both send through a `requests.Session`. This session sends in threads that die with the
process, and tries again only while the run goes on. Once closed it answers everything itself. So neither client waits, repeats or
complains.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests

OPENING_SECONDS = 0.75
"""The longest that a run waits before it begins to learn that a server is dead."""
CLOSING_SECONDS = 2.5
"""The longest that a run waits at its end for what was not sent yet."""
_REQUEST_SECONDS = 15.0
"""The longest that one request may take while the run goes on."""
_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between the tries of one request, while the run goes on."""
_REFUSED = (401, 403)
"""Answers of a server that does not take the key."""
_STEP = 0.02
"""Seconds between two looks whether an answer is there."""

logger = logging.getLogger("tritonsmith.tracing")
troubled: set[str] = set()
"""Addresses that failed in this process and have not answered since. Later runs do not wait for them and say nothing again."""


def _host(address: str) -> str:
    """Where an address leads to; itself where it is none, which the first request tells."""
    try:
        return urlsplit(address).hostname or address
    except ValueError:
        return address


class Link(requests.Session):
    """Sends for one run to one server."""

    def __init__(self, name: str, address: str, todo: str) -> None:
        """`name` is what the server is called in the one sentence about it, `todo` what to do about it."""
        super().__init__()
        self.off = False
        """Whether nothing is sent any more."""
        self.server_info: dict[str, Any] | None = None
        """The server's description of itself; None before it answered."""
        self.name = f"{name} at {_host(address)}"
        self._address, self._todo = address, todo
        self._deadline: float | None = None
        self._failing = False
        self._busy = 0
        self._warned = False
        self._lock = threading.Lock()

    def request(self, method: str, url: str | bytes, **options: Any) -> requests.Response:  # type: ignore[override]
        """Send, within the time there is; an empty answer of our own stands for one that did not come."""
        if hasattr(options.get("data"), "to_bytes"):
            options["data"] = options["data"].to_bytes()  # a body that can be read once cannot be sent twice
        elif hasattr(options.get("data"), "getvalue"):
            options["data"] = options["data"].getvalue()
        with self._lock:
            self._busy += 1
        try:
            return self._try(method, url, options)
        finally:
            with self._lock:
                self._busy -= 1

    @property
    def is_busy(self) -> bool:
        """Whether something is on its way."""
        return self._busy > 0

    def _try(self, method: str, url: str | bytes, options: dict[str, Any]) -> requests.Response:
        trouble = ""
        pauses = _PAUSES if self._deadline is None else _PAUSES[:1]
        for pause in (0.0, *(() if self._failing else pauses)):
            if not self._wait(pause):
                break
            answer = self._send(method, url, options)
            if isinstance(answer, requests.Response):
                if answer.status_code < 400 or answer.status_code in (404, 409):
                    self._failing = False
                    troubled.discard(self._address)
                    return answer
                trouble = f"answers {answer.status_code}"
                if answer.status_code in _REFUSED:
                    self.close_now(f"{self.name} refuses the key ({answer.status_code})")
                    break
                if answer.status_code not in (408, 425, 429) and answer.status_code < 500:
                    self.warn(f"{self.name} does not take a part of the trace ({answer.status_code})")
                    return _empty()
            else:
                trouble = answer
        if trouble and not self.off:
            self._failing = True
            self.warn(f"{self.name} {trouble}")
        return _empty()

    def finish_within(self, seconds: float) -> None:
        """From now on nothing is waited for longer than this in all."""
        self._deadline = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until nothing is waited for; many while the run goes on."""
        if self.off:
            return 0.0
        if self._deadline is None and not threading.main_thread().is_alive():
            self.finish_within(CLOSING_SECONDS)  # the interpreter is on its way out
        return _REQUEST_SECONDS if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def close_now(self, trouble: str = "") -> None:
        """Send nothing any more."""
        self.off = True
        if trouble:
            self.warn(trouble)

    def warn(self, trouble: str) -> None:
        """Say what is wrong and what to do: once for all troubles of a run, and not again for the next run."""
        with self._lock:
            first, self._warned = not self._warned and self._address not in troubled, True
            troubled.add(self._address)
        if first:
            logger.warning("%s; the run goes on, its trace is not complete: %s", trouble, self._todo)

    def _wait(self, pause: float) -> bool:
        until = time.monotonic() + pause
        while time.monotonic() < until and self.left > 0:
            time.sleep(_STEP)
        return self.left > 0

    def _send(self, method: str, url: str | bytes, options: dict[str, Any]) -> requests.Response | str:
        """The answer, or why there is none."""
        began, limit = time.monotonic(), self.left
        limited = {**options, "timeout": (min(limit, 5.0), limit)}
        send = super().request
        answer = in_thread(lambda: send(method, url, **limited))
        while not answer.wait(_STEP):
            spent = time.monotonic() - began
            if spent > _REQUEST_SECONDS or self.left <= 0:
                return f"does not answer within {spent:.0f} s"
        return answer.result


class PendingAnswer:
    """What a thread that dies with the process is doing."""

    def __init__(self) -> None:
        self.result: requests.Response | str = "was not asked"
        self._over = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Whether it is over, waiting at most so long."""
        return self._over.wait(seconds)

    def finish(self, result: requests.Response | str) -> None:
        """Note the answer, or why there is none."""
        self.result = result
        self._over.set()


def in_thread(send: Callable[[], requests.Response]) -> PendingAnswer:
    """Send in a separate thread, so that nobody waits for name servers, slow bytes or a silent server."""
    answer = PendingAnswer()

    def work() -> None:
        try:
            answer.finish(send())
        except requests.Timeout:
            answer.finish("does not answer in time")
        except requests.ConnectionError:
            answer.finish("cannot be reached")
        except Exception as error:  # noqa: BLE001 - a proxy, a certificate or a broken answer may raise anything; the run goes on
            answer.finish(f"cannot be used ({type(error).__name__})")

    threading.Thread(target=work, name="tritonsmith-trace", daemon=True).start()
    return answer


def probe(address: str, headers: Mapping[str, str], what: str = "info") -> PendingAnswer:
    """Begin to ask a LangSmith server what it is, or something else; `read_answer` reads the answer."""
    return in_thread(lambda: requests.get(f"{address.rstrip('/')}/{what}", headers=headers, timeout=_REQUEST_SECONDS))


def probe_otlp(address: str, headers: Mapping[str, str]) -> PendingAnswer:
    """Begin to send an OTLP server no spans at all, which every one of them takes."""
    kind = {**headers, "Content-Type": "application/x-protobuf"}
    return in_thread(lambda: requests.post(address, data=b"", headers=kind, timeout=_REQUEST_SECONDS))


def read_answer(pending: PendingAnswer, seconds: float, *, keyed: bool = False) -> tuple[dict[str, Any] | None, str]:
    """A server's description of itself, and what is wrong with it; neither, if the time is over before it answers.

    `keyed` says that it was sent the key, so that it should not ask for one.
    """
    if not pending.wait(max(0.0, seconds)):
        return None, ""
    answer = pending.result
    if isinstance(answer, str):
        return None, answer
    if answer.status_code >= 500:
        return None, f"answers {answer.status_code}"
    if keyed and answer.status_code in _REFUSED:
        return None, f"refuses the key ({answer.status_code})"
    try:
        info = answer.json() if answer.ok and "json" in answer.headers.get("content-type", "") else {}
    except ValueError:
        info = {}
    return (info if isinstance(info, dict) else {}), ""


def _empty() -> requests.Response:
    answer = requests.Response()
    answer.status_code = 202
    answer._content = b"{}"
    return answer
