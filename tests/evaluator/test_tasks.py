"""Task files: what loads, what is refused with which sentence, and what the executed reference gives."""

import ast
import subprocess
import sys
import typing
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from project import ROOT
from tritonsmith.evaluator.errors import TaskError, UsageError
from tritonsmith.evaluator.reference.module import flatten, load_reference
from tritonsmith.evaluator.schema import PrecisionClass, SizeValue, Task
from tritonsmith.evaluator.tasks.declared import draw_sizes
from tritonsmith.evaluator.tasks.files import at_shape, declared_shapes, ends_of, load_task, parse_overrides

TASKS = sorted((ROOT / "benchmarks" / "tasks").glob("[0-9]*.py"))
PLAIN = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x)

batch_size = 4
width = 8
twice = 2 * width

def get_inputs():
    return [torch.rand(batch_size, width)]

def get_init_inputs():
    return [width]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "task.py"
    path.write_text(text)
    return path


def test_the_tasks_of_the_notes_are_there_at_full_size() -> None:
    names = {path.stem.split("_")[0]: path for path in TASKS}
    assert {"11", "35", "36", "37", "38", "39", "40", "41", "42"} <= names.keys()
    for number in range(35, 43):
        values = {
            target.id: statement.value.value
            for statement in ast.parse(names[str(number)].read_text()).body
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        wanted = {"seq_len": 512, "batch_size": 10, "input_size": 128, "hidden_size": 256, "num_layers": 6}
        assert wanted.items() <= values.items()
        assert load_task(names[str(number)]).overrides == {}


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_small_size_is_the_same_module_smaller(path: Path) -> None:
    full, small = load_task(path), load_task(path, "small")
    assert small.overrides and small.source == full.source and small.sha != full.sha and small.size == "small"
    reference = load_reference(small)
    outputs = flatten(reference.forward(reference.build(0), reference.draw_inputs(0)))
    assert all(bool(torch.isfinite(tensor).all()) for tensor in outputs)
    assert sum(tensor.numel() for tensor in outputs) < 200_000


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("35_lstm", (10, 10)),
        ("36_lstm_hn", (6, 10, 64)),
        ("37_lstm_cn", (6, 10, 64)),
        ("38_lstm_bidirectional", (10, 10)),
        ("39_gru", (8, 10, 32)),
        ("40_gru_hidden", (6, 10, 64)),
        ("41_gru_bidirectional", (16, 10, 128)),
        ("42_gru_bidirectional_hidden", (12, 10, 64)),
        ("11_vgg16", (2, 10)),
    ],
)
def test_what_each_task_returns(name: str, shape: tuple[int, ...]) -> None:
    reference = load_reference(load_task(TASKS[0].parent / f"{name}.py", "small"))
    (output,) = flatten(reference.forward(reference.build(0), reference.draw_inputs(0)))
    assert tuple(output.shape) == shape


def test_cell_and_hidden_state_are_told_apart() -> None:
    hidden, cell = (load_reference(load_task(TASKS[0].parent / name, "small")) for name in ("36_lstm_hn.py", "37_lstm_cn.py"))
    inputs = hidden.draw_inputs(0)
    model, other = hidden.build(0), cell.build(0)
    with torch.no_grad():
        _, (h, c) = model.get_submodule("lstm")(inputs[0], (inputs[1], inputs[2]))
        assert torch.equal(model(*inputs), h) and torch.equal(other(*inputs), c)


def test_a_file_without_a_small_size_loads_at_full_size(tmp_path: Path) -> None:
    """A file without a small size loads at full size, and by setting names."""
    path = write(tmp_path, PLAIN)
    assert load_task(path).size == "full"
    with pytest.raises(TaskError, match=r"task\.py: declares no small size; .*--set NAME=VALUE .*batch_size, twice, width"):
        load_task(path, "small")
    assert load_task(path, "small", {"width": 4}).overrides == {"width": 4}
    assert (load_task(path, "fit").size, load_task(path, "fit", {"width": 4}).size) == ("fit", "custom")
    assert load_task(path, "fit").sha != load_task(path).sha
    assert load_task(ROOT / "benchmarks/tasks/39_gru.py", "fit") == load_task(ROOT / "benchmarks/tasks/39_gru.py", "small")
    task = load_task(path, overrides={"width": 16}, precision="tf32")
    assert (task.size, task.precision) == ("custom", PrecisionClass.TF32)
    reference = load_reference(task)
    assert reference.draw_inputs(0)[0].shape == (4, 16)
    assert reference.module.twice == 32  # a name computed from an overridden one follows


