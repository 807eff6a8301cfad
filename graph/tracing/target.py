"""Where traces go, as the environment says, and whether anybody answers there."""

import importlib.util
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tritonsmith.graph.tracing.link import OPENING_SECONDS, Link, logger, probe, probe_otlp, read_answer, troubled

HOSTED = "https://api.smith.langchain.com"
"""LangSmith's own server; the only one that always needs a key."""
LOOK_SECONDS = 3.0
"""How long somebody who asks whether a server is there is made to wait."""
_LATE = f"does not answer within {LOOK_SECONDS:g} s"
_YES = ("true", "1", "yes", "on")


@dataclass(frozen=True)
class Target:
    """What the environment asks for."""

    smith: bool = False
    """Whether traces go to LangSmith."""
    endpoint: str = HOSTED
    key: str = ""
    project: str = "default"
    otel: bool = False
    """Whether spans go to an OTLP server."""
    otlp: str = ""
    """Address that takes spans; empty where none is named."""
    otlp_headers: str = ""
    """Headers that it is sent with them, as `name=value,...`."""

    @property
    def wanted(self) -> bool:
        """Whether anything is to be sent anywhere."""
        return self.smith or self.otel

    @property
    def fault(self) -> str:
        """Why a trace cannot go where it should, and what to do; empty when nothing is known to be wrong."""
        if self.smith and self.endpoint == HOSTED and not self.key:
            return "LANGSMITH_TRACING is set and LANGSMITH_API_KEY is not: set the key, or unset LANGSMITH_TRACING"
        if self.otel and not has_otel():
            return "LANGSMITH_OTEL_ENABLED is set and OpenTelemetry is not installed: pip install 'tritonsmith[otel]'"
        if self.otel and not self.otlp:
            return "LANGSMITH_OTEL_ENABLED is set and OTEL_EXPORTER_OTLP_ENDPOINT is not: name the server there (http://HOST:4318)"
        return ""


def has_otel() -> bool:
    """Whether the extra `otel` is installed."""
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def target_of(environment: Mapping[str, str]) -> Target:
    """Where the variables of the environment send traces; LANGCHAIN_ names are the older ones."""

    def value(name: str) -> str:
        return (environment.get(f"LANGSMITH_{name}") or environment.get(f"LANGCHAIN_{name}") or "").strip().strip("\"'")

    base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/")
    otlp = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "") or (f"{base}/v1/traces" if base else "")
    return Target(
        smith=any(value(name).lower() in _YES for name in ("TRACING", "TRACING_V2")),
        endpoint=(value("ENDPOINT") or HOSTED).rstrip("/"),
        key=value("API_KEY"),
        project=value("PROJECT") or "default",
        otel=value("OTEL_ENABLED").lower() in _YES,
        otlp=otlp,
        otlp_headers=environment.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environment.get("OTEL_EXPORTER_OTLP_HEADERS", ""),
    )


def open_links(target: Target) -> tuple[Link | None, Link | None]:
    """Ways to LangSmith and to the OTLP server; None where there is none, and one warning says why.

    Both are asked at the same time. A server that takes longer to answer is given the chance to do so while the run goes on.
    """
    if target.fault:
        logger.warning("%s; the run goes on without a trace there", target.fault)
    smith = target.smith and (target.key or target.endpoint != HOSTED)
    otlp = target.otel and bool(target.otlp) and has_otel()
    began = time.monotonic()
    asked = probe(target.endpoint, {}) if smith else None
    sent = probe_otlp(target.otlp, _headers(target)) if otlp else None
    links: list[Link | None] = []
    for pending, name, address, keyed, todo in (
        (asked, "LangSmith", target.endpoint, False, "see LANGSMITH_ENDPOINT and LANGSMITH_API_KEY, or unset LANGSMITH_TRACING"),
        (sent, "the OTLP server", target.otlp, True, "see OTEL_EXPORTER_OTLP_ENDPOINT, or unset LANGSMITH_OTEL_ENABLED"),
    ):
        if pending is None:
            links.append(None)
            continue
        link = Link(name, address, todo)
        link.server_info, trouble = read_answer(pending, OPENING_SECONDS - (time.monotonic() - began), keyed=keyed)
        if not trouble and link.server_info is None and address in troubled:
            trouble = "does not answer"  # a run before this one has waited for it
        if trouble:
            link.close_now(f"{link.name} {trouble}")
        links.append(None if link.off else link)
    return links[0], links[1]


def look(target: Target) -> list[tuple[str, str, str]]:
    """Each server that traces go to, with its address and what is wrong with it. For people who ask before they begin."""
    found = []
    if target.smith and (target.key or target.endpoint != HOSTED):
        info, trouble = read_answer(probe(target.endpoint, {}), LOOK_SECONDS)
        if info is not None and not trouble:
            trouble = read_answer(probe(target.endpoint, {"x-api-key": target.key}, "sessions?limit=1"), LOOK_SECONDS, keyed=True)[1]
        found.append(("LangSmith", f"{target.endpoint}, project {target.project}", trouble if info is not None else trouble or _LATE))
    if target.otel and target.otlp and has_otel():
        info, trouble = read_answer(probe_otlp(target.otlp, _headers(target)), LOOK_SECONDS, keyed=True)
        found.append(("OpenTelemetry", target.otlp, trouble if info is not None else trouble or _LATE))
    return found


def _headers(target: Target) -> dict[str, str]:
    from opentelemetry.util.re import parse_env_headers  # noqa: PLC0415 - an optional extra

    return dict(parse_env_headers(target.otlp_headers, liberal=True))


def provider_for(address: str, link: Link) -> Any:
    """An OpenTelemetry provider whose spans go through the link; only where the extra is installed."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an optional extra
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    provider = TracerProvider(resource=Resource.create({"service.name": "tritonsmith"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address, session=link), schedule_delay_millis=500))
    return provider
