"""What leaves in a trace: keys never, kernels as their heads, paths as their last part; what is said around them stays."""

import json
from urllib.parse import quote

import pytest

from tritonsmith.graph.tracing.redact import END_SHOWN, KERNEL_SHOWN, TEXT_SHOWN, Redactor, key_values

KERNEL = '''"""Adds two tensors.

It stands in a text that is part of the module, and so do
these lines.

And these.
"""
import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    # every program adds one block of numbers, and the mask keeps the last one within the tensor
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


# MARK_A
# one comment after another
# and another
class ModelNew(torch.nn.Module):
    """Adds."""

    def forward(self, x, y):
        out = torch.empty_like(x)
        MARK_B = triton.cdiv(x.numel(), 128)
        add[(MARK_B,)](x, y, out, x.numel(), BLOCK=128)
        return out
'''
INDENTED = "    " + KERNEL.replace("\n", "\n    ")
FORMS = {
    "bare": KERNEL,
    "fenced": f"Here it is.\n```python\n{KERNEL}```\nIt is fast.",
    "a fence that never closes": f"Here it is.\n```python\n{KERNEL}",
    "tildes": f"~~~~\n{KERNEL}~~~~\nIt is fast.",
    "quoted": "> ```\n> " + KERNEL.replace("\n", "\n> ") + "\n> ```",
    "indented": f"Here it is.\n\n{INDENTED}\nIt is fast.",
    "after a thought": f"<think>\nI load first.\n</think>\n{KERNEL}\nIt is fast.",
    "several": f"One:\n```\n{KERNEL}```\nTwo:\n```\n{KERNEL}```\nand bare again\n\n{KERNEL}",
    "in JSON": json.dumps({"source": KERNEL}),
    "windows": KERNEL.replace("\n", "\r\n"),
    "with the reference before it": f"class Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n\n\n{KERNEL}",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_is_cut_to_its_head_in_whatever_form_it_comes(form):
    told = Redactor().text(FORMS[form])
    assert "MARK_A" not in told and "MARK_B" not in told and "tl.store" not in told
    assert "characters, sha " in told and len(told) < len(FORMS[form])


def test_code_in_one_line_of_json_is_cut_out_of_prose():
    """Code in one line of JSON is cut out of many lines of prose."""
    prose = "\n".join(f"Point {number} is about masks." for number in range(80))
    told = Redactor().text(f"{prose}\n{json.dumps({'source': KERNEL})}\n{prose}")
    assert "MARK_A" not in told and told.count("Point 7 is about masks.") == 2


HARD = [" " * 100_000, "a " * 50_000, "`" * 30_000, "~~~\n" * 20_000, "x = " * 30_000, "/a" * 50_000, "(" * 50_000, '"""\n' * 9999]


@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
def test_texts_that_make_expressions_slow_are_read_as_well(text):
    assert len(Redactor().text(text)) <= TEXT_SHOWN + END_SHOWN + 60


def test_what_is_said_around_a_kernel_stays():
    told = Redactor().text(FORMS["fenced"])
    assert told.startswith("Here it is.\n```python\n\"\"\"Adds two tensors.") and told.endswith("```\nIt is fast.")
    prose = "\n".join(f"- rule {number}: masks keep loads within the tensor, and a grid has at most 65535 programs" for number in range(30))
    assert Redactor().text(prose) == prose
    wrapped = "Take one program per row\nfor long rows, or two\nwith short ones. It is known\nfrom the card, as we see\n" * 8
    assert Redactor().text(wrapped) == wrapped
    few = "Call it so:\n    out = add(x, y)\nand nothing else." + " " * KERNEL_SHOWN
    assert Redactor().text(few) == few


def test_long_texts_are_cut():
    told = Redactor().text("word " * 5000 + "and what is asked?")
    assert len(told) < TEXT_SHOWN + END_SHOWN + 60 and told.endswith("what is asked?") and "25018 characters" in told


def test_keys_of_the_environment_are_replaced_everywhere(monkeypatch):
    """Keys of the environment are replaced wherever they occur."""
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "tok-12345678")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic abcdefghij,other=1")
    monkeypatch.setenv("ORDINARY", "an ordinary word")
    told = Redactor(["given by name"])({
        "a": ["x tok-12345678 y", {"tok-12345678": "given by name"}], "b": "Basic abcdefghij", "c": "an ordinary word", "d": 3, "e": None,
    })  # fmt: skip
    assert told == {"a": ["x [key] y", {"[key]": "[key]"}], "b": "[key]", "c": "an ordinary word", "d": 3, "e": None}


KEYS = (
    "sk-abcdefghijklmnop1234", "sk-proj-abcdefghijklmnop1234", "lsv2_pt_0123456789abcdef0123", "hf_abcdefghijklmnopqrst",
    "ghp_0123456789abcdefghij", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----",
)  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_what_looks_like_a_key_is_replaced_too(key):
    assert Redactor().text(f"refused: {key}.") == "refused: [key]."
    assert Redactor().text("header Bearer abcdef123456 and http://me:secret@host/x") == "header Bearer [key] and http://[key]@host/x"


def test_keys_are_found_in_errors_and_addresses():
    """Keys are found in the form in which errors and addresses have them."""
    key = 'two\nlines/with "quotes" & more'
    written = (key, repr(ValueError(key)), json.dumps({"key": key}), f"http://host/?key={quote(key, safe='')}")
    assert [Redactor([key]).text(text) for text in written] == ["[key]", "ValueError('[key]')", '{"key": "[key]"}', "http://host/?key=[key]"]


def test_short_values_and_plain_names_are_no_keys():
    assert key_values({"A_KEY": "short", "KEYBOARD": "a long value here", "MONKEY": "bananabanana"}) == ["bananabanana"]


def test_paths_keep_their_last_part():
    told = Redactor().text('File "/home/someone/project/graph/run.py", line 3 in run; see ~/runs/x/best.py, http://host:80/a/b and 1 / 2')
    assert Redactor().text("model:handoff:/home/someone/replies, (/opt/x/y)") == "model:handoff:.../replies, (.../y)"
    assert told == 'File ".../run.py", line 3 in run; see .../best.py, http://host:80/a/b and 1 / 2'


def test_nothing_slips_through_below_the_deepest_level():
    deep: object = "sk-abcdefghijklmnop1234"
    for _ in range(200):
        deep = {"in": [deep]}
    assert "sk-abc" not in json.dumps(Redactor()(deep))
