"""Scripts under Triton's interpreter, each in a fork of one process that has imported torch, Triton and this project.

The imports take most of the time of a short script. A fork has its own memory, so what a script patches or leaves ends with it.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from project import HELPERS

IMPORTED = (
    "torch",
    "triton.language",
    "tritonsmith.author.book",
    "tritonsmith.evaluator.confined.interpreter.schedule",
    "tritonsmith.evaluator.reference.probe",
)
"""What every script needs."""


class Interpreted:
    """The process that forks; it starts with the first script."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Interpreted:
        """Nothing is started yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the process."""
        self._end()

    def run(self, script: Path | str, *arguments: object, seconds: float = 280, settings: Mapping[str, str] | None = None) -> str:
        """What a script writes to its standard output.

        Args:
            script: a file, or the name of a module.
            arguments: of its command line.
            seconds: how long it may take.
            settings: environment variables of its own.
        Raises:
            AssertionError: it failed, with the end of what it wrote, or it took longer.
        """
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            words = [str(script), *map(str, arguments)]
            asked = {"words": words, "file": isinstance(script, Path), "out": str(out), "err": str(err), "settings": dict(settings or {})}
            status = self._ask(json.dumps(asked), seconds)
            assert status == "0", f"{words[0]}: status {status}\n{out.read_text()[-2000:]}\n{err.read_text()[-3000:]}"
            return out.read_text()

    def _ask(self, line: str, seconds: float) -> str:
        if self._process is None:
            places = os.pathsep.join(filter(None, (str(HELPERS), os.environ.get("PYTHONPATH"))))
            threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                start_new_session=True, env=os.environ | threads | {"TRITON_INTERPRET": "1", "PYTHONPATH": places},
            )  # fmt: skip
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        if not ready:
            self._end()
            raise AssertionError(f"{line}: no end within {seconds} s")
        return process.stdout.readline().strip() or "none: the process that forks has ended"

    def _end(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, 9)  # its forks are of its session
            self._process.communicate()
            self._process = None


def serve() -> None:
    """Fork for each line of the standard input, and answer with the exit status."""
    for name in IMPORTED:
        __import__(name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _work(asked)
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        answers.flush()


def _work(asked: dict[str, object]) -> None:
    """Be the script, and end as it does."""
    status = 1
    try:
        for name, number in (("out", 1), ("err", 2)):
            os.dup2(os.open(str(asked[name]), os.O_WRONLY | os.O_CREAT), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(asked["settings"])  # type: ignore[call-overload]
        sys.argv = list(asked["words"])  # type: ignore[call-overload]
        if asked["file"]:
            sys.path.insert(0, str(Path(sys.argv[0]).parent))
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it is, the test shows it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
