"""What a task carries of what its file declares: it comes back from JSON, old records read it once, and no size reads the file again."""

import json
import pickle
from pathlib import Path

import pytest

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.schema import FIT, Task
from tritonsmith.evaluator.tasks import declarations
from tritonsmith.evaluator.tasks.declarations import declarations_of
from tritonsmith.evaluator.tasks.files import at_shape, at_size, at_small_size, declared_shapes, find_value, load_task

PLAIN = """class Model: pass
def get_inputs(): return []
def get_init_inputs(): return []
whole, real, yes, word, nothing, raw, half = 4, 4.0, True, "4", None, b"4", "\\ud800"
computed = 2 * whole
"""
DECLARED = PLAIN + 'SMALL = {"whole": 2, "word": "2"}\nSHAPES = [{"whole": (1, 9)}, {"whole": 3, "word": "3"}]\nMODE = "train"\n'


@pytest.fixture
def task(tmp_path: Path) -> Task:
    path = tmp_path / "task.py"
    path.write_text(DECLARED)
    return load_task(path)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are parsed for what they declare."""
    seen: list[str] = []
    parse = declarations.parse

    def counted(source: str) -> object:
        seen.append(source)
        return parse(source)

    monkeypatch.setattr(declarations, "parse", counted)
    return seen


def old(task: Task) -> Task:
    """The task as a record that was written before tasks carried what they declare."""
    return Task.model_validate({name: value for name, value in task.model_dump(mode="json").items() if name != "declares"})


def test_what_is_declared_comes_back_with_its_types(task: Task) -> None:
    for again in (Task.model_validate_json(task.model_dump_json()), pickle.loads(pickle.dumps(task)), old(task)):  # noqa: S301 - our own
        assert (again == task) == (again.declares is not None) and again.sha == task.sha
        assert declarations_of(again) == declarations_of(task)
        found = {name: find_value(again, name) for name in ("whole", "real", "yes", "word", "nothing")}
        assert repr(found) == repr({"whole": 4, "real": 4.0, "yes": True, "word": "4", "nothing": None})
        assert all(find_value(again, name) is ... for name in ("raw", "half", "computed", "absent"))
        assert declared_shapes(again) == ({"whole": (1, 9)}, {"whole": 3, "word": "3"}) and declarations_of(again).mode == "train"


def test_a_loaded_task_is_not_parsed_again_and_an_old_record_once(task: Task, parsed: list[str]) -> None:
    for asked in (task, at_shape(task, {"whole": 7}), Task.model_validate_json(task.model_dump_json())):
        assert declared_shapes(asked) and find_value(asked, "real") == 4.0 and at_small_size(asked)
    assert parsed == []
    record = json.loads(task.model_dump_json()) | {"declares": None, "source": f"{DECLARED}# of old\n"}
    for _ in range(2):
        asked = Task.model_validate(record)
        assert declared_shapes(asked) and find_value(asked, "real") == 4.0 and at_small_size(asked)
    assert len(parsed) == 1


def test_another_text_declares_its_own(task: Task) -> None:
    changed = task.model_copy(update={"source": task.source.replace("(1, 9)", "(1, 5)")})
    assert declared_shapes(changed)[0] == {"whole": (1, 5)}


@pytest.mark.parametrize(("size", "overrides"), [("full", {}), ("small", {}), ("small", {"whole": 3}), ("full", {"whole": 3}), (FIT, {})])
def test_another_size_is_as_if_it_were_loaded(task: Task, size: str, overrides: dict[str, int]) -> None:
    loaded = load_task(task.path, size, overrides)
    Path(task.path).unlink()
    assert at_size(task, size, overrides) == loaded


def test_the_small_size_keeps_what_the_task_was_judged_as(task: Task, tmp_path: Path) -> None:
    judged = at_shape(task, {"whole": 7}).model_copy(update={"path": str(tmp_path / "gone.py"), "sized": "chosen"})
    small = at_small_size(judged)
    assert small is not None and (small.size, small.overrides, small.asked) == ("small", {"whole": 2, "word": "2"}, True)
    assert (small.mode, small.source, small.folder, small.sized) == ("train", task.source, task.folder, "")


def test_a_malformed_small_is_said_where_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(PLAIN + "SMALL = whole\n")
    task = load_task(path)
    assert at_small_size(task) is None
    for size in ("small", FIT):
        with pytest.raises(TaskError, match=r"task\.py, line 6: SMALL must be a literal dict"):
            at_size(task, size)
