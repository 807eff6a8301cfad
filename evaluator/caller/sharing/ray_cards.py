"""Cards of a Ray cluster: one supervisor actor per card, behind the queue of `sharing/devices.py`. Needs the extra `ray`.

Ray never repeats anything by itself. A supervisor that dies is made again, and its question is asked again: that is the only repetition,
and an answer that has come is never asked for twice. Drivers of one cluster that want the same thing share its supervisors by name.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.caller.local import EVALUATE_SECONDS, BaselineSet
from tritonsmith.evaluator.caller.sharing.answers import digest_code
from tritonsmith.evaluator.caller.sharing.devices import Answer, Confirm, DeviceEvaluator
from tritonsmith.evaluator.caller.sharing.supervisor import RaceQuestion, RegionsQuestion, Supervisor
from tritonsmith.evaluator.errors import InfrastructureError, TaskError, UsageError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import RaceReport
from tritonsmith.evaluator.records.contest import Contest, ContestReport
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import Hardware, LaunchFacts, Task, TaskFacts, Verdict

NAMESPACE = "tritonsmith"
"""Of the names of supervisors, shared by all drivers of a cluster."""
_TRIES = 4
"""How often a question is asked whose supervisor died."""
_CONNECT_SECONDS = 10.0
_REMAKES = 20
"""How often a supervisor is made in place of one that died, with pauses of up to a second."""
_START_SECONDS = 300.0
"""Longest wait for a supervisor: Ray finds a place for it, and its evaluator starts."""
_ANSWER_SECONDS = EVALUATE_SECONDS + 300.0
"""Longest wait for an answer; a supervisor that takes longer is ended by force."""
_CALLS = 4
"""Calls that a supervisor takes at a time: more than its evaluator can use."""
_WITHOUT_CARDS = 2
"""Supervisors where the cluster has no card."""


class RayCard:
    """One supervisor of the cluster, which is made again when it dies.

    Args:
        ray: the library.
        name: of the supervisor within the cluster.
        make: starts the supervisor of this name, or finds the one that another driver has started.
        raw_dir: where raw samples are written on this host.
    """

    def __init__(self, ray: Any, name: str, make: Callable[[str], Any], raw_dir: Path | None) -> None:
        self._ray, self._name, self._make, self._raw = ray, name, make, raw_dir
        self._numbers = count()
        self._making = threading.Lock()
        self._actor = make(name)
        told = self._greet(self._actor)
        self.hardware = Hardware.model_validate(told["hardware"])
        self.parallel, self.admits = int(told["parallel"]), int(told["admits"])
        self.pid, self.node = int(told["pid"]), str(told["node"])

    def evaluate_now(self, task: Task, kernel: KernelText, profile: str = "quick", ended: threading.Event | None = None) -> Verdict:
        """One verdict; asked again where the supervisor died, until `ended`. Raises what the evaluator raises."""
        answer = self._ask(lambda actor: actor.evaluate.remote(task.model_dump_json(), kernel.text, profile), ended)
        verdict = Verdict.model_validate(answer["verdict"])
        if verdict.timing is None or verdict.timing.raw is None:
            return verdict
        path = None
        if answer["raw"] and self._raw is not None:
            with contextlib.suppress(OSError):  # a full disk takes the samples, and not the verdict
                self._raw.mkdir(parents=True, exist_ok=True)
                place = self._raw / f"{kernel.sha}-{profile}-{next(self._numbers)}.json"
                place.write_text(answer["raw"], encoding="utf-8")
                path = place
        timing = verdict.timing.model_copy(update={"raw": str(path) if path else None})
        return verdict.model_copy(update={"timing": timing})

    def race_now(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float,
        ended: threading.Event | None = None,
    ) -> RaceReport | None:  # fmt: skip
        """One race, as `evaluate_now`; None where the evaluator has none."""
        asked = RaceQuestion(
            incumbent=incumbent.text, entrants=tuple(text.text for text in entrants), facts=facts, keep=keep, seconds=seconds
        )
        answer = self._ask(lambda actor: actor.race.remote(task.model_dump_json(), asked.model_dump_json()), ended)
        return None if answer["race"] is None else RaceReport.model_validate(answer["race"])

    def race_regions_now(
        self, task: Task, contests: Sequence[Contest], seconds: float, ended: threading.Event | None = None
    ) -> ContestReport:
        """What regions take, as `evaluate_now`."""
        asked = RegionsQuestion(contests=tuple(contests), seconds=seconds)
        answer = self._ask(lambda actor: actor.race_regions.remote(task.model_dump_json(), asked.model_dump_json()), ended)
        return ContestReport.model_validate(answer["regions"])

    def describe_ahead(self, task: Task) -> None:
        """Nothing: the card's own process begins with the question."""
        del task

    async def describe(self, task: Task) -> TaskFacts:
        """The facts of a task."""
        return TaskFacts.model_validate(self._ask(lambda actor: actor.describe.remote(task.model_dump_json()), None)["facts"])

    async def count(self, task: Task, kernel: KernelText, ended: threading.Event | None = None) -> Counters | None:
        """What the card's counters say of a working kernel; asked again as `evaluate_now`."""
        found = self._ask(lambda actor: actor.count.remote(task.model_dump_json(), kernel.text), ended)["counters"]
        return None if found is None else Counters.model_validate(found)

    async def read_code(self, task: Task, kernel: KernelText, ended: threading.Event | None = None) -> str:
        """A digest of what a text compiles to; asked again as `evaluate_now`."""
        return str(self._ask(lambda actor: actor.read_code.remote(task.model_dump_json(), kernel.text), ended)["code"])

    def cancel(self) -> None:
        """End the supervisor by force, with everything that it runs. Another one takes its place at the next question."""
        self._ray.kill(self._actor, no_restart=True)

    def close(self) -> None:
        """Let the supervisor go: it ends with the last driver that has a handle."""
        self._actor = None

    def _ask(self, question: Callable[[Any], Any], ended: threading.Event | None) -> dict[str, Any]:
        reason = ""
        for _ in range(_TRIES):
            actor = self._actor
            if actor is None or (ended is not None and ended.is_set()):
                raise InfrastructureError("the question was cancelled")
            try:
                return _raise_fault(json.loads(self._ray.get(question(actor), timeout=_ANSWER_SECONDS)))
            except self._ray.exceptions.GetTimeoutError:
                self._ray.kill(actor, no_restart=True)
                reason = f"no answer within {_ANSWER_SECONDS:.0f} s"
            except self._ray.exceptions.RayActorError:
                reason = "its process has ended"
            except self._ray.exceptions.RayError as error:  # it lives, and our own code in it failed
                raise InfrastructureError(f"the supervisor {self._name} failed ({_last_line(error)})") from error
            if ended is None or not ended.is_set():
                self._replace(actor)
        raise InfrastructureError(f"the supervisor {self._name} died {_TRIES} times on one question ({reason})")

    def _replace(self, dead: Any) -> None:
        """Make the supervisor again, once for all questions that it had."""
        with self._making:
            if self._actor is not dead:
                return
            with contextlib.suppress(Exception):  # whatever it says, it is gone
                self._ray.kill(dead, no_restart=True)  # Ray forgets the name of a dead actor only so
            for number in range(1, _REMAKES + 1):
                try:
                    actor = self._make(self._name)
                    told = self._greet(actor)
                    break
                except InfrastructureError:  # for a while the name still belongs to the one that died
                    if number == _REMAKES:
                        raise
                    time.sleep(min(1.0, 0.1 * number))
            if Hardware.model_validate(told["hardware"]) != self.hardware:
                raise InfrastructureError(f"the supervisor {self._name} came back on another card; cards are never mixed")
            self._actor, self.pid, self.node = actor, int(told["pid"]), str(told["node"])

    def _greet(self, actor: Any) -> dict[str, Any]:
        try:
            return dict(json.loads(self._ray.get(actor.hello.remote(), timeout=_START_SECONDS)))
        except self._ray.exceptions.GetTimeoutError as error:
            why = "no free card, or another driver has them with other settings"
            raise InfrastructureError(f"Ray started no supervisor within {_START_SECONDS:.0f} s: {why}; see `ray status`") from error
        except self._ray.exceptions.RayError as error:
            if isinstance(cause := getattr(error, "cause", None), UsageError):
                raise cause from error
            raise InfrastructureError(f"a supervisor did not start ({_last_line(error)})") from error


