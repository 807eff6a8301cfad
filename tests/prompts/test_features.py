"""What prompts say of Triton's versions: each line has a kernel that compiles for sm_90, and for sm_100 where this Triton can."""

import textwrap
from importlib.metadata import version

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from compiled_products import AT_RISK, import_file
from tritonsmith.author.examples import prompt_for
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.schema import Task, TaskFacts
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.kinds import Family
from tritonsmith.prompts.templates.facts_told import tell_facts
from tritonsmith.prompts.templates.triton_features import list_features, read_features

HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n"
KEEP = "@triton.jit\ndef keep(a, b):\n    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)\n\n\n"
TYPES = {"x": "*bf16", "w": "*bf16", "y": "*fp32", "p": "*i32", "n": "i32", "B": "constexpr", "K": "constexpr"}
HERE = [feature for feature in read_features() if feature.is_in(version("triton"))]
DEFINE = "@triton.jit\ndef probe(x, w, y, p, n, B: tl.constexpr, K: tl.constexpr):\n"


PRODUCT = """
m, n, k = tl.arange(0, B), tl.arange(0, B), tl.arange(0, 64)
total = tl.zeros((B, B), tl.float32)
for at in tl.range(0, K, 64, num_stages=STAGES):
    total = tl.dot(tl.load(x + m[:, None] * K + at + k[None, :]), tl.load(w + n[None, :] * K + at + k[:, None]), total)
tl.store(y + m[:, None] * B + n[None, :], total)
"""


TILES = """
count = n
m, n, k = tl.arange(0, B), tl.arange(0, B), tl.arange(0, 64)
for tile in tl.range(tl.program_id(0), count, tl.num_programs(0)FLAT):
    total = tl.zeros((B, B), tl.float32)
    for at in tl.range(0, K, 64, num_stages=3):
        total = tl.dot(tl.load(x + (tile * B + m)[:, None] * K + at + k[None, :]), tl.load(w + n[None, :] * K + at + k[:, None]), total)
    tl.store(y + (tile * B + m)[:, None] * B + n[None, :], total)
"""


def compile_body(body, folder, capability):
    """The body as a kernel, compiled ahead of time, its pointers at addresses that are multiples of 16."""
    file = folder / "probe.py"
    file.write_text(HEAD + KEEP + DEFINE + textwrap.indent(body.strip(), "    ") + "\n")
    module = import_file(file)
    aligned = {(at,): [["tt.divisibility", 16]] for at in range(4)}
    source = ASTSource(fn=module.probe, signature=TYPES, constexprs={"B": 64, "K": 1024}, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32))


@pytest.mark.parametrize("capability", [90, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("feature", HERE, ids=lambda feature: feature.name)
def test_a_feature_compiles_as_it_is_told(feature, capability, tmp_path):
    assert compile_body(feature.body, tmp_path, capability).asm["cubin"]


@pytest.mark.parametrize("capability", [80, 90])
def test_stages_of_a_product_are_the_tiles_that_prompts_say(capability, tmp_path):
    card = named_card("h200").model_copy(update={"capability": capability})
    told = tell_facts(Task(name="t", path="t.py", source=""), TaskFacts(), card, (Family.GEMM,))["buffers"].strip("`()")
    for stages in (3, 4):
        buffers = {"num_stages": stages, "num_stages` - 1": stages - 1}[told]
        shared = compile_body(PRODUCT.replace("STAGES", str(stages)), tmp_path, capability).metadata.shared
        assert shared == buffers * (64 + 64) * 64 * 2


SUM = """
m, n, k = tl.arange(0, 128), tl.arange(0, 128), tl.arange(0, 64)
total = tl.zeros((128, 128), tl.float32)
for at in tl.range(0, K, 64, num_stages=3):
    a = LEFT
    total += tl.dot(a, tl.load(w + n[None, :] * K + at + k[:, None])OPTION)
tl.store(y + m[:, None] * 128 + n[None, :], total)
"""
ROWS = "tl.load(x + m[:, None] * K + at + k[None, :])"


def read_text(body, folder):
    return compile_body(body, folder, 90).asm["ttgir"]


@pytest.mark.parametrize(("option", "apart"), [("", False), (", max_num_imprecise_acc=1", True)])
def test_a_sum_for_each_block_stays_apart_as_prompts_say(option, apart, tmp_path):
    """Without the option Triton adds within the tensor core, which rounds towards zero."""
    text = read_text(SUM.replace("LEFT", ROWS).replace("OPTION", option), tmp_path)
    assert ("arith.addf" in text) == apart
    facts = TaskFacts(modules={"Linear": 1})
    told = prompt_for("seed", Brief(task=Task(name="t", path="t.py", source=""), facts=facts, hardware=named_card("h200"))).text
    assert "`total += tl.dot(a_high, b_high, max_num_imprecise_acc=1)`" in told


@pytest.mark.parametrize(
    ("left", "at_risk"),
    [
        (ROWS, False),
        ("tl.load(x + m[:, None] * K + at + k[None, :], mask=m[:, None] < n1, other=0.0)", False),
        ("tl.load(x + m[None, :] * K + at + k[:, None]).T", False),
        (f"({ROWS}.to(tl.float32) * 2.5).to(tl.bfloat16)", True),
        (f"tl.where(m[:, None] < n1, {ROWS}, 0.0)", True),
        ("tl.reshape(tl.load(x + m[:, None, None] * K + at + tl.arange(0, 2)[None, :, None] * 32 + k2[None, None, :]), [128, 64])", True),
    ],
)  # fmt: skip
def test_left_operands_that_are_made_in_the_loop_lie_in_registers(left, at_risk, tmp_path):
    """What the rule for sm_90 says: a product of them is split, and runs on while their registers are written."""
    head = "k2, n1 = tl.arange(0, 32), n\n"
    assert bool(AT_RISK.search(read_text(head + SUM.replace("LEFT", left).replace("OPTION", ""), tmp_path))) == at_risk


@pytest.mark.parametrize(("flat", "beside"), [("", 0), (", flatten=True", 64 * 64 * 4)])
def test_an_epilogue_takes_the_shared_memory_that_prompts_say(flat, beside, tmp_path):
    """Behind a plain loop it reuses the buffers of the product; in a flat one these still hold the next tile."""
    buffers = 3 * (64 + 64) * 64 * 2
    shared = compile_body(TILES.replace("FLAT", flat), tmp_path, 90).metadata.shared
    assert buffers + bool(beside) <= shared <= buffers + beside


def test_features_are_told_by_version():
    told = list_features("3.6.0")
    whole = {*told, *list_features("3.6.0", half=True)}
    assert len(whole) == sum(bool(feature.text) for feature in read_features()) and any("make_tensor_descriptor" in line for line in told)
    assert not any("input_precision" in line for line in list_features("3.6.0", half=True))
    assert not any("of cuBLAS" in line for line in told) and any("of cuBLAS" in line for line in list_features("3.6.0", half=True))
    assert not any("tl.cumsum" in line for line in list_features("3.6.0", rows=False))
    assert not any("tl.dot` needs" in line for line in list_features("3.7.1", products=False))
    assert list_features("3.5.1") == () and list_features("") == ()