def test_a_file_may_name_its_mode(tmp_path: Path) -> None:
    plain, train = write(tmp_path, PLAIN), tmp_path / "train.py"
    train.write_text(PLAIN + '\nMODE = "train"')
    assert (load_task(plain).mode, load_task(train).mode) == ("eval", "train")
    assert (load_task(plain, mode="train").mode, load_task(train, mode="eval").mode) == ("train", "eval")
    assert load_reference(load_task(train)).build(0).training and not load_reference(load_task(plain)).build(0).training


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (PLAIN + "MODE = 'trian'", r"task\.py, line 22: MODE is 'trian'; write MODE = \"eval\" or MODE = \"train\""),
        (PLAIN + "MODE = width", r"task\.py, line 22: MODE is width; write MODE = "),
        (PLAIN.replace("class Model", "class Net"), r"task\.py: lacks Model; add a class Model"),
        (PLAIN.replace("def get_inputs", "def inputs"), r"task\.py: lacks get_inputs; add a function get_inputs"),
        (PLAIN.replace("def get_init_inputs", "def init"), r"task\.py: lacks get_init_inputs; add"),
        (PLAIN + "\0", r"task\.py: holds null bytes; name a Python source file"),
        (PLAIN.replace("width = 8", "width = = 8"), r"task\.py, line 14: Python cannot read it .*; fix"),
        ("def Model(): 0\ndef get_inputs(): 0\ndef get_init_inputs(): 0", r"task\.py, line 1: Model is a function; make it a class"),
        (PLAIN + "SMALL = {'depth': 3}", r"task\.py, line 22: SMALL names depth, which the file does not set at module level"),
        (PLAIN + "SMALL = {'width': 'x'}", r"task\.py, line 22: SMALL gives width the value 'x', but the file sets it to the number 8"),
        (PLAIN + "SMALL = dict(width=3)", r"task\.py, line 22: SMALL must be a literal dict"),
        (PLAIN + "SMALL = [3]", r"task\.py, line 22: SMALL must be a literal dict"),
        (PLAIN + "SHAPES = {'width': 3}", r"task\.py, line 22: SHAPES must be a literal list of dicts"),
        (
            PLAIN + "SHAPES = [{'width': 3},\n    {'depth': 3}]",
            r"task\.py, line 23: SHAPES names depth, which the file does not set .*; choose among",
        ),
        (PLAIN + "SHAPES = [{}]", r"task\.py, line 22: SHAPES must be a literal list of dicts"),
        (PLAIN + "SHAPES = [{'width': (1, 2, 3)}]", r"task\.py, line 22: SHAPES must be .* \(lowest, highest\) pairs of whole numbers"),
        (PLAIN + "SHAPES = [{'width': (9, 2)}]", r"task\.py, line 22: SHAPES gives width the span \(9, 2\); write the lowest value first"),
        (PLAIN + "SHAPES = [{'width': 'x'}]", r"task\.py, line 22: SHAPES gives width the value 'x', but the file sets it to the number 8"),
        (PLAIN + "SHAPES = [{'SMALL': 1}]\nSMALL = {'width': 2}", r"task\.py, line 22: SHAPES names SMALL"),
        ("\0", r"task\.py.*"),
    ],
)
def test_faulty_files_get_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(TaskError, match=sentence) as caught:
        load_task(write(tmp_path, text), "small")
    assert "\n" not in str(caught.value)


def test_a_malformed_declaration_of_sizes_is_said_at_any_size(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"task\.py, line 22: SHAPES must be"):
        load_task(write(tmp_path, PLAIN + "SHAPES = [width]"))


