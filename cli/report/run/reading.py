"""The folder of a run, as far as it is there: unfinished runs and old ones lack files, and a killed run may end in half a line."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Allow, Candidate, PrecisionClass, Stage, Task, Verdict
from tritonsmith.evaluator.tasks.declarations import Mode
from tritonsmith.graph.pool import best
from tritonsmith.graph.state import Decision, State, Usage
from tritonsmith.graph.storage.files import fault_of, lines_of, parse_object
from tritonsmith.graph.storage.folder import Event
from tritonsmith.graph.storage.summary import Summary, summarize
from tritonsmith.nodes.chat.ledger import read_rows
from tritonsmith.nodes.chat.records import UsageRow

Read = TypeVar("Read")
_FINISHED = ("end", "stop", "stopped")
"""Events after which nothing is decided."""


@dataclass(frozen=True)
class RunFiles:
    """Everything that a run has written so far."""

    folder: Path
    settings: dict[str, Any]
    """`run.json`; empty for a run that kept none."""
    events: tuple[Event, ...]
    stored: Summary | None
    """`summary.json`; None while the run is not over."""
    quick: dict[str, Verdict]
    strict: dict[str, Verdict]
    calls: tuple[dict[str, Any], ...]
    """Requests to models with their replies, in the order of asking."""
    rows: tuple[UsageRow, ...]
    """The lines of `usage.csv`."""
    problems: tuple[str, ...] = field(default=())
    """Files that could not be read, one sentence each."""

    @property
    def finished(self) -> bool:
        """Whether `summary.json` covers everything that happened."""
        return self.stored is not None and not self._went_on

    @property
    def _went_on(self) -> bool:
        """Whether a process has begun after the last end."""
        begun = [index for index, event in enumerate(self.events) if event.get("event") == "run"]
        ended = [index for index, event in enumerate(self.events) if event.get("event") in _FINISHED]
        return bool(begun and ended) and max(begun) > max(ended)

    @cached_property
    def summary(self) -> Summary:
        """`summary.json`, or the same made from the events so far."""
        return self.stored if self.stored is not None and self.finished else _summarize_so_far(self)

    def verdict(self, candidate: str) -> Verdict | None:
        """The verdict that counts: the strict one, once there is one."""
        found = self.strict.get(candidate) or self.quick.get(candidate)
        winner = self.summary.best
        return winner.verdict if found is None and winner is not None and winner.id == candidate else found

    def kernel(self, sha: str) -> str | None:
        """A kernel's text; None where the file is gone."""
        if not sha.isalnum():  # it names a file
            return None
        return _read_text(self.folder / "kernels" / f"{sha}.py")

    @cached_property
    def seconds(self) -> tuple[float, ...]:
        """For each event the working seconds of the run so far; the time between two processes does not count."""
        clock, past, times = 0.0, None, []
        for event in self.events:
            now = _time_of(event) or past
            if past is not None and now is not None and event.get("event") != "run":
                clock += max(0.0, (now - past).total_seconds())
            past = now
            times.append(clock)
        return tuple(times)


