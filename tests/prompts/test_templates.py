"""Prompts: documents that stay as they are, what a stage is told and what not, and how long a prompt may be."""

import re
import shutil
from functools import cache
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from project import ROOT
from tritonsmith.author.book import BOOK, FAMILIES, match
from tritonsmith.author.examples import EXAMPLES, digest, prompt_for
from tritonsmith.author.prompt_pages import documents, main, read_briefs
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import (
    Bar,
    Candidate,
    Correctness,
    OpNode,
    PrecisionClass,
    Stage,
    Status,
    Task,
    TaskFacts,
    TensorSpec,
    Verdict,
)
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.nodes.evaluators.scripted import scripted_verdict
from tritonsmith.prompts.analysis import Analysis, Category
from tritonsmith.prompts.author import Attempt, Brief, Example
from tritonsmith.prompts.kinds import Family
from tritonsmith.prompts.templates import render
from tritonsmith.prompts.templates.error_text import trim_error
from tritonsmith.prompts.templates.families import families_of
from tritonsmith.prompts.templates.render import (
    MOST_TOKENS,
    STAGES,
    VERSION,
    hide_check_sizes,
    sort_by_name,
    token_bound,
)

SNAPSHOTS = sorted((ROOT / "tests" / "prompts").glob("*.json"))
SHOWN = ROOT / "docs" / "prompts" / "39_gru.json"
LEVEL_3 = ("11_vgg16", "35_lstm", "36_lstm_hn", "37_lstm_cn", "38_lstm_bidirectional", "39_gru", "40_gru_hidden", "41_gru_bidirectional",
           "42_gru_bidirectional_hidden")  # fmt: skip
LONGEST = ("42_gru_bidirectional_hidden",)
"""Those with the most operators and with the longest facts; the others wait for `make test-all`."""
H200 = named_card("h200")
PLAN = Analysis(bottleneck="b" * 300, optimisation_method="m" * 200, modification_plan="p" * 900, category=Category.FUSION)


@cache
def probed(name):
    """A task of the benchmarks with its facts."""
    task = load_task(ROOT / "benchmarks" / "tasks" / f"{name}.py")
    return task, probe(task)[0]


def brief(**fields):
    facts = TaskFacts(returns="a tensor", modules={"GRU": 1}, serial_steps=8, flops=1e9, min_bytes=1e6)
    base = {"task": Task(name="t", path="t.py", source="class Model: ..."), "facts": facts, "hardware": H200}
    return Brief(**{**base, **fields})


def attempt(source="kernel text", verdict=None, **fields):
    candidate = Candidate(id="c", sha="s", stage=Stage.SEED)
    return Attempt(candidate=candidate, source=source, verdict=verdict or scripted_verdict(0.2), **fields)


def failed(message, status=Status.COMPILE_ERROR):
    return Verdict(status=status, message=message)


@pytest.mark.parametrize("file", [*SNAPSHOTS, SHOWN], ids=lambda file: file.stem)
def test_prompts_are_the_documents_that_lie_beside_their_briefs(file):
    for path, text in documents(file).items():
        where = path.relative_to(ROOT)
        assert path.read_text() == text, f"{where} is not current: python -m tritonsmith.author.prompt_pages {file.relative_to(ROOT)}"


