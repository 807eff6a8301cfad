"""Cards of one host: stand-ins for cards judge side by side, a broken one is left, and confirmations have the host alone."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from project import ROOT
from tritonsmith.cli.main import run
from tritonsmith.evaluator.caller.sharing.devices import DeviceEvaluator, name_devices, open_devices
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import InfrastructureError, UsageError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.card_lock import CardLock
from tritonsmith.evaluator.schema import Task, TaskFacts
from tritonsmith.nodes.evaluators.scripted import scripted_verdict

TASK = Task(name="mine", path="mine.py", source="x")


class StandIn:
    """A card that takes a while, and notes who worked beside it."""

    def __init__(self, world, *, broken=False, name="h200"):
        self.hardware, self.parallel, self.admits = named_card(name), 1, 1
        self.world, self.broken, self.asked = world, broken, []

    def describe_ahead(self, task):
        pass

    async def describe(self, task):
        return TaskFacts()

    def evaluate_now(self, task, kernel, profile="quick"):
        self.asked.append((kernel.text, profile))
        if self.broken:
            raise InfrastructureError("the card has fallen off the bus")
        with self.world.lock:
            self.world.busy += 1
            self.world.most[profile] = max(self.world.most.get(profile, 0), self.world.busy)
        time.sleep(0.05)
        with self.world.lock:
            self.world.busy -= 1
        return scripted_verdict(1.5)

    def close(self):
        self.closed = True


class World:
    def __init__(self):
        self.lock, self.busy, self.most = threading.Lock(), 0, {}


def judge_all(evaluator, questions):
    async def play():
        answers = [evaluator.evaluate(TASK, KernelText.of(text), profile) for text, profile in questions]
        found = await asyncio.gather(*answers)
        await evaluator.aclose()
        return found

    return asyncio.run(play())


@pytest.mark.parametrize("confirm", ["beside", "alone"])
def test_verdicts_go_side_by_side_and_confirmations_as_asked(confirm):
    world = World()
    cards = [StandIn(world), StandIn(world)]
    questions = [(f"{number}", "strict" if number % 3 == 0 else "quick") for number in range(9)]
    assert len(judge_all(DeviceEvaluator(cards, confirm=confirm), questions)) == 9
    assert sorted(cards[0].asked + cards[1].asked) == sorted(questions), "nothing lost, nothing twice"
    assert world.most["quick"] == 2 and min(len(card.asked) for card in cards) >= 2
    assert world.most["strict"] == (1 if confirm == "alone" else 2)


def test_a_broken_card_loses_no_verdict_and_other_models_are_refused():
    world = World()
    cards = [StandIn(world, broken=True), StandIn(world)]
    assert len(judge_all(DeviceEvaluator(cards), [(str(number), "quick") for number in range(4)])) == 4
    assert sorted(cards[1].asked) == [(str(number), "quick") for number in range(4)]
    with pytest.raises(UsageError, match="the cards differ .NVIDIA A100"):
        DeviceEvaluator([StandIn(world), StandIn(world, name="a100")])


def test_cards_are_named_as_cuda_does():
    assert name_devices("all", ["2", "GPU-7"]) == ["2", "GPU-7"] and name_devices("1", ["2", "GPU-7"]) == ["GPU-7"]
    assert name_devices("0,1", []) == ["0", "1"]
    for words, about in (("0,0", "different cards"), ("first", "numbers, such as 0,1"), ("5", "there is no card 5; this machine shows 2")):
        with pytest.raises(UsageError, match=about):
            name_devices(words, ["0", "1"])


@pytest.mark.parametrize("devices", ["9", "all"])
def test_cards_of_a_machine_without_one_need_a_target(devices, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tritonsmith.evaluator.caller.sharing.devices.visible_cards", list)
    out = tmp_path / "run"
    assert run(["optimize", str(ROOT / "examples/recorded_run/task.py"), "--devices", devices, "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert said.err.splitlines()[-1].endswith(
        f"--devices {devices}: this machine has no card; leave --devices out, or name a card with --target for estimates"
    ) and not said.out.strip()
    stand_ins = open_devices("0,1", "h200", None, "auto", "beside", open_card=lambda *_, **__: StandIn(World()))
    assert (stand_ins.hardware.name, stand_ins.parallel) == (named_card("h200").name, 2)


def test_a_card_that_does_not_start_closes_the_others():
    opened = []

    def open_card(target, raw_dir, sandbox, device, baselines):
        if device == "1":
            raise InfrastructureError("no oracle")
        opened.append(StandIn(World()))
        return opened[-1]

    with pytest.raises(InfrastructureError, match="no oracle"):
        open_devices("0,1", "h200", None, "auto", "beside", open_card=open_card)
    assert [card.closed for card in opened] == [True]


HOLDER = """
import sys, time
from pathlib import Path
from tritonsmith.evaluator.processes.card_lock import CardLock
lock = CardLock("GPU-1", Path(sys.argv[1]))
for turn in range(int(sys.argv[3])):
    with lock.hold():
        with Path(sys.argv[1], "log").open("a") as log:
            log.write(sys.argv[2])
        time.sleep(float(sys.argv[4]))
"""


def test_two_processes_take_turns_and_a_dead_one_lets_go(tmp_path):
    def start(name, turns, seconds):
        return subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path), name, str(turns), str(seconds)])

    def log():
        return (tmp_path / "log").read_text() if (tmp_path / "log").is_file() else ""

    dead = start("x", 1, 600)
    deadline = time.monotonic() + 60
    while not log():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    both = [start("a", 5, 0.15), start("b", 5, 0.15)]
    time.sleep(0.5)
    assert log() == "x"
    dead.kill()
    assert dead.wait() == -9 and [process.wait(60) for process in both] == [0, 0]
    order = log()[1:]
    assert sorted(order) == sorted("aaaaabbbbb")
    assert order.count("ab") + order.count("ba") >= 5, order
    with (lock := CardLock("GPU-1", tmp_path)).hold():
        waiting = CardLock("GPU-1", tmp_path)
        threading.Timer(0.1, waiting.close).start()
        with pytest.raises(InfrastructureError, match="closed while it waited"), waiting.hold():
            pass
    lock.close()
