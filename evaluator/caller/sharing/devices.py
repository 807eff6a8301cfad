"""Several cards of one host behind one queue: an evaluator per card, verdicts side by side, and confirmations alone where that is asked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from tritonsmith.evaluator.caller.local import BaselineSet, LocalEvaluator
from tritonsmith.evaluator.errors import InfrastructureError, UsageError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Evaluator, RaceReport
from tritonsmith.evaluator.records.contest import Contest, ContestReport
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import Hardware, LaunchFacts, Task, TaskFacts, Verdict

Confirm = Literal["beside", "alone"]
"""Whether strict verdicts are made while other cards of the host work, or while they rest."""
ALL = "all"
RACE, COUNT, READ = "race", "count", "read code"
"""What a card is taken for where it is asked for something else than a verdict."""
Answer = TypeVar("Answer", Verdict, RaceReport | None, ContestReport, Counters | None, str)
"""What a card answers."""


class CardEvaluator(Protocol):
    """What judges on one card."""

    hardware: Hardware
    parallel: int
    admits: int

    def evaluate_now(self, task: Task, kernel: KernelText, profile: str = ...) -> Verdict:
        """One verdict, blocking."""

    def race_now(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
    ) -> RaceReport | None:
        """One race, blocking; None where the card has none."""

    def race_regions_now(self, task: Task, contests: Sequence[Contest], seconds: float) -> ContestReport:
        """What regions take, blocking."""

    def describe_ahead(self, task: Task) -> None:
        """Begin to trace a task."""

    async def describe(self, task: Task) -> TaskFacts:
        """The facts of a task."""

    async def count(self, task: Task, kernel: KernelText) -> Counters | None:
        """What the card's counters say of a working kernel; None where there is no card."""

    async def read_code(self, task: Task, kernel: KernelText) -> str:
        """A digest of what a text compiles to."""

    def close(self) -> None:
        """End every process."""


class CardPlaces:
    """The places at the cards: who asks first gets one first, at a card that knows the task where there is a choice.

    Args:
        cards: the evaluators.
        alone: whether strict verdicts wait until every other card rests, and keep them resting.
    """

    def __init__(self, cards: Sequence[CardEvaluator], *, alone: bool) -> None:
        self._cards, self._alone = cards, alone
        self._changed = threading.Condition()
        self._busy = [0] * len(cards)
        self._ready = [""] * len(cards)
        """The task of each card's last question: its reference and baselines are ready there."""
        self._queue: deque[object] = deque()
        self._resting = False
        """Whether somebody has the host alone."""

    @contextlib.contextmanager
    def take(self, task: Task, profile: str, avoid: int | None = None) -> Iterator[int]:
        """The number of a card with a free place, until the block ends; `avoid` is taken only where there is no other card."""
        alone = self._alone and profile == "strict"
        mine = object()
        with self._changed:
            self._queue.append(mine)
            self._changed.wait_for(lambda: self._queue[0] is mine and self._choose(task, alone, avoid) is not None)
            chosen = self._choose(task, alone, avoid)
            assert chosen is not None
            self._queue.popleft()
            self._busy[chosen] += 1
            self._ready[chosen] = task.sha
            self._resting = alone
            self._changed.notify_all()
        try:
            yield chosen
        finally:
            with self._changed:
                self._busy[chosen] -= 1
                self._resting = self._resting and not alone
                self._changed.notify_all()

    def _choose(self, task: Task, alone: bool, avoid: int | None) -> int | None:
        if self._resting or (alone and any(self._busy)):
            return None
        free = [number for number, card in enumerate(self._cards) if self._busy[number] < max(card.parallel, card.admits)]
        others = [number for number in free if number != avoid]
        wanted = others if others or len(self._cards) > 1 else free
        # one that has the reference ready goes before one that would begin with it, then an idle card before one that only compiles ahead
        return min(wanted, key=lambda number: (self._ready[number] != task.sha, self._busy[number]), default=None)