def test_other_sizes_are_drawn_from_what_the_file_declares(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        PLAIN + "SMALL = {'width': 4}\nSHAPES = [{'batch_size': (1, 40)}, {'width': 5, 'batch_size': 2}, {'width': 7}, {'width': 9}]\n",
    )
    task = load_task(path, "small")
    drawn = [[size.task for size in draw_sizes(task, 2)] for _ in range(40)]
    assert {len(variants) for variants in drawn} == {2}
    found = [tuple(sorted(one.overrides.items())) for variants in drawn for one in variants]
    spans = {dict(one)["batch_size"] for one in found if dict(one)["width"] == 4}
    assert len(spans) > 5 and all(1 <= one <= 40 for one in spans)  # type: ignore[operator]
    assert {dict(one)["width"] for one in found} == {4, 5, 7, 9}  # on top of the size that is judged
    assert len({variants[0].sha for variants in drawn}) > 3 and all(one.size == "custom" for one in drawn[0])
    reference = load_reference(at_shape(task, {"batch_size": 3}))
    assert reference.draw_inputs(0)[0].shape == (3, 4)
    assert draw_sizes(load_task(write(tmp_path, PLAIN))) == []


@pytest.mark.parametrize("path", [path for path in TASKS if "num_layers" in path.read_text()], ids=lambda path: path.stem)
def test_recurrent_tasks_allow_other_batches_and_lengths(path: Path) -> None:
    ends = [end for shape in declared_shapes(load_task(path)) for end in ends_of(shape)]
    assert any(end.get("batch_size") == 1 for end in ends) and any(end.get("seq_len") == 1 for end in ends)


def test_paths_that_are_no_task_file(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"nowhere\.py: no such task file; check the path"):
        load_task(tmp_path / "nowhere.py")
    with pytest.raises(TaskError, match=r"is a directory; name one task file in it"):
        load_task(tmp_path)
    (tmp_path / "latin.py").write_bytes(b"# fine\n# na\xefve\n")
    with pytest.raises(TaskError, match=r"latin\.py, line 2: is not UTF-8 text; save"):
        load_task(tmp_path / "latin.py")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"depth": 2}, r"--set depth=2 names depth, which .*choose among: batch_size, twice, width"),
        ({"width": 2.5}, r"--set width=2\.5 gives width .* whole number 8; give a whole number"),
        ({"width": "wide"}, r"--set width=wide gives width .* number 8; give a number"),
        ({"width": (8, 8)}, r"--set width=\(8, 8\) gives width .* number 8; give a number"),
        ({"kind": (8, 8)}, r"--set kind=\(8, 8\) gives kind .* sets it to 'relu'; give a value of that kind"),
    ],
)
def test_overrides_must_fit_the_file(tmp_path: Path, overrides: dict[str, SizeValue], sentence: str) -> None:
    with pytest.raises(TaskError, match=sentence):
        load_task(write(tmp_path, PLAIN + ("kind = 'relu'" if "kind" in overrides else "")), overrides=overrides)


@pytest.mark.parametrize("declared", ["[8, 4]", "(8, 4)"])
def test_several_sizes_keep_their_kind(tmp_path: Path, declared: str) -> None:
    path = write(tmp_path, PLAIN + f"layers = {declared}\nSMALL = {{'layers': [3, 2]}}")
    task = load_task(path, "small")
    assert task.overrides == {"layers": (3, 2)} and Task.model_validate_json(task.model_dump_json()) == task
    layers = load_reference(task).module.layers
    assert list(layers) == [3, 2] and type(layers) is type(ast.literal_eval(declared))