def turn_around(value):
    """The same value with the keys of every table in the opposite order."""
    if isinstance(value, dict):
        return {name: turn_around(inner) for name, inner in reversed(value.items())}
    return [turn_around(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("file", [*SNAPSHOTS, SHOWN], ids=lambda file: file.stem)
def test_equal_briefs_make_equal_prompts(file):
    """A prompt tells nothing of how tables were stored, for a request that differs is paid again."""
    for stage, asked in read_briefs(file).items():
        other = Brief.model_validate(turn_around(asked.model_dump(mode="json")))
        assert other == asked and prompt_for(stage, other).text == prompt_for(stage, asked).text


def test_names_are_sorted_with_their_numbers():
    names = ("layers.10.b", "w2", "layers.2.b", "layers.2.a", "W")
    assert [name for name, _ in sort_by_name(dict.fromkeys(names))] == ["W", "layers.2.a", "layers.2.b", "layers.10.b", "w2"]


def test_every_stage_and_family_has_a_document():
    assert {file.stem for file in SNAPSHOTS} == {family.value for family in Family}
    for file in SNAPSHOTS:
        assert set(read_briefs(file)) == set(STAGES)
        assert families_of(read_briefs(file)["seed"].facts)[0].value == file.stem
    assert set(read_briefs(SHOWN)) == {"seed", "analyze", "optimize", "repair"}


def test_the_shown_prompts_are_those_of_the_task_as_it_is():
    source = (ROOT / "benchmarks" / "tasks" / "39_gru.py").read_text()
    assert all(hide_check_sizes(one.task.source) == hide_check_sizes(source) for one in read_briefs(SHOWN).values())


def test_a_prompt_says_what_it_was_made_of(tmp_path):
    prompt = prompt_for("seed", brief())
    assert (prompt.stage, prompt.family, prompt.version, prompt.digest) == ("seed", "recurrent", VERSION, digest())
    assert prompt.parts[:2] == ("rules/general", "rules/recurrent") and prompt.parts[2].startswith("example: ")
    templates = ROOT / "prompts" / "templates" / VERSION
    same, changed = (Path(shutil.copytree(templates, tmp_path / name)) for name in ("same", "changed"))
    rule = changed / "rules" / "gemm.j2"
    rule.write_text(rule.read_text() + "\n")
    folder = EXAMPLES.folder
    assert render.digest(folder, same) == digest() != render.digest(folder, changed)
    recipes = Path(shutil.copytree(folder, tmp_path / "author", ignore=lambda path, names: [one for one in names if one.endswith(".py")]))
    (recipes / "_functions.py.j2").write_text("")
    assert render.digest(recipes) != digest()


def test_what_a_template_needs_must_be_there():
    for stage in ("repair", "analyze", "optimize", "tune"):
        with pytest.raises(UndefinedError):
            prompt_for(stage, brief())
    with pytest.raises(UndefinedError, match="analysis"):
        prompt_for("optimize", brief(current=attempt()))


def test_the_grid_rule_never_comes_without_the_barrier_rule():
    for file in SNAPSHOTS:
        for stage, one in read_briefs(file).items():
            text = prompt_for(stage, one).text
            assert ("Grid rule" in text) == ("Barrier rule" in text) == (file.stem == "recurrent"), (file.stem, stage)


@pytest.mark.parametrize("file", SNAPSHOTS, ids=lambda file: file.stem)
def test_stages_get_what_they_need(file):
    """A stage that writes anew has a worked example that fits, or the rules' short kernels; others have neither."""
    texts = {stage: prompt_for(stage, one).text for stage, one in read_briefs(file).items()}
    for stage in ("repair", "tune"):
        assert "\nWrong:\n```python" not in texts[stage] and "# Worked example" not in texts[stage]
    seed = texts["seed"]
    assert ("# Worked example" in seed) != ("\nRight" in seed) and seed.count("\nWrong:\n```python") == seed.count("\nRight")
    assert "# The current kernel" not in seed and "# How it is judged" in seed
    assert "# Rules for Triton kernels" not in texts["analyze"] and "```python\n@triton.jit" not in texts["analyze"]
    assert "# What this error usually means" in texts["repair"] and "# What this error" not in texts["optimize"]
    for text in texts.values():
        assert 0 <= text.count("# Worked example") <= 2 and "{{" not in text


def test_the_bar_the_direction_and_the_place_are_told():
    bar = Bar(baseline="compile", baselines_ms={"eager": 0.5, "compile": 0.2}, kernels={"ampere_bf16_gemm": 0.15})
    present = H200.model_copy(update={"present": True, "triton": "3.6.0", "torch": "2.11.0"})
    task = Task(name="t", path="t.py", source="class Model: ...", precision=PrecisionClass.HALF)
    facts = TaskFacts(modules={"Linear": 1}, flops=1e12, min_bytes=1e6, reference_launches=5, precision=PrecisionClass.HALF, bar=bar)
    first, second = (prompt_for("seed", brief(task=task, facts=facts, hardware=present, branch=at)).text for at in (0, 1))
    assert "To beat: compile with 200 microseconds, the strongest of compile 200 microseconds, eager 500 microseconds." in first
    assert "ampere_bf16_gemm 150 microseconds" in first and "Versions: Triton 3.6.0, PyTorch 2.11.0." in first
    assert "1.27 ms at the rate of 16-bit products" in first and "TF32" not in first
    assert "Take this direction: the library for the product" in second and "Take this direction" not in first
    outputs = (TensorSpec(shape=(200, 300)),)
    wrong = Correctness(
        max_abs_err=1.0, mean_abs_err=0.1, err_vs_oracle=0.1, reference_err_vs_oracle=1e-7, worst_index=(199, 290), worst_expected=2.0,
        worst_actual=3.0,
    )  # fmt: skip
    broken = attempt(verdict=Verdict(status=Status.INACCURATE, message="wrong", correctness=wrong))
    text = prompt_for("repair", brief(facts=facts.model_copy(update={"outputs": outputs}), current=broken)).text
    place = "at [199, 290] of [200, 300] (expected 2, got 3): the last along axis 0; in the last, partial tile of 128 along axis 1."
    assert place in text


def test_the_card_the_precision_and_the_verdict_are_told():
    text = prompt_for("analyze", read_briefs(SHOWN)["analyze"]).text
    facts = (
        "132 processors", "65536 registers", "232448 bytes of shared memory", "4.22 TB/s", "TF32 400",
        "score 0.127 (0.126 to 0.127) against",
        "gru_step: 3072 launches, grid (8, 1, 1)", "128 registers per thread", "- time_loop_in_python (line 133)",
        "gru.weight_ih_l0 (768, 128)", "forward returns a tensor float32[512, 10, 256], the top layer's states of every step",
    )  # fmt: skip
    for fact in facts:
        assert fact in text, fact
    said = {one: prompt_for("seed", brief(task=Task(name="t", path="t", source="", precision=one))).text for one in PrecisionClass}
    assert 'input_precision="ieee"' in said[PrecisionClass.IEEE] and "bf16 has too few" in said[PrecisionClass.TF32]
    assert "round once, at the store" in said[PrecisionClass.HALF]
    assert "ten times below TF32's" in said[PrecisionClass.SPLIT] and 'input_precision="bf16x3"' in said[PrecisionClass.SPLIT]


def test_16_bits_of_its_own_and_training_mode_are_told():
    facts = TaskFacts(returns="a tensor", precision=PrecisionClass.HALF, updates=("norm.running_mean", "norm.num_batches_tracked"))
    task = Task(name="t", path="t", source='MODE = "train"\nclass Model: ...', precision=PrecisionClass.HALF, mode="train")
    text = prompt_for("seed", brief(task=task, facts=facts)).text
    assert "sums in 16 bits are refused as inaccurate" in text and "fp32 (class ieee)" not in text
    assert "Mode: training" in text and "in place, as the reference does: norm.running_mean, norm.num_batches_tracked." in text
    assert "Mode:" not in prompt_for("seed", brief()).text and 'MODE = "train"' not in text


def test_gradients_are_told_where_they_are_asked_for():
    task = Task(name="t", path="t", source="BACKWARD = True\nclass Model: ...", backward=True)
    text = prompt_for("seed", brief(task=task)).text
    assert "Gradients: one call is forward and backward" in text and "the original's operations again" in text
    assert "Gradients:" not in prompt_for("seed", brief()).text and "BACKWARD" not in text


def test_sizes_that_only_the_checks_know_are_not_told():
    source = "SMALL = {'n': 4}\nn = 8\nSHAPES = [\n    {'n': 9081},\n]\n\nclass Model: ...\n"
    text = prompt_for("seed", brief(task=Task(name="t", path="t", source=source))).text
    assert "9081" not in text and "SHAPES" not in text and "SMALL" not in text and "n = 8\n\nclass Model" in text
    assert "inputs of other sizes" in text and "inputs of other sizes" not in prompt_for("seed", brief()).text


def test_an_analysis_is_asked_for_with_its_keys():
    text = prompt_for("analyze", brief(current=attempt())).text
    keys = set(re.findall(r'"(\w+)": (?:str|number|bool|"|\{)', text))
    assert set(Analysis.model_fields) - {"evidence", "settings"} | {"metric", "before", "bound", "at_most"} == keys
    assert all(f'"{category.value}"' in text for category in Category) and "JSON" in text


def test_attempts_are_told_briefly_with_what_was_promised():
    slow = attempt("older", refusal="the library does the work", promise="promised launches_per_forward at most 2, measured 3072: not kept")
    broken = attempt("oldest", failed("kernel k, line 3: " + "x" * 900))
    text = prompt_for("repair", brief(current=attempt("now", failed("line 9: boom")), history=(broken, slow))).text
    assert "Earlier attempt 1 (seed) -> compile_error: kernel k, line 3: xxx" in text and "x" * 300 not in text
    assert "Earlier attempt 2 (seed) -> ok, score 0.200, may not win: the library does the work, promised launches" in text
    many = prompt_for("repair", brief(current=attempt("now", failed("boom")), history=(broken,) * 11)).text
    assert "The first 3 are left out." in many and "Earlier attempt 11" in many and "Earlier attempt 3 " not in many


def test_errors_keep_head_tail_and_the_candidates_line():
    source = "\n".join(f"line_{number} = {number}" for number in range(1, 40))
    middle = "m" * 9000
    cut = trim_error(f"kernel k, line 20: at the start\n{middle}\nat the end", source)
    assert cut.text.startswith("kernel k, line 20: at the start") and cut.text.endswith("at the end") and len(cut.text) < 1700
    assert cut.excerpt.splitlines()[0].endswith("17 | line_17 = 17") and ">   20 | line_20 = 20" in cut.excerpt
    kernel = "import triton\n\n@triton.jit\ndef kernel(x):\n    i = 1\n    v = tl.tanh(i)\n"
    inside = trim_error("CompilationError: at 3:8:\ndef kernel(x):\n    i = 1\n    v = tl.tanh(i)\n        ^\nno attribute 'tanh'", kernel)
    assert ">    6 |     v = tl.tanh(i)" in inside.excerpt and inside.text == "CompilationError: at 3:8:\n        ^\nno attribute 'tanh'"
    echo = "line 20: CompilationError: at 3:8:\ndef kernel(x):\n    i = 1\n    v = tl.tanh(i)\n        ^\nno attribute 'tanh'"
    assert trim_error(echo, source).text == "line 20: CompilationError: at 3:8:\n        ^\nno attribute 'tanh'"
    assert trim_error("no line is named", source).excerpt == "" and trim_error("line 99: beyond the end", source).excerpt == ""


def test_a_prompt_says_what_each_operator_takes():
    """Equal operators of one line count together, and what is small is added up."""
    heavy = [
        OpNode(name=f"l{at}", op="call_module", target="l", module_type="Linear", line=7, flops=4e8, bytes=1e6, launches=2) for at in (0, 1)
    ]
    light = [
        OpNode(name=f"a{at}", op="call_function", target="_operator.add", line=10 + at, flops=2e7, bytes=8e6, launches=1)
        for at in range(10)
    ]
    view = OpNode(name="v", op="call_method", target="view", line=9)
    facts = TaskFacts(ops=(*heavy, view, *light), flops=1e9, min_bytes=1e6)
    text = prompt_for("seed", brief(facts=facts)).text
    assert "- nn.Linear (line 7), 2 times: 80% of the operations, 2% of the bytes, 4 launches\n" in text
    assert "- the operator + (line 10): 2% of the operations, 10% of the bytes, 1 launch\n" in text
    assert "- the rest: 6% of the operations, 29% of the bytes, 3 launches\n" in text and "view" not in text
    alone = TaskFacts(ops=tuple(heavy), flops=1e9, min_bytes=1e6)
    assert "nn.Linear" not in prompt_for("seed", brief(facts=alone)).text


def test_a_prompt_says_where_its_figures_hold_for_one_way_only():
    said = "figures of one run: forward goes by the values of tensors (line 9, 12)"
    assert said in prompt_for("seed", brief(facts=TaskFacts(value_lines=(9, 12)))).text
    assert said[:19] not in prompt_for("seed", brief(facts=TaskFacts(size_lines=(9,)))).text


def test_families_follow_from_modules_calls_and_text():
    files = {"39_gru": "recurrent", "11_vgg16": "convolution", "76_linear_bias_relu": "gemm", "26_gelu_scale_bias": "pointwise"}
    for name, family in files.items():
        assert families_of(probed(name)[1])[0].value == family
    untraced = TaskFacts(trace_error="control flow")
    text = "def forward(self, q, k, v):\n    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v"
    assert families_of(untraced, text) == (Family.GEMM, Family.REDUCTION)
    assert families_of(TaskFacts(modules={"MultiheadAttention": 1, "LayerNorm": 2, "Linear": 2, "Conv2d": 1})) == (
        Family.ATTENTION, Family.CONVOLUTION, Family.GEMM,
    )  # fmt: skip
    assert families_of(TaskFacts()) == (Family.POINTWISE,)
    assert families_of(probed("11_vgg16")[1]) == (Family.CONVOLUTION, Family.GEMM)
    assert families_of(TaskFacts(modules={"Conv2d": 2, "MaxPool2d": 1, "LayerNorm": 1})) == (Family.CONVOLUTION, Family.REDUCTION)
    larger = OpNode(name="m", op="call_function", target="torch.max", args=({"ref": "a"}, {"ref": "b"}))
    row = OpNode(name="m", op="call_function", target="torch.max", args=({"ref": "a"}, -1))
    assert families_of(TaskFacts(ops=(larger,))) == (Family.POINTWISE,) and families_of(TaskFacts(ops=(row,))) == (Family.REDUCTION,)


@pytest.mark.parametrize("name", sorted(recipe.name for recipe in BOOK.values() if recipe.lesson))
def test_worked_examples_come_from_the_recipe_book(name):
    """Worked examples are what the recipe book makes of their module."""
    model = next(family.example for family in FAMILIES if BOOK[name] in family.recipes)
    task = Task(name="example", path="example.py", source=model.reference)
    facts, _ = probe(task)
    found = match(task, facts, H200)
    recipe = BOOK[name]
    example = EXAMPLES.write_example(name, H200, PrecisionClass.IEEE)
    written = recipe.render(found.plan, recipe.example_settings(found.plan, H200, PrecisionClass.IEEE))
    counted = found.plan.model_copy(update={"call_flops": {}}) if name == "regions" else found.plan  # an example has no card
    assert counted == model.plan and example.source == written and example.reference == model.reference.strip()


def test_kernels_of_earlier_runs_come_before_recipes():
    """Kernels of earlier runs come before recipes, and two at most are shown."""
    remembered = tuple(Example(title=f"number {one}", source=f"remembered_{one}") for one in range(3))
    text = prompt_for("seed", brief(examples=remembered)).text
    assert text.count("# Worked example") == 2 and "remembered_0" in text and "remembered_1" in text and "remembered_2" not in text
    one = prompt_for("seed", brief(examples=remembered[:1])).text
    assert "# Worked example 1: number 0" in one and "# Worked example 2: a kernel that" in one
    assert "remembered_0" not in prompt_for("repair", brief(examples=remembered, current=attempt(verdict=failed("x")))).text
    own = attempt().model_copy(update={"candidate": Candidate(id="c", sha="s", stage=Stage.SEED, recipe="recurrent_wavefront")})
    assert "one launch per layer, with one program per batch row" in prompt_for("optimize", brief(current=own, analysis=PLAN)).text
    layers = brief()
    assert EXAMPLES.name_examples((Family.RECURRENT,), layers.task, layers.facts)[0] == "recurrent_wavefront"


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in LONGEST else pytest.mark.slow) for name in LEVEL_3])
def test_prompts_of_level_3_stay_within_their_length(name):
    task, facts = probed(name)
    kernel = EXAMPLES.write_example("recurrent_wavefront", H200, PrecisionClass.IEEE).source  # the longest kernel that we know
    history = (attempt(kernel, failed("line 3: " + "long error " * 400)),) * 12
    working = attempt(kernel, scripted_verdict(0.2, message="slow"))
    broken = attempt(kernel, failed("kernel gru, line 40: " + "context " * 900 + "reason"))
    for stage in STAGES:
        current = {"seed": None, "repair": broken}.get(stage, working)
        whole = Brief(task=task, facts=facts, hardware=H200, current=current, history=history, analysis=PLAN, stage=Stage.TUNE_GRID)
        prompt = prompt_for(stage, whole)
        assert prompt.tokens == token_bound(prompt.text) <= MOST_TOKENS, stage
        assert current is None or kernel.rstrip() in prompt.text


