"""What a task's process reads: noted where it is read, keyed with the task, and seen when it changes."""

import os
import sys

import pytest
import torch

from tritonsmith.evaluator.caller.questions.changes import find_changes
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.reads.worlds import find_doubt, report_reads
from tritonsmith.evaluator.reference.module import load_reference, require_same_reads
from tritonsmith.evaluator.tasks.files import load_task

TASK = """
import torch
import torch.nn as nn
from pathlib import Path
{imports}
HERE = Path(__file__).parent
{before}
class Model(nn.Module):
    def forward(self, x):
        {inside}
        return x * {value}
def get_inputs():
    return [torch.ones(4)]
def get_init_inputs():
    return []
"""


def write(folder, imports="", before="", inside="pass", value="2.0", name="task.py"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(TASK.format(imports=imports, before=before, inside=inside, value=value))
    return load_task(folder / name)


def call(task):
    """What the reference computes, and what its code read."""
    reference = load_reference(task)
    result = reference.forward(reference.build(0), reference.draw_inputs(0))
    return float(result[0]), report_reads(reference.world)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "helper.py").write_text("K = 2.0\n")
    (tmp_path / "number.txt").write_text("2.0")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one.txt").write_text("2.0")
    torch.save(torch.tensor(2.0), tmp_path / "w.pt")
    torch.jit.script(torch.nn.ReLU()).save(tmp_path / "script.pt")
    (tmp_path / "raw.bin").write_bytes(torch.ones(4).numpy().tobytes())
    return tmp_path


WAYS = {
    "a helper": ({"imports": "import helper", "value": "helper.K"}, {"helper.py"}),
    "a helper, late": ({"inside": "import helper", "value": "helper.K"}, {"helper.py"}),
    "a text": ({"before": "K = float((HERE / 'number.txt').read_text())", "value": "K"}, {"number.txt"}),
    "weights": ({"before": "K = torch.load(HERE / 'w.pt')", "value": "K"}, {"w.pt"}),
    "mapped weights": ({"before": "K = torch.load(HERE / 'w.pt', mmap=True)", "value": "K"}, {"w.pt"}),
    "weights in forward": ({"value": "torch.load(HERE / 'w.pt')"}, {"w.pt"}),
    "torch's own reader": ({"before": "K = torch.from_file(str(HERE / 'raw.bin'), size=4)", "value": "2 * K"}, {"raw.bin"}),
    "a compiled module": ({"before": "M = torch.jit.load(str(HERE / 'script.pt'))", "value": "M(2 * x)"}, {"script.pt"}),
    "a folder": (
        {"before": "K = sum(float(path.read_text()) for path in sorted((HERE / 'data').glob('*.txt')))", "value": "K"},
        {"data", "data/one.txt"},
    ),
    "what is not there": ({"before": "K = 3.0 if (HERE / 'more.txt').exists() else 2.0", "value": "K"}, {"more.txt"}),
}


@pytest.mark.parametrize(("parts", "names"), WAYS.values(), ids=WAYS)
def test_each_way_of_reading_is_noted_and_a_change_is_another_task(files, parts, names):
    task = write(files, **parts)
    value, reads = call(task)
    assert value == 2.0 and set(reads.files) == names and not reads.unknown, "the task's own file is no part of it"
    assert not [*find_changes(task.folder, reads)]
    settled = task.model_copy(update={"reads": reads})
    for name in names:
        path = files / name
        if path.is_dir():
            (path / "two.txt").write_text("1.0")
        else:
            path.write_bytes(path.read_bytes() + b" " if path.exists() else b"new")
    assert sorted(find_changes(task.folder, reads)) == sorted(str(files / name) for name in names)
    again = reads.model_copy(update={"files": {**reads.files, "number.txt": "another"}})
    assert len({task.sha, settled.sha, task.model_copy(update={"reads": again}).sha}) == 3


def test_a_helper_is_read_anew_though_its_compiled_file_is_as_old_and_as_long(files):
    task = write(files, imports="import helper", value="helper.K")
    assert call(task)[0] == 2.0
    told = os.stat(files / "helper.py")
    (files / "helper.py").write_text("K = 3.0\n")
    os.utime(files / "helper.py", ns=(told.st_atime_ns, told.st_mtime_ns))
    assert call(task)[0] == 3.0, "Python itself would use the compiled file"