def read_run(folder: Path) -> RunFiles:
    """Read what is there. Raises UsageError when the folder is not a run's."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder; name the folder of a run or of an ablation")
    problems: list[str] = []
    events = _read_events(folder / "events.jsonl", problems)
    stored = _read_record(folder / "summary.json", Summary.model_validate_json, problems)
    if stored is None and not events and problems:
        raise UsageError(f"{folder}: {'; '.join(problems)}; name the folder that a run wrote, or remove what is broken and resume the run")
    if stored is None and not events:
        raise UsageError(f"{folder}: neither summary.json nor events.jsonl of a run lies there; name the folder that a run wrote")
    settings, usage = _read_record(folder / "run.json", parse_object, problems) or {}, folder / "usage.csv"
    return RunFiles(
        folder=folder, settings=settings, events=events, stored=stored,
        quick=_read_verdicts(folder, "", problems), strict=_read_verdicts(folder, ".strict", problems),
        calls=_read_calls(folder, problems), rows=tuple(_read_record(usage, lambda _: read_rows(usage), problems) or ()),
        problems=tuple(problems),
    )  # fmt: skip


def run_config(files: RunFiles) -> dict[str, Any]:
    """The settings of the run as RunConfig names them; older runs kept them without a cover."""
    inner = files.settings.get("settings", files.settings)
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _read_record(path: Path, parse: Callable[[str], Read], problems: list[str]) -> Read | None:
    text = _read_text(path)
    if text is None:
        return None
    try:
        return parse(text)
    except (ValueError, KeyError, TypeError) as error:
        problems.append(f"{path.name} cannot be read ({fault_of(error)})")
        return None


def _read_events(path: Path, problems: list[str]) -> tuple[Event, ...]:
    lines, events, broken = lines_of((_read_text(path) or "").encode()), [], 0
    for line in lines:
        try:
            events.append(parse_object(line))
        except ValueError:
            broken += bool(line.strip())
    if broken:
        problems.append(f"{path.name}: {broken} of {len(lines)} lines cannot be read; a run that is killed may leave half a line")
    return tuple(events)


def _read_verdicts(folder: Path, suffix: str, problems: list[str]) -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    for path in sorted((folder / "verdicts").glob(f"*{suffix}.json")):
        name = path.name.removesuffix(f"{suffix}.json")
        if "." in name:  # the strict ones, where the quick ones are wanted
            continue
        verdict = _read_record(path, Verdict.model_validate_json, problems)
        if verdict is not None:
            found[name] = verdict
    return found


def _read_calls(folder: Path, problems: list[str]) -> tuple[dict[str, Any], ...]:
    paths = sorted((folder / "llm").glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    found = ((path.stem, _read_record(path, parse_object, problems)) for path in paths)
    return tuple({"file": name, **call} for name, call in found if call is not None)


def _summarize_so_far(files: RunFiles) -> Summary:
    """What a summary would say now; the best candidate so far is the winner, not confirmed unless its strict verdict is there."""
    config, stored = run_config(files), files.stored
    begun = next((event for event in files.events if event.get("event") == "run"), {})
    described = next((event for event in files.events if event.get("task")), {})
    state = _make_state(files, config, str(begun.get("task") or described.get("task") or config.get("task") or files.folder.name))
    hardware = next((verdict.environment for verdict in {**files.quick, **files.strict}.values() if verdict.environment), {})
    summary = summarize(
        state,
        policy=str(begun.get("policy") or config.get("policy") or next((decision.policy for decision in state["decisions"].values()), "")),
        model=str(begun.get("model") or config.get("model") or ""),
        target=str(begun.get("target") or hardware.get("card") or hardware.get("target") or config.get("target") or ""),
        seconds=files.seconds[-1] if files.seconds else 0.0,
        out=str(files.folder),
    )
    last = str(files.events[-1].get("time", "")) if files.events else ""
    return summary.model_copy(update={"date": last, "prompts": stored.prompts if stored else {}})


def _make_state(files: RunFiles, config: dict[str, Any], task: str) -> State:
    candidates = {candidate.id: candidate for candidate in map(_parse_candidate, files.events) if candidate is not None}
    verdicts = {cid: verdict for cid, verdict in {**files.quick, **files.strict}.items() if cid in candidates}
    searched = {cid: files.quick[cid].score for cid in files.strict if cid in files.quick}
    allow = Allow(config["allow"]) if config.get("allow") in list(Allow) else Allow.HYBRID
    leader = best(candidates, verdicts, allow)
    size = next((str(event["size"]) for event in files.events if event.get("size")), str(config.get("size") or ""))
    decisions = [decision for decision in map(_parse_decision, files.events) if decision is not None]
    precision = PrecisionClass(config["precision"]) if config.get("precision") in list(PrecisionClass) else PrecisionClass.IEEE
    mode: Mode = "train" if config.get("mode") == "train" else "eval"
    calls = {str(call.get("file")): usage for call in files.calls if (usage := _parse_usage(call)) is not None}
    return {
        "task": Task(name=Path(task).stem, path="", source="", size=size, precision=precision, mode=mode),
        "candidates": candidates, "verdicts": verdicts, "allow": allow, "winner": leader.id if leader else None,
        "searched": {cid: score for cid, score in searched.items() if score is not None},
        "decisions": {decision.id: decision for decision in decisions}, "usage": calls, "stopped_because": _stop_reason(files.events),
    }  # fmt: skip


def _parse_candidate(event: Event) -> Candidate | None:
    if event.get("event") != "candidate":
        return None
    branch = str(event.get("branch", ""))
    index = int(branch.removeprefix("seed")) if branch.removeprefix("seed").isdecimal() and branch.startswith("seed") else None
    try:
        return Candidate.model_validate({**event, "id": event.get("candidate"), "branch": index, "stage": Stage(str(event.get("stage")))})
    except (ValueError, ValidationError):
        return None


def _parse_decision(event: Event) -> Decision | None:
    if event.get("event") != "decision":
        return None
    try:
        return Decision.model_validate(event)
    except ValidationError:
        return None


def _parse_usage(call: dict[str, Any]) -> Usage | None:
    try:
        return Usage.model_validate({"stage": call.get("stage", ""), "role": call.get("role", ""), **call["usage"]})
    except (ValidationError, KeyError, TypeError):
        return None


def _stop_reason(events: tuple[Event, ...]) -> str:
    """Why the last process stopped; empty while one may be at work."""
    reason = ""
    for event in events:
        if event.get("event") == "run":
            reason = ""
        elif event.get("event") in ("stop", "stopped", "end", "pause", "waiting"):
            reason = str(event.get("stopped_because") or event.get("reason") or "")
    return reason


def _time_of(event: Event) -> datetime | None:
    try:
        return datetime.fromisoformat(str(event["time"]))
    except (KeyError, ValueError):
        return None
