"""The kernel that holds the card: it assembles, and it says what happened. The card is an interpreter of its text."""

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from cards.ptx_steps import run_thread
from tritonsmith.evaluator.oracle.timing.hold_kernel import ANY_TIME, ENDED, GAP, INTERRUPTED, LATE, PTX, STARTED

NUMBER = 7
WORDS = {("%at", 4 * word): name for word, name in ((STARTED, "started"), (ENDED, "ended"), (INTERRUPTED, "interrupted"), (LATE, "late"))}


def hold(
    *, jump: tuple[int, int] = (0, 0), opens: int = 50, last_look: int = 0, between: int = ANY_TIME, thread: int = 0, tick: int = 1000
) -> dict[str, int]:
    """What the kernel says; `jump`: at which reading of the clock how many nanoseconds have passed, in place of `tick`."""
    now, readings, looks = 1_000_000, 0, 0

    def clock() -> int:
        nonlocal now, readings
        readings += 1
        now += jump[1] if readings == jump[0] else tick
        return now

    def load(base: str, offset: int) -> int:
        nonlocal looks
        assert base == "%gate_at"
        if offset == 8:
            return last_look
        looks += 1
        return NUMBER if looks >= opens else NUMBER - 1

    parameters = {"nanoseconds": 100_000, "words": 0, "number": NUMBER, "gate": 0, "between": between}
    left = run_thread(PTX, parameters, thread, clock, load)
    said = {name: left[place] for place, name in WORDS.items() if place in left}
    if ("%gate_at", 8) in left:
        assert left["%gate_at", 8] == now  # the next kernel learns when this one looked last
    return said | ({"gap": left["%at", 4 * GAP]} if ("%at", 4 * GAP) in left else {}) | {"passed": now - 1_000_000}


def test_an_undisturbed_hold_lasts_until_its_gate_is_open_and_then_its_time() -> None:
    assert hold() == {"started": NUMBER, "ended": NUMBER, "passed": 151_000}


@pytest.mark.parametrize("reading", [20, 100], ids=["before the gate is open", "after it"])
def test_a_gap_is_an_interruption(reading: int) -> None:
    said = hold(jump=(reading, 290_000))
    assert said["interrupted"] == said["ended"] == NUMBER and said["gap"] == 290_000
    assert "interrupted" not in hold(jump=(reading, 19_000))


@pytest.mark.parametrize(("ago", "late"), [(50_000, False), (100_000, False), (100_001, True), (290_000, True)])
def test_a_second_hold_knows_how_long_the_card_was_nobodys(ago: int, late: bool) -> None:
    assert ("late" in hold(last_look=1_001_000 - ago, between=100_000)) is late
    assert "late" not in hold(last_look=1_001_000 - ago)  # a first one


def test_a_gate_that_stays_closed_gives_the_card_back() -> None:
    said = hold(opens=10**9, tick=19_000)
    assert said["interrupted"] == NUMBER and 500_000_000 < said["passed"] < 501_000_000


def test_one_thread_of_each_block_speaks() -> None:
    assert hold(thread=3, jump=(20, 290_000), last_look=1, between=2) == {"passed": 290_000 + 150_000}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_kernel_assembles(arch: str, tmp_path: Path) -> None:
    spec = find_spec("triton")
    assert spec is not None and spec.origin is not None
    ptxas = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
    if not ptxas.is_file():
        pytest.skip("this build of Triton carries no ptxas")
    (tmp_path / "hold.ptx").write_bytes(PTX)
    done = subprocess.run([ptxas, f"-arch={arch}", "-o", tmp_path / "hold.cubin", tmp_path / "hold.ptx"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