def test_what_can_be_left_out_goes_before_a_prompt_is_too_long():
    long = "\n".join(f"value_{number} = {number}" for number in range(1400))
    fitting = prompt_for("optimize", brief(current=attempt(long), analysis=PLAN))
    assert fitting.tokens <= MOST_TOKENS and long in fitting.text and not any(part.startswith("example") for part in fitting.parts)
    endless = prompt_for("optimize", brief(current=attempt(long * 9), analysis=PLAN))
    assert endless.tokens > MOST_TOKENS and long * 9 in endless.text and "Wrong:" not in endless.text


@pytest.mark.parametrize("text", ["x[" * 60_000, "\0", "def f(:\n```\n# heading", "(" * 5000, "{{ secret }} {% raw %}"])
def test_a_text_that_nobody_can_read_still_makes_a_prompt(text):
    message = "line 1: SyntaxError: 'int' object is not iterable" + "\nat 3:8:\n" * 900
    shown = prompt_for("repair", brief(current=attempt(text, failed(message)))).text
    assert text in shown and "What this error usually means" in shown


def test_the_token_bound_is_above_what_tokenizers_start_from():
    """The bound of tokens is above the pieces that tokenizers start from."""
    piece = re.compile(r"'(?:[sdmt]|ll|ve|re)|[^\r\n\w]?[^\W\d_]+|\d{1,3}| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
    for file in [*SNAPSHOTS, SHOWN]:
        for stage, one in read_briefs(file).items():
            prompt = prompt_for(stage, one)
            pieces = piece.findall(prompt.text)
            assert "".join(pieces) == prompt.text
            split = sum(1 + (len(part.strip()) - 1) // 9 for part in pieces if part.strip()) + sum(not part.strip() for part in pieces)
            assert split <= prompt.tokens <= MOST_TOKENS, (file.stem, stage)


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read"), ("[]", "holds no briefs"), ('{"sing": {}}', "holds no briefs")])
def test_the_command_refuses_in_one_sentence(tmp_path, capsys, content, said):
    """The command refuses what it cannot write, in one sentence."""
    file = tmp_path / "briefs.json"
    if content is not None:
        file.write_text(content)
    assert main([str(file)]) == 2
    told = capsys.readouterr().err
    assert said in told and str(file) in told and told.count("\n") == 1