def test_overrides_of_the_command_line() -> None:
    found = parse_overrides(["seq_len=16", "scale = 0.5", "mode=relu", "bias=false", "name='7'", "layers=[64, 32]"])
    assert found == {"layers": (64, 32), "seq_len": 16, "scale": 0.5, "mode": "relu", "bias": False, "name": "7"}
    for wrong in ("seq_len", "=3", "a b=3", "x=", "x=[1.5]", "x={1: 2}"):
        with pytest.raises(UsageError, match="--set .*"):
            parse_overrides([wrong])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("import torch.nn as nn", "import torch.nn as nn, no_such_module"), r"task\.py, line 3: the file raised ModuleNotF.*install"),
        (("self.linear = nn.Linear(width, width)", "self.linear = nn.Linear(width, -1)"), r"task\.py, line 8: Model\(8\) raised Runtime"),
        (("return [width]", "return [width, 3]"), r"task\.py: Model\(8, 3\) raised TypeError .*; fix __init__ or get_init_inputs"),
        (("return [torch.rand(batch_size, width)]", "return torch.rand(4, 8)"), r"line 17: get_inputs\(\) returns Tensor; return a list"),
        (("return [torch.rand(batch_size, width)]", "return [{'x': [torch.rand(4, 8)]}]"),
         r"line 17: argument 1 that get_inputs\(\) gives is a dict that holds tensors, .*; give each tensor as an argument"),
        (("torch.rand(batch_size, width)", "torch.rand(batch_size, 5)"), r"task\.py, line 11: forward raised Runtime.*; make Model"),
        (("torch.rand(batch_size, width)", "torch.rand(4, 8).to_sparse()"), r"line 17: get_inputs\(\) gives a sparse_coo tensor, .*dense"),
        (("return self.linear(x)", "return x, x.to_sparse()"), r"line 10: forward returns a sparse_coo tensor, .*; use a plain one"),
        (("return self.linear(x)", "return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)"), r"forward returns a quantized tensor"),
        (("return self.linear(x)", "return torch.empty(3, device='meta')"), r"line 10: forward returns a meta tensor"),
        (("return self.linear(x)", "return None"), r"task\.py, line 10: forward returns NoneType, which holds no tensor; return a tensor"),
        (("return self.linear(x)", "raise SystemExit(3)"), r"task\.py, line 11: forward raised SystemExit"),
        (("(nn.Module)", ""), r"task\.py, line 8: Model\(8\)|task\.py: Model is not a torch\.nn\.Module"),
    ],
)  # fmt: skip
def test_faults_at_run_time_name_the_line(tmp_path: Path, change: tuple[str, str], sentence: str) -> None:
    task = load_task(write(tmp_path, PLAIN.replace(*change)))
    with pytest.raises(TaskError, match=sentence) as caught:
        reference = load_reference(task)
        reference.forward(reference.build(0), reference.draw_inputs(0))
    assert "\n" not in str(caught.value)


def test_seeds_decide_weights_and_inputs(tmp_path: Path) -> None:
    """Seeds decide weights and inputs, and leave the caller's generators alone."""
    reference = load_reference(load_task(write(tmp_path, PLAIN)))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, same, other = reference.build(1), reference.build(1), reference.build(2)
    inputs = [reference.draw_inputs(seed)[0] for seed in (1, 1, 2)]
    assert torch.equal(torch.rand(3), expected)
    first, second, third = (model.get_parameter("linear.weight") for model in (one, same, other))
    assert torch.equal(first, second) and not torch.equal(first, third)
    assert torch.equal(inputs[0], inputs[1]) and not torch.equal(inputs[0], inputs[2])
    assert not one.training


def test_outputs_are_flattened_in_a_stable_order() -> None:
    @dataclass
    class Result:
        first: torch.Tensor
        rest: list[object]

    class Pair(typing.NamedTuple):
        a: torch.Tensor
        b: torch.Tensor

    one, two, three, four = (torch.tensor(float(number)) for number in range(4))
    nested = Result(one, [Pair(two, three), {"z": None, "a": four, "n": 7}])
    assert [float(tensor) for tensor in flatten(nested)] == [0.0, 1.0, 2.0, 3.0]
    assert [float(tensor) for tensor in flatten({"b": one, "a": two})] == [float(tensor) for tensor in flatten({"a": two, "b": one})]
    assert flatten("text") == []


def test_reading_tasks_and_kernels_loads_no_torch() -> None:
    code = (
        "import sys; from tritonsmith.evaluator.caller import local; from tritonsmith.evaluator.tasks import files;"
            "from tritonsmith.evaluator.texts.detect import detection;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'triton')))"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], timeout=60).returncode == 0
