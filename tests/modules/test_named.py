"""Modules by name on a command line: files, architectures of libraries, inputs and arguments in words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from tritonsmith.cli.app import app
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.modules.bringing.named import load_named, read_init, read_inputs, read_sizes
from tritonsmith.modules.shell import bring_named, name_of, names_module

FILE = """
import torch
from torch import nn
from {around}layers import Scale

class Net(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.linear, self.scale = nn.Linear(width, 4, bias=bias), Scale()

    def forward(self, x, shift=None):
        return self.scale(self.linear(x)) + (0 if shift is None else shift)
"""
LAYERS = "from torch import nn\nclass Scale(nn.Module):\n    def forward(self, x): return 2 * x\n"


def test_words_that_name_a_module_are_told_from_task_files(tmp_path: Path) -> None:
    assert all(map(names_module, ("net.py:Net", "a/b.py:Net", "hf:config.json", "timm:resnet18")))
    assert not any(map(names_module, ("net.py", "39", "tasks/*.py", str(tmp_path), "net.py:1")))
    assert [name_of(word) for word in ("a/net.py:Net", "hf:a/config.json", "timm:resnet18")] == [
        "Net",
        "config",
        "resnet18",
    ]


def test_inputs_in_words() -> None:
    (a, b, c), named = read_inputs("float32[2,3], int64[4]:50, bool[], mask=bfloat16[2, 2]")
    assert (a.dtype, a.shape) == (torch.float32, (2, 3)) and (b.dtype, int(b.max()) < 50) == (
        torch.int64,
        True,
    )
    assert c.shape == () and named["mask"].dtype == torch.bfloat16
    for wrong in ("float[2", "flat[2]", "float32[2]; int64[3]", "[2]", "float32"):
        with pytest.raises(UsageError, match="--inputs"):
            read_inputs(wrong)
    assert read_init("768, (1, 2), bias=False") == ([768, (1, 2)], {"bias": False}) and read_init(None) == (
        [],
        {},
    )
    with pytest.raises(UsageError, match="--init"):
        read_init("torch.ones(2)")


def test_sizes_in_words() -> None:
    assert read_sizes("batch=1..64, length = 128; x[0]=7, x[-1]=2..4") == [
        {"batch": (1, 64), "length": 128},
        {"x": {0: 7, -1: (2, 4)}},
    ]
    assert read_sizes(None) == []
    for wrong in ("", "batch", "batch=", "batch=1..", "batch=-1", "batch=1-4", "batch=2; ", "a b=3", "batch=1.5"):
        with pytest.raises(UsageError, match="--shapes"):
            read_sizes(wrong)


@pytest.mark.parametrize("around", ["", "."])
def test_a_class_of_a_file_that_imports_its_neighbours(
    around: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / f"named{len(around)}"
    folder.mkdir()
    if around:
        (folder / "__init__.py").touch()
    (folder / f"net{len(around)}.py").write_text(FILE.format(around=around))
    (folder / "layers.py").write_text(LAYERS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "layers", raising=False)
    word = f"{folder}/net{len(around)}.py:Net"
    module, inputs = load_named(word, "float32[3,8], shift=float32[4]", "8, bias=False")
    assert (
        module.linear.bias is None
        and inputs[1].keys() == {"shift"}
        and module(*inputs[0], **inputs[1]).shape == (3, 4)
    )
    monkeypatch.delitem(sys.modules, "layers", raising=False)
    for init, text, said in (
        ("8", None, "has no example_inputs"),
        (None, "float32[3,8]", "give its arguments with --init"),
        ("8, 9, 10", "float32[3,8]", "give its arguments"),
    ):
        with pytest.raises(UsageError, match=said):
            load_named(word, text, init)
    with pytest.raises(UsageError, match="has no Other; its modules are .*Net"):
        load_named(word.replace(":Net", ":Other"), None, None)


def test_architectures_of_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("timm", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match="timm is not installed"):
        load_named("timm:resnet18", None, None)
    with pytest.raises(UsageError, match="transformers is not installed"):
        load_named("hf:config.json", None, None)
    stand_in = ModuleType("timm")
    stand_in.create_model = lambda name, pretrained, **words: nn.Conv2d(3, words.get("width", 2), 3)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    module, image = load_named("timm:any", None, "width=5")
    assert module(image).shape == (2, 5, 222, 222)
    library = ModuleType("transformers")

    class Config:
        vocab_size = 20

    library.AutoConfig = type("AutoConfig", (), {"for_model": staticmethod(lambda kind, **words: Config())})  # type: ignore[attr-defined]
    library.AutoModel = type(
        "AutoModel", (), {"from_config": staticmethod(lambda config: nn.Embedding(20, 4))}
    )  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", library)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "any"}))
    module, (args, kwargs) = load_named(f"hf:{tmp_path}/config.json", None, None)
    assert args == () and int(kwargs["input_ids"].max()) < 20 and isinstance(module, nn.Embedding)
    with pytest.raises(UsageError, match="no config.json"):
        load_named(f"hf:{tmp_path}/none.json", None, None)


@pytest.mark.slow
def test_a_process_of_its_own_brings_a_named_module_in(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        FILE.format(around="") + "def example_inputs():\n    print('hello')\n    return torch.ones(3, 8)\n"
    )
    (tmp_path / "layers.py").write_text(LAYERS)
    word = f"{tmp_path}/net.py:Net"
    task, reason = bring_named(word, tmp_path / "run" / "task", inputs=None, init="8", mode="eval")
    assert task.is_file() and reason == "" and (task.parent / "signature.pkl").is_file()
    with pytest.raises(UsageError, match="give its arguments with --init"):
        bring_named(word, tmp_path / "other", inputs=None, init=None, mode="eval")


@pytest.mark.slow
def test_the_command_refuses_gradients_that_there_are_not(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    def forward(self, x): return x.argmax(-1)\n"
    )
    words = ["optimize", f"{tmp_path}/net.py:Net", "--inputs", "float32[3,8]", "--backward", "--out", str(tmp_path / "run")]
    done = subprocess.run([str(Path(sys.executable).with_name("tritonsmith")), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "returns whole numbers alone, which have no gradient" in done.stderr  # noqa: PLR2004 - a wrong use
    assert "Traceback" not in done.stderr and not (tmp_path / "run" / "summary.json").exists()


def test_the_command_says_what_is_wrong_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").touch()
    for words, said in (
        (["net.py:Net", "--out", "full"], "the folder is not empty"),
        (["39", "--shapes", "batch=2"], "a task file declares SHAPES"),
        (["39", "--inputs", "float32[3]"], "--inputs, --init and --shapes are for a module"),
    ):
        done = CliRunner().invoke(app, ["optimize", *words])
        assert isinstance(done.exception, UsageError) and said in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
