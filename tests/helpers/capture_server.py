"""A local server that takes traces as LangSmith does (and spans as OTLP servers do), remembers all of them, and can be slow or broken.

Runs come as parts of `POST /runs/multipart` (`post.<id>`, `post.<id>.inputs`, ..., `patch.<id>`, `feedback.<id>`), packed with zstd
where `GET /info` offers that, or as JSON to `POST /runs/batch`; an update of a run is laid over what was there.
"""

import json
import re
import socket
import threading
import time
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import zstandard

Json = dict[str, Any]


class CaptureServer:
    """Runs in a thread while the `with` block lasts. `mode` is what it does with a request: ok, 500, 401, slow, silent, drip or die."""

    def __init__(self, mode: str = "ok", *, zstd: bool = True, multipart: bool = True, batch_feedback: bool = True) -> None:
        """`slow` takes 2 s for each request, `drip` sends one byte after another, `die` is gone after the first part of a trace.

        Without `multipart` it is a server that knows `/runs/batch` alone, without `batch_feedback` one that wants `/feedback`.
        """
        self.mode, self.zstd, self.multipart, self.batch_feedback = mode, zstd, multipart, batch_feedback
        self.runs: dict[str, Json] = {}
        self.feedback: list[Json] = []
        self.spans: list[bytes] = []
        """Bodies of what came to `/v1/traces`."""
        self.heard: list[bytes] = []
        """Every request whole, unpacked: its path, its headers without the one that is for the key, and its body."""
        self.keys: set[str] = set()
        """What stood in `x-api-key`."""
        self.paths: list[str] = []
        self._lock = threading.Lock()
        self._dead = False
        self._released = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(b"")

            def do_POST(self) -> None:
                self._answer(self._body())

            def do_PATCH(self) -> None:
                self._answer(self._body())

            def _body(self) -> bytes:
                if self.headers.get("transfer-encoding", "") == "chunked":
                    parts = []
                    while size := int(self.rfile.readline(), 16):
                        parts.append(self.rfile.read(size))
                        self.rfile.readline()
                    self.rfile.readline()
                    return b"".join(parts)
                return self.rfile.read(int(self.headers.get("content-length", 0)))

            def _answer(self, body: bytes) -> None:
                if server._dead:
                    self.connection.close()
                    return
                status, told = server.answer(self.path, dict(self.headers), body)
                data = json.dumps(told).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(data) + (10_000 if server.mode == "drip" else 0)))
                    self.end_headers()
                    while server.mode == "drip" and not server._released.wait(0.1):
                        self.wfile.write(b" ")
                    self.wfile.write(data)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client has given up, as some tests want

            def finish(self) -> None:
                with suppress(OSError, ValueError):  # of a connection that was closed above
                    super().finish()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._released.set()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, headers: Json, body: bytes) -> tuple[int, Any]:
        """Status and JSON body for one request."""
        if self.mode == "silent":
            self._released.wait(60)
        if self.mode == "slow":
            self._released.wait(2)
        if self.mode.isdigit() and not (self.mode == "401" and path == "/info"):
            return int(self.mode), {"detail": "broken"}
        if headers.get("Content-Encoding") == "zstd":
            body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
        with self._lock:
            self.paths.append(path)
            others = {name: value for name, value in headers.items() if name.lower() != "x-api-key"}
            self.keys |= set(headers.values()) - set(others.values())
            self.heard.append(f"{path} {others}\n".encode() + body)
            self._dead = self.mode == "die" and path == "/runs/multipart"
            return self._taken(path, headers, body)

    def _taken(self, path: str, headers: Json, body: bytes) -> tuple[int, Any]:
        if path == "/info":
            limits = {
                "use_multipart_endpoint": self.multipart, "size_limit": 100, "size_limit_bytes": 20_000_000,
                "scale_up_nthreads_limit": 16, "scale_up_qsize_trigger": 1000, "scale_down_nempty_trigger": 4,
            }  # fmt: skip
            version = "0.12.0" if self.batch_feedback else "0.7.0"
            return 200, {"version": version, "batch_ingest_config": limits, "instance_flags": {"zstd_compression_enabled": self.zstd}}
        if path == "/runs/multipart" and self.multipart:
            self._parts(headers["Content-Type"], body)
            return 202, {}
        if path == "/runs/batch":
            told = json.loads(body)
            for run in (*told.get("post", ()), *told.get("patch", ())):
                self._lay(run["id"], run)
            return 202, {}
        if path == "/feedback":
            self.feedback.append(json.loads(body))
            return 200, {}
        if path == "/v1/traces":
            self.spans.append(body)
            return 200, {}
        return 404, {"detail": "not found"}

    def _parts(self, kind: str, body: bytes) -> None:
        boundary = re.search(r"boundary=([^;]+)", kind)[1].strip('"').encode()  # type: ignore[index]
        for part in body.split(b"--" + boundary)[1:-1]:
            head, _, data = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
            name = re.search(rb'name="([^"]+)"', head)[1].decode()  # type: ignore[index]
            told = json.loads(data.removesuffix(b"\r\n"))
            what, run, *field = name.split(".")
            if what == "feedback":
                self.feedback.append(told)
            else:
                self._lay(run, {field[0]: told} if field else told)

    def _lay(self, run: str, fields: Json) -> None:
        known = self.runs.setdefault(run, {"id": run})
        known.update({name: value for name, value in fields.items() if value is not None})

    def recover(self) -> None:
        """Answer as one should from now on."""
        self.mode = "ok"
        self._released.set()

    def said(self) -> bytes:
        """Everything that was ever sent here."""
        return b"\n".join(self.heard)

    def roots(self) -> list[Json]:
        """Runs without a parent, in the order of their beginning."""
        return sorted((run for run in self.runs.values() if not run.get("parent_run_id")), key=lambda run: run["dotted_order"])

    def under(self, parent: Json) -> list[Json]:
        """The runs right below one, in the order of their beginning."""
        return sorted((run for run in self.runs.values() if run.get("parent_run_id") == parent["id"]), key=lambda run: run["dotted_order"])

    def all_under(self, parent: Json) -> list[Json]:
        """All runs below one, parents first."""
        return [one for child in self.under(parent) for one in (child, *self.all_under(child))]

    def tree(self, parent: Json) -> list[Any]:
        """Names below a run: a name, or a name with what is below it."""
        return [(run["name"], below) if (below := self.tree(run)) else run["name"] for run in self.under(parent)]


def closed_port() -> str:
    """An address where nobody listens."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def wait_for(met: Any, seconds: float = 20.0) -> bool:
    """Whether something comes true within a time that is long enough on any machine."""
    until = time.monotonic() + seconds
    while not met() and time.monotonic() < until:
        time.sleep(0.02)
    return bool(met())
