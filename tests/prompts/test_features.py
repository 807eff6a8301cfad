"""What prompts say of Triton's versions: each line has a kernel that compiles for sm_90, and for sm_100 where this Triton can."""

import importlib.util
import textwrap
from importlib.metadata import version

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tritonsmith.prompts.templates.triton_features import list_features, read_features

HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n"
TYPES = {"x": "*bf16", "w": "*bf16", "y": "*fp32", "p": "*i32", "n": "i32", "B": "constexpr", "K": "constexpr"}
HERE = [feature for feature in read_features() if feature.is_in(version("triton"))]
DEFINE = "@triton.jit\ndef probe(x, w, y, p, n, B: tl.constexpr, K: tl.constexpr):\n"


def compile_body(body, folder, capability):
    """The body as a kernel, compiled ahead of time."""
    file = folder / "probe.py"
    file.write_text(HEAD + DEFINE + textwrap.indent(body.strip(), "    ") + "\n")
    spec = importlib.util.spec_from_file_location("probe", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source = ASTSource(fn=module.probe, signature=TYPES, constexprs={"B": 64, "K": 128})
    return triton.compile(source, target=GPUTarget("cuda", capability, 32))


@pytest.mark.parametrize("capability", [90, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("feature", HERE, ids=lambda feature: feature.name)
def test_a_feature_compiles_as_it_is_told(feature, capability, tmp_path):
    assert compile_body(feature.body, tmp_path, capability).asm["cubin"]


def test_features_are_told_by_version():
    told = list_features("3.6.0")
    assert len(told) == sum(bool(feature.text) for feature in read_features()) and any("make_tensor_descriptor" in line for line in told)
    assert not any("input_precision" in line for line in list_features("3.6.0", half=True))
    assert not any("tl.dot` needs" in line for line in list_features("3.7.1", products=False))
    assert list_features("3.5.1") == () and list_features("") == ()