def test_helpers_of_one_name_beside_two_tasks_are_two(tmp_path):
    tasks = []
    for name, value in (("one", 2.0), ("two", 5.0)):
        tasks.append(write(tmp_path / name, imports="import same_name", value="same_name.K"))
        (tmp_path / name / "same_name.py").write_text(f"K = {value}\n")
    assert [call(task)[0] for task in (*tasks, *tasks)] == [2.0, 5.0, 2.0, 5.0]


def test_a_file_that_changed_since_the_task_was_described_is_the_tasks_error(files):
    task = write(files, imports="import helper", value="helper.K")
    settled = task.model_copy(update={"reads": call(task)[1]})
    load_reference(settled)
    (files / "helper.py").write_text("K = 7.0\n")
    with pytest.raises(TaskError, match=r"helper\.py: has changed since .*task\.py was described; put the old file back"):
        load_reference(settled)


def test_what_only_judging_reads_is_a_doubt(files):
    task = write(files, inside="K = float((HERE / 'number.txt').read_text())", value="K")
    reference = load_reference(task)
    told = report_reads(reference.world)
    assert told.files == {} and not find_doubt(reference.world, told)
    reference.forward(reference.build(0), reference.draw_inputs(0))
    require_same_reads(task, reference.world)
    assert find_doubt(reference.world, told) == f"it read {files / 'number.txt'} only while it was judged"


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("import subprocess; subprocess.run(['true'])", "it starts processes, and what these read is not seen"),
        ("import socket; socket.getaddrinfo('127.0.0.1', 9)", "it uses the network"),
        ("import ctypes; ctypes.CDLL(None); ctypes.CDLL('libm.so.6')", "the native code of libm.so.6 may read files unseen"),
        ("open('/proc/self/stat').read()", "it reads /proc/self/stat"),
    ],
)
def test_what_cannot_be_followed_is_said(files, before, why):
    assert call(write(files, before=before))[1].unknown == why


def test_versions_and_variables_belong_to_the_reads(files, monkeypatch):
    monkeypatch.setenv("LANG", "C.UTF-8")
    reads = call(write(files, imports="import os, numpy", before="os.environ.get('LANG'); os.environ.get('NOT_PASSED_ON')"))[1]
    assert reads.variables == {"LANG": "C.UTF-8"} and set(reads.packages) == {"numpy", "torch"}
    older = reads.model_copy(update={"packages": {**reads.packages, "numpy": "1.0"}})
    assert older.key != reads.key and any("the package numpy (1.0, and " in change for change in find_changes(files, older))
    monkeypatch.setenv("LANG", "de_DE")
    assert [*find_changes(files, reads)] == ["the environment variable LANG"]


def test_a_task_that_reads_nothing_else_keeps_its_address(files):
    task = write(files)
    assert task.model_copy(update={"reads": call(task)[1]}).sha == task.sha


def test_a_missing_module_names_the_folder_and_an_error_names_the_helpers_line(files):
    with pytest.raises(TaskError, match=rf"No module named 'no_such'\); looked in {files}, on PYTHONPATH .*; put no_such\.py there, or"):
        call(write(files, imports="import no_such.part"))
    (files / "helper.py").write_text("\nK = 1 / 0\n")
    with pytest.raises(TaskError, match=rf"raised ZeroDivisionError in {files}/helper\.py, line 2 \(division by zero\)"):
        call(write(files, imports="import helper"))
    with pytest.raises(TaskError, match=r'write Path\(__file__\)\.parent / "gone\.pt" for a file in'):
        call(write(files, before="torch.load('gone.pt')"))


def test_a_task_takes_no_module_of_this_project_along(tmp_path):
    """A script may describe tasks in its own process, and one may read a file of ours."""
    reading = "import tritonsmith.cli\nopen(tritonsmith.cli.__file__).read()"
    call(write(tmp_path / "one", before=reading))
    before = sys.modules["tritonsmith.cli"]
    call(write(tmp_path / "two"))
    assert sys.modules.get("tritonsmith.cli") is before
