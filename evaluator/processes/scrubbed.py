"""The environment of processes that shall not know ours."""

from __future__ import annotations

import os
from pathlib import Path

ALLOWED_ENVIRONMENT = (
    "PATH", "LANG", "LC_ALL", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "TRITON_PTXAS_PATH", "TRITON_LIBCUDA_PATH", "CC",
)  # fmt: skip
"""What a process that runs candidate code may know of our environment; keys and tokens are not among it."""

SCRUBBED_ADDITIONS = ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "PYTHONDONTWRITEBYTECODE", "USER")
"""Names that a scrubbed environment has besides."""


def scrubbed_environment(scratch: Path, extra: dict[str, str] | None = None) -> dict[str, str]:
    """An environment with the allow-listed names only, a private home and a private Triton cache."""
    env = {name: os.environ[name] for name in ALLOWED_ENVIRONMENT if name in os.environ}
    if "PYTHONPATH" in env:  # the process has another working folder
        env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in env["PYTHONPATH"].split(os.pathsep) if entry)
    additions = (str(scratch), str(scratch), str(scratch / "triton"), "1", "candidate")
    return env | dict(zip(SCRUBBED_ADDITIONS, additions, strict=True)) | (extra or {})