class RayEvaluator(DeviceEvaluator):
    """Evaluator of a cluster's cards; a cluster that this process started ends with it.

    Args:
        cards: the supervisors.
        confirm: as for the cards of one host.
        leave: disconnects from the cluster.
    """

    def __init__(self, cards: list[RayCard], *, confirm: Confirm, leave: Callable[[], None]) -> None:
        super().__init__(cards, confirm=confirm)
        self._supervisors, self._leave = cards, leave
        self._asked: dict[threading.Event, int] = {}
        """Questions under way, and the supervisor that each is at."""

    def _ask_card(self, number: int, question: Callable[..., Answer], ended: threading.Event) -> Answer:
        self._asked[ended] = number
        try:
            return question(self._supervisors[number], ended)
        finally:
            self._asked.pop(ended, None)

    def _end_by_force(self, ended: threading.Event) -> None:
        """End the supervisor that works on a question; other questions that it had are asked again."""
        number = self._asked.get(ended)
        if number is not None:
            self._supervisors[number].cancel()

    def _close(self) -> None:
        super()._close()
        self._leave()


def open_ray(
    address: str, target: str, raw_dir: Path | None, sandbox: str, confirm: Confirm, supervisors: int | None = None, *,
    baselines: BaselineSet = "four", supervisor: type = Supervisor,
) -> RayEvaluator:  # fmt: skip
    """An evaluator of the cluster at `address`; empty: the one of this host, which is started where there is none.

    One supervisor per card of the cluster; without cards `supervisors`, or two. `supervisor` is the class of the actors. Raises
    UsageError without Ray or a cluster, and for cards of several models.
    """
    ray = _load_ray()
    mine = not ray.is_initialized()
    if mine:
        _connect(ray, address)
    leave: Callable[[], None] = ray.shutdown if mine else _stay
    try:
        cards_there = int(ray.cluster_resources().get("GPU", 0))
        wanted = cards_there or supervisors or _WITHOUT_CARDS
        told = json.dumps([target, sandbox, baselines, digest_code(), bool(cards_there)])
        name = hashlib.sha256(told.encode()).hexdigest()[:12]
        resources = {"num_gpus": 1, "num_cpus": 1} if cards_there else {"num_cpus": 0}

        def make(own: str) -> Any:
            actor = ray.remote(supervisor).options(
                name=own, namespace=NAMESPACE, get_if_exists=True, max_restarts=0, max_task_retries=0,
                max_concurrency=_CALLS, **resources,
            )  # fmt: skip
            return actor.remote(target, sandbox, baselines)

        with ThreadPoolExecutor(wanted) as threads:
            cards = list(threads.map(lambda number: RayCard(ray, f"card-{name}-{number}", make, raw_dir), range(wanted)))
        return RayEvaluator(_keep_one_model(cards), confirm=confirm, leave=leave)
    except BaseException:
        leave()
        raise


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__


