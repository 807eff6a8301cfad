"""What one forward showed of a kernel, next to what its text says: iterations, waits, who read whose values."""

import pytest

from detected_kernels import find_hit, line_of, make_module
from tritonsmith.evaluator.records.limits import LineFacts
from tritonsmith.evaluator.schema import KernelFacts, LaunchFacts
from tritonsmith.evaluator.texts.detect.detection import Trait, detect

IN_TURN = make_module(
    """
@triton.jit
def scale(x, out, rows, N: tl.constexpr):
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        cols = tl.arange(0, N)
        tl.store(out + row * N + cols, tl.load(x + row * N + cols) * 2)
""",
    "scale[(8,)](x, out, x.shape[0], N=64)",
)
FOREIGN = make_module(
    """
@triton.jit
def step(x, out, flag):
    i = tl.program_id(0)
    meet(flag)
    tl.store(out + i, tl.load(x + i))
""",
    "step[(8,)](x, out, x)",
).replace("import triton\n", "import triton\nfrom barriers import meet\n", 1)
SHIFTED = make_module(
    """
@triton.jit
def shift(x, n):
    i = tl.program_id(0) * 8 + tl.arange(0, 8)
    v = tl.load(x + i + 1, mask=i + 1 < n)
    tl.store(x + i, v, mask=i < n)
""",
    "shift[(8,)](x, 64)",
)


def observe(name: str, *lines: LineFacts, rounds: int = 0) -> LaunchFacts:
    """Facts of one launch of eight programs."""
    return LaunchFacts(kernels=(KernelFacts(name=name, launches=1, grid=(8, 1, 1), sync_rounds=rounds, lines=lines),))


@pytest.mark.parametrize(("most", "nearest"), [(1, "each program had one"), (4, "")])
def test_iterations_decide_how_sure_work_in_turn_is(most: int, nearest: str) -> None:
    line = line_of(IN_TURN, "tl.store")
    assert "a program for every tile" in find_hit(detect(IN_TURN), Trait.PERSISTENT).nearest
    hit = find_hit(detect(IN_TURN, observe("scale", LineFacts(line=line, kind="store", most=most, programs=8))), Trait.PERSISTENT)
    assert f"at most {most} iteration" in hit.evidence and nearest in hit.nearest and bool(hit.nearest) == bool(nearest)


def test_a_given_number_of_programs_is_one_in_numbers_too() -> None:
    """A launch that shows that number leaves tiles in turn what they are."""
    source = IN_TURN.replace("tl.num_programs(0)", "POOL").replace("N: tl.constexpr", "N: tl.constexpr, POOL: tl.constexpr")
    source = source.replace("N=64)", "N=64, POOL=x.shape[1])")
    known = KernelFacts(name="scale", launches=1, grid=(8, 1, 1), constexprs={"N": 64, "POOL": 8})
    assert "persistent" in detect(source).names and "persistent" in detect(source, LaunchFacts(kernels=(known,))).names


def test_waits_in_functions_of_other_files_are_seen_in_a_forward() -> None:
    assert "persistent" not in detect(FOREIGN).names
    assert "persistent" not in detect(FOREIGN, observe("step")).names
    assert "waited for another one 2 times" in find_hit(detect(FOREIGN, observe("step", rounds=2)), Trait.PERSISTENT).evidence


@pytest.mark.parametrize(("foreign", "words"), [(0, "none of them loaded"), (7, "loaded 7 times what another one had written")])
def test_sharing_names_what_a_forward_showed(foreign: int, words: str) -> None:
    line = line_of(SHIFTED, "tl.load")
    seen = observe("shift", LineFacts(line=line, kind="load", most=1, programs=8, foreign=foreign))
    assert words in find_hit(detect(SHIFTED, seen), Trait.UNSYNCHRONISED_SHARING).nearest
    assert words not in find_hit(detect(SHIFTED), Trait.UNSYNCHRONISED_SHARING).nearest
