"""Warps follow the extents of their own kernel's tiles, and a tile that no thread could hold is tried with more of them only."""

from tritonsmith.evaluator.schema import Stage
from tritonsmith.evaluator.texts.spaces.linked import VARIANTS, link_warps
from tritonsmith.evaluator.texts.spaces.read import read_space
from tritonsmith.evaluator.texts.spaces.space import Parameter

BLOCK = Parameter("BLOCK", Stage.TUNE_BLOCK, (1024, 2048, 4096, 8192, 16384, 32768), 1024)
WARPS = Parameter("num_warps", Stage.TUNE_MEMORY, (4, 8, 16, 32), 4)
TWO = """
import triton
import triton.language as tl


@triton.jit
def first(x, out, n, TILE: tl.constexpr):
    place = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + place, tl.load(x + place, mask=place < n), mask=place < n)


@triton.jit
def second(x, out, n, WIDE: tl.constexpr):
    place = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    tl.store(out + place, tl.load(x + place, mask=place < n), mask=place < n)


def forward(x, out, n):
    first[(triton.cdiv(n, 512),)](x, out, n, TILE=512, num_warps=4)
    second[(triton.cdiv(n, 1024),)](x, out, n, WIDE=1024, num_warps=8)
"""


def variants(linked, **values):
    return [variant["num_warps"] for variant in linked.list_variants(values)]


def test_warps_are_proposed_as_they_are_and_grown_wholly_halfway_and_twofold():
    linked = link_warps([BLOCK, WARPS], [BLOCK])
    assert linked.names == {"num_warps": ["BLOCK"]}
    assert variants(linked, BLOCK=1024) == [4, 4, 4, 8]
    assert variants(linked, BLOCK=2048) == [4, 8, 8, 16]
    assert variants(linked, BLOCK=4096) == [4, 16, 8, 32]
    assert variants(linked, BLOCK=8192) == [4, 32, 16, 32]
    assert variants(linked, BLOCK=32768) == [4, 32, 32, 32], "no more than the space has"


def test_a_tile_that_no_thread_can_hold_is_left_to_more_warps():
    linked = link_warps([BLOCK, WARPS], [BLOCK], registers=31)
    assert variants(linked, BLOCK=8192) == [4, 32, 16, 32], "8 times 31 registers: it may just fit"
    assert variants(linked, BLOCK=16384) == [32, 32, 16, 32]
    assert variants(linked, BLOCK=32768) == [32, 32, 32, 32]
    assert variants(link_warps([BLOCK, WARPS], [BLOCK], registers=255), BLOCK=4096) == [4, 16, 8, 32], "a compiler hoards registers too"


def test_nothing_is_linked_where_warps_are_varied_or_cannot_be():
    for every, varied in (([BLOCK, WARPS], [BLOCK, WARPS]), ([BLOCK, WARPS], [WARPS]), ([BLOCK], [BLOCK])):
        linked = link_warps(every, varied)
        assert not linked.followers and linked.list_variants({"BLOCK": 8192}) == [{}] * VARIANTS


def test_each_kernel_of_a_text_has_its_own():
    space = read_space(TWO)
    linked = link_warps(space.parameters, space.of_stages((Stage.TUNE_BLOCK,)))
    assert linked.names == {"num_warps_first": ["TILE"], "num_warps_second": ["WIDE"]}
    assert linked.list_variants({"TILE": 1024})[1] == {"num_warps_first": 8, "num_warps_second": 8}


def test_a_start_that_names_warps_keeps_them():
    linked = link_warps([BLOCK, WARPS], [BLOCK])
    assert linked.given_by({"BLOCK": 2048, "num_warps": 32}) == {"num_warps": 32} and linked.given_by({}) == {"num_warps": 4}