class DeviceEvaluator(Evaluator):
    """Evaluator of several cards of this host. Raises UsageError for cards of different models: their times are never compared.

    Args:
        cards: one evaluator per card; they are closed with this one.
        confirm: `alone` lets every other card rest during a strict verdict.
    """

    def __init__(self, cards: Sequence[CardEvaluator], *, confirm: Confirm = "beside") -> None:
        models = sorted({(card.hardware.name, card.hardware.present) for card in cards})
        if len(models) > 1:
            raise UsageError(f"--devices: the cards differ ({', '.join(name for name, _ in models)}); name cards of one model")
        self.hardware = cards[0].hardware
        self.parallel = sum(card.parallel for card in cards)
        self.admits = sum(max(card.parallel, card.admits) for card in cards)
        self.cards = len(cards)
        self._cards = cards
        self._places = CardPlaces(cards, alone=confirm == "alone")
        self._threads = ThreadPoolExecutor(self.admits, thread_name_prefix="card")

    async def describe(self, task: Task) -> TaskFacts:
        """The facts of the task, from the first card that has a place; other cards trace it again when they judge. Raises TaskError."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._describe_now, task)

    def describe_ahead(self, task: Task) -> None:
        """Has the first card's evaluator begin."""
        self._cards[0].describe_ahead(task)

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        """One verdict, from any of the cards; one whose machinery fails is followed by another. Raises InfrastructureError."""
        return await self._ask(task, profile, lambda card, *ended: card.evaluate_now(task, kernel, profile, *ended))

    async def race(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
    ) -> RaceReport | None:
        """One race, all of it on one of the cards, which it gets as a verdict does. Raises InfrastructureError."""
        asked = task, incumbent, entrants, facts, keep, seconds
        return await self._ask(task, RACE, lambda card, *ended: card.race_now(*asked, *ended))

    async def race_regions(self, task: Task, contests: Sequence[Contest], seconds: float) -> ContestReport:
        """What regions take on one of the cards, which it is taken for. Raises InfrastructureError."""
        return await self._ask(task, RACE, lambda card, *ended: card.race_regions_now(task, contests, seconds, *ended))

    async def count(self, task: Task, kernel: KernelText) -> Counters | None:
        """The counters of one of the cards, which it is taken for. Raises InfrastructureError."""
        return await self._ask(task, COUNT, lambda card, *ended: asyncio.run(card.count(task, kernel, *ended)))

    async def read_code(self, task: Task, kernel: KernelText) -> str:
        """A digest of what a text compiles to, by the host of one of the cards. Raises InfrastructureError."""
        return await self._ask(task, READ, lambda card, *ended: asyncio.run(card.read_code(task, kernel, *ended)))

    async def _ask(self, task: Task, profile: str, question: Callable[..., Answer]) -> Answer:
        """The answer of one card to a question; `profile` says what the card is taken for."""
        ended = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._ask_cards, task, profile, question, ended)
        except asyncio.CancelledError:
            ended.set()
            self._end_by_force(ended)
            raise

    def _describe_now(self, task: Task) -> TaskFacts:
        with self._places.take(task, "") as number:
            return asyncio.run(self._cards[number].describe(task))

    def _ask_cards(self, task: Task, profile: str, question: Callable[..., Answer], ended: threading.Event) -> Answer:
        failed: int | None = None
        try:
            with self._places.take(task, profile) as failed:
                return self._ask_card(failed, question, ended)
        except InfrastructureError:
            if len(self._cards) == 1 or ended.is_set():
                raise
        with self._places.take(task, profile, avoid=failed) as number:
            return self._ask_card(number, question, ended)

    def _ask_card(self, number: int, question: Callable[..., Answer], ended: threading.Event) -> Answer:
        """The answer of this card. A kind of card that can stop in the middle of a question gets `ended` too."""
        if ended.is_set():
            raise InfrastructureError("the question was cancelled")
        return question(self._cards[number])

    def _end_by_force(self, ended: threading.Event) -> None:
        """End what works on a question that nobody waits for; cards of this host finish it."""

    async def aclose(self) -> None:
        """End every card's processes."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for card in self._cards:
            card.close()


def open_devices(
    devices: str, target: str, raw_dir: Path | None, sandbox: str, confirm: Confirm, baselines: BaselineSet = "four",
    open_card: Callable[..., CardEvaluator] = LocalEvaluator,
) -> DeviceEvaluator:  # fmt: skip
    """An evaluator for each card that `devices` names. Without a card in this machine each stands in for the target, and gives estimates.

    Raises UsageError for a card that is not here, and for `auto` on a machine without one; InfrastructureError when an oracle does not
    start.
    """
    here = visible_cards()
    chosen = name_devices(devices, here)
    if not here and target == "auto":
        raise UsageError(f"--devices {devices}: this machine has no card; leave --devices out, or name a card with --target for estimates")
    opened: list[CardEvaluator] = []
    try:
        with ThreadPoolExecutor(len(chosen)) as threads:  # each start takes seconds
            common = {"sandbox": sandbox, "baselines": baselines}
            starts = [
                threads.submit(open_card, target, raw_dir / f"device-{device}" if raw_dir else None, device=device, **common)
                for device in chosen
            ]
            for start in starts:
                opened.append(start.result())  # noqa: PERF401 - those before a failure are to be closed
        return DeviceEvaluator(opened, confirm=confirm)
    except BaseException:
        for card in opened:
            card.close()
        raise


def visible_cards() -> list[str]:
    """The cards that CUDA would number 0, 1, ...: their names for CUDA_VISIBLE_DEVICES. Empty without a card."""
    import pynvml  # noqa: PLC0415 - loaded only where cards are asked for

    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        pynvml.nvmlInit()
        count = int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return []
    if shown is None:
        return [str(number) for number in range(count)]
    return [name for name in (part.strip() for part in shown.split(",")) if name and name != "-1"]


def name_devices(devices: str, here: Sequence[str]) -> list[str]:
    """The cards of `0,2` or `all`, named as CUDA_VISIBLE_DEVICES does; without a card in this machine the numbers as they are.

    Raises UsageError for anything else.
    """
    if devices == ALL:
        return list(here) or ["0"]
    words = [word.strip() for word in devices.split(",")]
    if not all(word.isdigit() for word in words) or len(set(words)) < len(words):
        raise UsageError(f"--devices {devices}: name different cards by their numbers, such as 0,1, or all")
    missing = [word for word in words if here and int(word) >= len(here)]
    if missing:
        raise UsageError(f"--devices {devices}: there is no card {', '.join(missing)}; this machine shows {len(here)}, from 0 on")
    return [here[int(word)] for word in words] if here else words
