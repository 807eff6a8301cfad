"""A forked run's policy: the parent's answers until the site is reached, then another policy's.

Every branch of a run is a line of its own, so the site cuts each of them where it is first asked there. What follows the branches (the
selection, tuning, ...) is the other policy's as soon as one branch before it was cut.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import Field, ValidationError

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Record
from tritonsmith.graph.policies.view import Answer, Policy, View
from tritonsmith.graph.sites import LINES, QUESTIONS, SITES
from tritonsmith.graph.state import Decision
from tritonsmith.graph.storage.files import fault_of, lines_of, parse_object
from tritonsmith.graph.storage.folder import EVENTS

PARENT = "parent.json"
"""Name of the file in a fork's folder that says what it was made from."""
_REFUSED = ("budget", "author", "waiting", "graph")
"""Sites of decisions that no policy made."""


class Parent(Record):
    """What a fork keeps of the run that it was made from."""

    run: str
    """Name of the parent's folder."""
    id: str = ""
    """The parent's id, as in its `run.json`."""
    at: str
    """The site, a gate or a policy's method, from which on the other policy decides."""
    policy: str = ""
    """The parent's policy."""
    seeds: int
    """How many seed branches the parent had."""
    decisions: dict[str, Decision] = Field(default_factory=dict)
    """The parent's answers before the site, by id."""


class ForkedPolicy:
    """Gives the parent's recorded answers, and asks another policy where there is none."""

    def __init__(self, parent: Parent, policy: Policy) -> None:
        """The number of seeds is the parent's, not the other policy's."""
        self.parent, self.policy = parent, policy
        self.name = policy.name
        self.seeds: int | None = parent.seeds
        self.tuning, self.joint = policy.tuning, policy.joint
        self.width, self.drop_twins = policy.width, policy.drop_twins
        self.claims_from = policy.claims_from

    def __getattr__(self, question: str) -> Callable[[View], Answer]:
        if question not in QUESTIONS:
            raise AttributeError(question)

        def answer(view: View) -> Answer:
            known = self._known(view)
            decided: Answer = getattr(self.policy, question)(view) if known is None else (known.choice, known.reason)
            return decided

        return answer

    def name_at(self, view: View) -> str:
        """Whose answer it is: the parent's policy, or the other one."""
        known = self._known(view)
        return self.name if known is None else known.policy

    def _known(self, view: View) -> Decision | None:
        known = self.parent.decisions.get(f"{view.branch}/{view.step:02d}")
        same = known is not None and (known.gate, known.candidate) == (view.gate, view.current.id if view.current else None)
        return known if same else None


def policy_in(folder: Path, policy: Policy) -> Policy:
    """The policy of the run in a folder; for a fork, one that begins with the parent's answers. Raises UsageError."""
    path = folder / PARENT
    if not path.is_file():
        return policy
    try:
        parent = Parent.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({fault_of(error)}); fork the run again into a new folder") from error
    return cast(Policy, ForkedPolicy(parent, policy))  # its methods are made on demand


def check_site(at: str) -> None:
    """Raise UsageError, with the list, for anything but a gate or a method of a policy."""
    if at not in SITES and at not in QUESTIONS:
        raise UsageError(f"--at {at}: there is no such site; choose one of {', '.join(dict.fromkeys((*SITES, *QUESTIONS)))}")


def events_in(path: Path) -> list[dict[str, Any]]:
    """Every event of an `events.jsonl`. Raises UsageError."""
    try:
        whole, _, _ = path.read_bytes().rpartition(b"\n")  # a kill may have cut the last line
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({fault_of(error)}); name the folder of a run") from error
    found = []
    for number, line in enumerate(lines_of(whole), start=1):
        try:
            found.append({"event": "", "branch": "", **parse_object(line)})
        except ValueError as error:
            raise UsageError(f"{path}: line {number} is not an event ({fault_of(error)}); remove that line, or name another run") from error
    return found


def decisions_in(events: Iterable[Mapping[str, Any]]) -> tuple[Decision, ...]:
    """The decisions among the events; of one that was made again after a stop, the latest. Raises UsageError for one without its fields."""
    try:
        return tuple({event["id"]: Decision.model_validate(event) for event in events if event["event"] == "decision"}.values())
    except (KeyError, ValidationError) as error:
        raise UsageError(f"a decision in {EVENTS} lacks what it must have ({type(error).__name__}); name the folder of a run") from error


def decisions_before(at: str, decisions: Iterable[Decision]) -> tuple[dict[str, Decision], bool]:
    """The policy's answers before the site, by id, and whether the site was reached at all."""
    lines: dict[str, list[Decision]] = {}
    for decision in decisions:
        lines.setdefault(decision.branch, []).append(decision)
    for line in lines.values():
        line.sort(key=_number)
    answers: list[Decision] = []
    seeds = [branch for branch in lines if branch.startswith("seed")]
    cut = False
    for branch in seeds:
        part, reached = _line_before(at, lines[branch])
        answers, cut = answers + part, cut or reached
    if not cut:
        part, cut = _main_before(at, lines)
        answers += part
    return {decision.id: decision for decision in answers if decision.site not in _REFUSED}, cut


def _main_before(at: str, lines: Mapping[str, list[Decision]]) -> tuple[list[Decision], bool]:
    """The run after its branches joined: each return of a chosen candidate to a branch is a line that lies between two decisions."""
    answers: list[Decision] = []
    begun = dict.fromkeys(LINES, 0)
    for decision in lines.get("main", []):
        if _was_asked_at(at, decision):
            return answers, True
        answers.append(decision)
        if decision.gate in SITES and SITES[decision.gate].choices.get(decision.choice) == "improve":
            cut = False
            for _ in range(_count_lines(decision)):
                begun[decision.gate] += 1
                name = f"{LINES[decision.gate]}{begun[decision.gate]}"
                part, reached = _line_before(at, lines.get(name, []))  # empty where the budget refused it
                answers, cut = answers + part, cut or reached  # lines that were begun together are cut each for itself
            if cut:
                return answers, True
    return answers, False


def _count_lines(decision: Decision) -> int:
    """How many lines of work a decision begins."""
    found = decision.evidence.get("open_lines") if decision.choice == "widen" else None
    return len(found) if isinstance(found, list) else 1


def _line_before(at: str, line: list[Decision]) -> tuple[list[Decision], bool]:
    for number, decision in enumerate(line):
        if _was_asked_at(at, decision):
            return line[:number], True
    return line, False


def _was_asked_at(at: str, decision: Decision) -> bool:
    """Whether a policy was asked at the site; what was refused before it was asked does not count."""
    asked = decision.site not in _REFUSED and not decision.reason.startswith("not asked: ")
    return asked and at in (decision.gate, decision.site)


def _number(decision: Decision) -> int:
    return int(decision.id.rpartition("/")[2])
