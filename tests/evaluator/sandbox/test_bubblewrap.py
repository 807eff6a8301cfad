"""What bubblewrap supplies where it exists: its command line, and confined code inside it."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from confined_code import ESCAPE, closed_within
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.sandbox import bubblewrap, self_test
from tritonsmith.evaluator.sandbox.policy import SandboxPolicy
from tritonsmith.evaluator.sandbox.process import SandboxedProcess
from tritonsmith.evaluator.sandbox.self_test import establish, try_bubblewrap
from tritonsmith.evaluator.sandbox.table import NAMESPACES

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the layers are Linux's")



def confined_in(policy: SandboxPolicy, tmp_path: Path, code: str, **options: Any) -> SandboxedProcess:
    folder = tmp_path / "code"
    folder.mkdir(exist_ok=True)
    (folder / "hostile.py").write_text(code)
    environment = {"PYTHONPATH": str(folder)}
    return SandboxedProcess("runpy", ["hostile"], policy=policy, read=[folder], environment=environment, **options)


@pytest.fixture(scope="module")
def wrapped() -> tuple[SandboxPolicy, dict[str, Any]]:
    """What bubblewrap gives here; in a machine without it the builder's test is all there is to say."""
    if shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap on this machine")
    try:
        return try_bubblewrap()
    except InfrastructureError as error:
        pytest.skip(f"bubblewrap does not work here: {error}")


def test_bubblewrap_is_told_to_show_what_may_be_read_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "inner").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    read = ["/proc/self", "/dev/null", str(tmp_path / "data" / "inner"), str(tmp_path / "link"), "/etc/hosts", str(tmp_path / "absent")]
    line = bubblewrap.build_command("/usr/bin/bwrap", {"scratch": "/tmp/s/scratch", "scratch_bytes": 4096, "read": read}, ["true", "x"])
    assert line[0] == "/usr/bin/bwrap" and line[line.index("--") + 1 :] == ["true", "x"]
    shown = {line[at + 1] for at, word in enumerate(line) if word == "--ro-bind"}
    assert shown == {"/etc", str(tmp_path / "data")}  # the link's target holds the inner folder
    links = [line[at + 1 : at + 3] for at, word in enumerate(line) if word == "--symlink"]
    assert links == [[str(tmp_path / "data"), str(tmp_path / "link")]]
    assert {"--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc"} <= set(line)
    assert "--bind" not in line and line.index("/tmp/s/scratch") < line.index("--remount-ro")
    folders = [line[at + 1] for at, word in enumerate(line) if word == "--dir"]
    assert folders.index("/tmp") < folders.index("/tmp/s") and str(tmp_path) in folders


def test_bubblewrap_supplies_namespaces_that_we_cannot_make(
    wrapped: tuple[SandboxPolicy, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bubblewrap supplies the namespaces also where ours cannot be made."""
    monkeypatch.setattr(self_test, "RELAXATIONS", (NAMESPACES,))
    monkeypatch.setattr(self_test, "use_policy", lambda policy, found: None)
    report = establish("strict", cuda=False)
    assert report["layers"]["bubblewrap"] == report["layers"]["net_ns"] == report["layers"]["pid_ns"] == "applied"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    alone = establish("auto", cuda=False)["layers"]
    assert alone["bubblewrap"] == "unavailable: there is no bwrap on PATH" and alone["net_ns"] != "applied"


@pytest.mark.parametrize(
    ("ending", "code"), [("os._exit(7)", 7), ("import ctypes; ctypes.string_at(0)", -11), ("os.kill(os.getpid(), 9)", -9)]
)
def test_inside_bubblewrap_the_exit_is_reported_too(
    wrapped: tuple[SandboxPolicy, dict[str, Any]], tmp_path: Path, ending: str, code: int
) -> None:
    with confined_in(wrapped[0], tmp_path, f"import os\n{ending}\n") as process:
        assert process.read_output(30, 1 << 10) == b""
        assert process.process.wait(10) == code
        process.require_launched()


def test_bubblewrap_shows_only_readable_files_and_can_be_killed(
    wrapped: tuple[SandboxPolicy, dict[str, Any]], tmp_path: Path
) -> None:
    """Inside bubblewrap only files that may be read are there, and a kill ends everything."""
    (tmp_path / "foreign").write_text("not shown")
    watch, held = os.pipe()
    code = ESCAPE + (
        "import json\nopen('mine', 'w').write('x')\nrefused = []\n"
        f"for path in ({str(tmp_path / 'foreign')!r}, '/etc/shadow', '/var', '/dev/x', '/tmp/x'):\n"
        "    try: open(path, 'w' if path.endswith('/x') else 'r')\n    except OSError: refused.append(path)\n"
        "print(json.dumps(len(refused)), flush=True)\ntime.sleep(100)\n"
    )
    with confined_in(wrapped[0], tmp_path, code, pass_fds=[held]) as process:
        os.close(held)
        assert process.process.stdout is not None and process.process.stdout.readline() == b"5\n", process.stderr_tail()
        (tmp_path / "code" / "later.py").write_text("")  # a folder that may be read is the folder itself, not a copy
        assert not closed_within(watch, 0.5)
        process.kill()
        assert closed_within(watch, 10.0)
    os.close(watch)
