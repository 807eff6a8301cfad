"""Files of a run: kernels by content, verdicts by candidate, prompts and replies by request."""

import json
import tempfile
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.errors import RunError, UsageError
from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.schema import Verdict
from tritonsmith.graph.storage.files import put_text


class Store:
    """A folder with `kernels/`, `verdicts/` and `llm/`; without a folder, a temporary one that goes with the object."""

    def __init__(self, root: Path | None = None) -> None:
        """Make the folders. Raises UsageError when that is not allowed."""
        self._temporary = tempfile.TemporaryDirectory(prefix="tritonsmith-") if root is None else None
        self.root = Path(self._temporary.name) if self._temporary else Path(root or ".")
        try:
            for name in ("kernels", "verdicts", "llm", "raw"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--out {self.root}: cannot write there ({error.strerror}); name a folder that you may write to") from error

    def put(self, text: str) -> str:
        """Keep a kernel's text; returns its sha. Writing the same text again changes nothing."""
        sha = text_sha(text)
        path = self.kernel_path(sha)
        if not path.exists():
            put_text(path, text)
        return sha

    def get(self, sha: str) -> str:
        """The text of a kernel. Raises RunError when the file is gone."""
        try:
            return self.kernel_path(sha).read_bytes().decode()  # read as text, a lone carriage return would become a line end
        except OSError as error:
            raise RunError(f"{self.kernel_path(sha)} is missing or cannot be read; put it back, or begin a new run") from error

    def kernel_path(self, sha: str) -> Path:
        """Where a kernel lies."""
        return self.root / "kernels" / f"{sha}.py"

    def save_verdict(self, candidate_id: str, verdict: Verdict) -> None:
        """Write `verdicts/<id>.json`, or `<id>.strict.json` for a confirmation."""
        suffix = ".strict" if verdict.profile == "strict" else ""
        put_text(self.root / "verdicts" / f"{candidate_id}{suffix}.json", verdict.model_dump_json(indent=1) + "\n")

    def save_call(self, name: str, call: dict[str, Any]) -> None:
        """Write one request to a model with its reply as `llm/<name>.json`."""
        put_text(self.root / "llm" / f"{name}.json", json.dumps(call, indent=1, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Remove the folder if it is a temporary one."""
        if self._temporary:
            self._temporary.cleanup()
