"""A local server that speaks the OpenAI chat protocol over real HTTP and plays a script: replies, faults and delays, turn by turn.

It knows keys, models and response formats as far as it is told to, counts tokens by words, and remembers every request and
every `usage` it reported, so that a test can hold a ledger against it.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Json = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """What the server does with one request."""

    text: str | None = ""
    finish: str = "stop"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    """Sent instead of a completion; its type is guessed from its first character."""
    delay: float = 0.0
    """Seconds before the answer."""
    cached: int = 0
    thought: int = 0
    """Reasoning tokens, reported among the output."""
    reasoning: str = ""
    """Sent apart from the text, as DeepSeek and vLLM do."""
    usage: bool = True
    """Whether the server tells the tokens."""
    choices: bool = True
    """Whether there is anything in `choices`."""


def fault(status: int, message: str, code: str = "", **headers: str) -> Turn:
    """An error in the protocol's words."""
    body = json.dumps({"error": {"message": message, "type": "error", "code": code or None}})
    return Turn(status=status, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def busy(retry_after: str = "0.01") -> Turn:
    """429 with a time to wait."""
    return fault(429, "Rate limit reached", "rate_limit_exceeded", Retry_After=retry_after)


HTML = Turn(body="<!doctype html><html><body>Welcome to the router</body></html>")
HALF = Turn(body='{"id": "x", "choices": [{"message": {"content": "cut')
NO_CHOICES = Turn(choices=False)

Script = Sequence[Turn | str] | Callable[[Json], Turn | str]


class ChatServer:
    """Runs in a thread while the `with` block lasts; a script that is used up answers 500."""

    def __init__(
        self,
        script: Script = (),
        *,
        key: str | None = "sk-local-test-key",
        models: Sequence[str] = ("toy",),
        formats: Sequence[str] = ("json_schema", "json_object"),
    ) -> None:
        """`key` None asks for none; `formats` are the response formats that are not refused."""
        self.script, self.key, self.models, self.formats = script, key, tuple(models), tuple(formats)
        self.requests: list[Json] = []
        """The body of every request, in the order of arrival."""
        self.reported: list[Json] = []
        """Every `usage` that was sent."""
        self._lock = threading.Lock()
        self._played = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, headers, answer = server.answer(self.path, dict(self.headers), body)
                data = answer.encode()
                kind = "application/json" if answer.startswith("{") else "text/html"
                try:
                    self.send_response(status)
                    for name, value in {"content-type": kind, "content-length": str(len(data)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(data)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client has given up, as some tests want

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> tuple[int, Mapping[str, str], str]:
        """Status, headers and body for one request."""
        with self._lock:
            self.requests.append(body)
        refused = self._refusal(path, {name.lower(): value for name, value in headers.items()}, body)
        turn = refused or self._turn(body)
        time.sleep(turn.delay)
        if turn.body is not None:
            return turn.status, turn.headers, turn.body
        if path == "/v1/responses":
            return turn.status, turn.headers, json.dumps(self._response(turn, body))
        return turn.status, turn.headers, json.dumps(self._completion(turn, body))

    def told(self, name: str) -> int:
        """Sum of one figure over everything that was reported: `prompt_tokens`, `cached_tokens`, ..."""
        return sum(
            usage.get(name, 0) + usage["prompt_tokens_details"].get(name, 0) + usage["completion_tokens_details"].get(name, 0)
            for usage in self.reported
        )

    def _refusal(self, path: str, headers: Mapping[str, str], body: Json) -> Turn | None:
        if path not in ("/v1/chat/completions", "/v1/responses"):
            return Turn(status=404, body="<html>404 page not found</html>")
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if self.key is not None and given != self.key:
            return fault(401, f"Incorrect API key provided: {given}", "invalid_api_key")
        if body["model"] not in self.models:
            return fault(404, f"The model `{body['model']}` does not exist", "model_not_found")
        form = body.get("response_format", {}).get("type")
        if form is not None and form not in self.formats:
            return fault(400, f"response_format {form} is not supported")
        return None

    def _turn(self, body: Json) -> Turn:
        with self._lock:
            number, self._played = self._played, self._played + 1
        if callable(self.script):
            turn = self.script(body)
        else:
            turn = self.script[number] if number < len(self.script) else fault(500, "the script is used up")
        return Turn(turn) if isinstance(turn, str) else turn

    def _response(self, turn: Turn, body: Json) -> Json:
        """The same in the words of the Responses API."""
        chat = self._completion(turn, {"model": body["model"], "messages": body["input"]})
        told, cut = chat["usage"], turn.finish == "length"
        part = {"type": "output_text", "text": turn.text, "annotations": []}
        usage = {
            "input_tokens": told["prompt_tokens"], "output_tokens": told["completion_tokens"], "total_tokens": told["total_tokens"],
            "input_tokens_details": told["prompt_tokens_details"], "output_tokens_details": told["completion_tokens_details"],
        }  # fmt: skip
        return {
            "id": "x", "object": "response", "created_at": 1, "model": body["model"], "usage": usage, "parallel_tool_calls": False,
            "tool_choice": "auto", "tools": [], "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}],
        }  # fmt: skip

    def _completion(self, turn: Turn, body: Json) -> Json:
        read = sum(len(message["content"].split()) for message in body["messages"])
        wrote = len((turn.text or "").split()) + turn.thought
        usage = {
            "prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote,
            "prompt_tokens_details": {"cached_tokens": turn.cached}, "completion_tokens_details": {"reasoning_tokens": turn.thought},
        }  # fmt: skip
        message: Json = {"role": "assistant", "content": turn.text}
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        choices = [{"index": 0, "message": message, "finish_reason": turn.finish}] if turn.choices else []
        made: Json = {"id": "x", "object": "chat.completion", "created": 1, "model": body["model"], "choices": choices}
        if turn.usage:
            made["usage"] = usage
            with self._lock:
                self.reported.append(usage)
        return made


TASK = """
import torch
from torch import nn

N = 1024
SMALL = {"N": 16}


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""


def kernel(number: int) -> str:
    """A module that no evaluator but a scripted one has to judge."""
    return f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n    number = {number}\n"


def answer(number: int, **more: Any) -> Turn:
    """What a model says that wrote this kernel."""
    return Turn(f"Kernel {number}.\n```python\n{kernel(number)}```\n", **more)


def analysis(**fields: Any) -> str:
    """An analysis that proposes one launch instead of seven, as JSON."""
    base = {
        "returns": "a tensor", "bottleneck": "7 launches", "category": "launch_reduction", "optimisation_method": "one launch",
        "modification_plan": "put the loop into the kernel", "expected_speedup": 3.0, "worth_optimizing": True, "reason": "",
        "implementation_complexity": "low", "kernel_type": "pointwise", "fallback_strategy": "",
        "promise": {"metric": "launches_per_forward", "before": 7, "bound": 1, "at_most": True},
    }  # fmt: skip
    return json.dumps({**base, **fields})