def _keep_one_model(cards: list[RayCard]) -> list[RayCard]:
    """Cards that are here before those for which there are only estimates. Raises UsageError where several models are left."""
    present = [card for card in cards if card.hardware.present]
    kept = present or cards
    if len({card.hardware.name for card in kept}) > 1:
        names = ", ".join(sorted({card.hardware.name for card in kept}))
        raise UsageError(f"--evaluator ray: the cluster has cards of several models ({names}); name one with --target")
    return kept


def _load_ray() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told what runs here
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError("--evaluator ray: Ray is not installed; install the extra: pip install 'tritonsmith[ray]'") from error


def _connect(ray: Any, address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():  # Ray itself would try for minutes
        try:
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"--evaluator ray:{address}: no cluster answers there ({why}); start one with `ray start --head`") from error
    logging.getLogger("ray").setLevel(logging.ERROR)  # its advice about signals and tokens is nothing that a user of ours can act on
    quiet = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "error", "configure_logging": False}
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            ray.init(include_dashboard=False, **quiet)
    except Exception as error:  # noqa: BLE001 - Ray raises plain exceptions where a cluster does not start
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if not address:
            raise InfrastructureError(f"Ray started no cluster on this machine ({first})") from error
        raise UsageError(f"--evaluator ray:{address}: no cluster answers there ({first}); start one with `ray start --head`") from error


def _stay() -> None:
    """The cluster belongs to the caller."""


def _raise_fault(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise {"task": TaskError, "usage": UsageError}.get(answer["kind"], InfrastructureError)(answer["error"])
    return answer
