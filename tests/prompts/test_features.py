"""What prompts say of Triton's versions: each line has a kernel that compiles for sm_90, and for sm_100 where this Triton can."""

import importlib.util
import textwrap
from importlib.metadata import version

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.schema import Task, TaskFacts
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


def compile_body(body, folder, capability):
    """The body as a kernel, compiled ahead of time, its pointers at addresses that are multiples of 16."""
    file = folder / "probe.py"
    file.write_text(HEAD + KEEP + DEFINE + textwrap.indent(body.strip(), "    ") + "\n")
    spec = importlib.util.spec_from_file_location("probe", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
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


def test_features_are_told_by_version():
    told = list_features("3.6.0")
    assert len(told) == sum(bool(feature.text) for feature in read_features()) and any("make_tensor_descriptor" in line for line in told)
    assert not any("input_precision" in line for line in list_features("3.6.0", half=True))
    assert not any("tl.dot` needs" in line for line in list_features("3.7.1", products=False))
    assert list_features("3.5.1") == () and list_features("") == ()
