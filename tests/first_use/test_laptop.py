"""What somebody with a laptop types: README's example, what SMALL shrinks, sizes beyond the interpreter, an estimate's answer."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from project import ROOT
from tritonsmith.author.examples import prompt_for
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.reference.interpreter_time import require_reach
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.tasks.declared import note_small
from tritonsmith.evaluator.tasks.files import choose_load_size, load_task, settle_task
from tritonsmith.prompts.author import Brief

COMMAND = str(Path(sys.executable).parent / "tritonsmith")
EXAMPLE = ROOT / "examples" / "recorded_run"
OWN = """
import torch
from torch import nn

rows = 2048
width = 1024
depth = 3
SMALL = {SMALL}
{SHAPES}

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x):
        for _ in range(depth):
            x = torch.tanh(x) * self.scale
        return x


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
"""


def write(folder: Path, small: str, shapes: str = "") -> str:
    path = folder / "own.py"
    path.write_text(OWN.replace("{SMALL}", small).replace("{SHAPES}", shapes))
    return str(path)


def run(*words: str, cwd: Path) -> tuple[int, str]:
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=400, check=False, cwd=cwd)
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


def readme_example() -> str:
    found = re.search(r"```python\n(import torch\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


SAID = [
    ("{'rows': 16, 'width': 96}", "", "judged at SMALL: rows 2048 -> 16, width 1024 -> 96; "
     "best.py may refuse rows = 2048 and width = 1024: SHAPES does not name them"),
    ("{'rows': 16, 'width': 96}", "SHAPES = [{'rows': (1, 64)}]", "judged at SMALL: rows 2048 -> 16, width 1024 -> 96; "
     "not proven at rows = 2048, outside SHAPES; best.py may refuse width = 1024: SHAPES does not name it"),
    ("{'rows': 16}", "SHAPES = [{'rows': 4}, {'rows': (1, 4096)}]", "judged at SMALL: rows 2048 -> 16"),
    ("{'rows': 2048}", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("small", "shapes", "said"), SAID)
def test_what_small_shrinks_and_shapes_does_not_cover_is_said(tmp_path: Path, small: str, shapes: str, said: str) -> None:
    assert note_small(load_task(write(tmp_path, small, shapes), choose_load_size(None, False))).sized == said


def test_what_the_user_sets_is_no_shrinking(tmp_path: Path) -> None:
    path = write(tmp_path, "{'rows': 16, 'width': 96}", "SHAPES = [{'rows': (1, 4096)}]")
    asked = note_small(load_task(path, choose_load_size(None, False), {"width": 96}))
    assert asked.sized == "judged at SMALL: rows 2048 -> 16" and asked.meant == {"width": 96}
    assert note_small(load_task(path, "full")).sized == ""


def test_the_example_of_readme_leaves_the_constructor_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(readme_example())
    task = note_small(load_task(path, choose_load_size(None, False)))
    assert "columns" not in task.overrides and "may refuse" not in task.sized and "rows 16384 -> 16" in task.sized


def test_a_prompt_tells_the_full_size_and_which_size_is_checked(tmp_path: Path) -> None:
    task = load_task(write(tmp_path, "{'rows': 16, 'width': 96}"), choose_load_size(None, False))
    facts, _ = probe(task)
    text = prompt_for("seed", Brief(task=settle_task(task, facts), facts=facts, hardware=CARDS["h200"])).text
    assert "Inputs of forward: float32 (2048, 1024)" in text and "Parameters by name: scale (1024,)" in text
    assert "checked at a smaller size: rows = 16, width = 96 (inputs float32 (16, 96))" in text and "Sizes in force" not in text
    assert f"{4 * (2 * 2048 * 1024 + 1024):.4g} bytes" in text and f"{6 * 2048 * 1024:.4g} operations" in text


def test_the_full_size_stays_when_the_interpreter_chose_another(tmp_path: Path) -> None:
    path = Path(write(tmp_path, "{}"))
    path.write_text(path.read_text().replace("SMALL = {}", ""))
    task = load_task(path, choose_load_size(None, False))
    facts, _ = probe(task)
    task = settle_task(task, facts)
    text = prompt_for("seed", Brief(task=task, facts=facts, hardware=CARDS["h200"])).text
    assert task.size == "small" and "Inputs of forward: float32 (2048, 1024)" in text and "checked at a smaller size: " in text


@pytest.mark.parametrize(("overrides", "where", "way_out"), [
    ({"rows": 65536}, "at these sizes", "set smaller ones with --set NAME=VALUE"),
    ({}, "at full size", "use --size small, or set sizes with --set NAME=VALUE"),
])  # fmt: skip
def test_a_size_beyond_the_interpreter_is_refused(tmp_path: Path, overrides: dict[str, int], where: str, way_out: str) -> None:
    path = Path(write(tmp_path, "{'rows': 16}"))
    path.write_text(path.read_text().replace("rows = 2048", "rows = 16384"))
    task = load_task(path, "full", overrides)
    with pytest.raises(TaskError, match=rf"own\.py: {where} a verdict takes about .* without a card, .*; {way_out}$"):
        require_reach(task, probe(task)[1])
    small = load_task(path, "small")
    require_reach(small, probe(small)[1])


def test_an_estimate_is_no_verdict_about_speed(tmp_path: Path) -> None:
    """The recorded run, played again: what is shrunk is said first, and the answer is about what is known."""
    words = ("optimize", str(EXAMPLE / "task.py"), "--replay", str(EXAMPLE / "run.jsonl"), "--seeds", "1", "--policy", "no-tune")
    code, said = run(*words, "--size", "small", "--out", "run", "--fail-unless-faster", cwd=tmp_path)
    assert code == 1 and said.startswith("right; its speed is not known here (estimate 3.04x, ")
    assert said.index("size: judged at SMALL: ROWS 64 -> 24") < said.index("seed0: seed\n")
    assert "NOT FASTER" not in said and "strongest" not in said
    assert "NOT FASTER" not in (tmp_path / "run" / "best.py").read_text()


@pytest.mark.slow
def test_the_lines_of_readme_work_on_a_laptop(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(readme_example())
    code, said = run("optimize", "mine.py", "--out", "run", "--policy", "no-tune", "--target", "h200", cwd=tmp_path)
    assert code == 0 and "judged at SMALL: rows 16384 -> 16; not proven at rows = 16384, outside SHAPES" in said
    use = "from mine import Model, columns; from best import ModelNew; ModelNew(columns).load_state_dict(Model(columns).state_dict())"
    made = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = ['.', 'run']; {use}"], cwd=tmp_path, check=False)
    assert made.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", ["optimize", "evaluate"])
def test_a_full_size_beyond_the_interpreter_ends_at_once(tmp_path: Path, command: str) -> None:
    (tmp_path / "mine.py").write_text(readme_example())
    (tmp_path / "kernel.py").write_text("import torch\nclass ModelNew(torch.nn.Module):\n    pass\n")
    words = ("--out", "run") if command == "optimize" else ("kernel.py",)
    code, said = run(command, "mine.py", *words, "--size", "full", "--target", "h200", cwd=tmp_path)
    assert code == 2 and "mine.py: at full size a verdict takes about" in said and "use --size small" in said
    assert not (tmp_path / "run").exists()
