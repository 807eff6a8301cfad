"""A process that brings one module in by its name: `python -m tritonsmith.modules.bringing`, with a JSON object on standard input."""

import json
import sys
from pathlib import Path
from typing import TextIO

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.modules.bringing.bring import bring
from tritonsmith.modules.bringing.check import lacks_memory
from tritonsmith.modules.bringing.named import load_named, read_init, read_sizes


def main() -> int:
    """Write the task's folder; the answer is a JSON object on standard output. 2 where the module cannot be brought in."""
    asked, answer = json.load(sys.stdin), sys.stdout
    sys.stdout = sys.stderr  # what the user's own code prints is not the answer
    try:
        module, inputs = load_named(asked["word"], asked["inputs"], asked["init"])
        brought = bring(
            module,
            inputs,
            Path(asked["folder"]),
            mode=asked["mode"],
            shapes=read_sizes(asked["shapes"]),
            init=read_init(asked["init"]) if asked["init"] else None,
            backward=asked["backward"],
        )
    except UsageError as error:
        return _tell(str(error), answer)
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        return _tell(f"{asked['word']} and its inputs do not fit into memory; choose smaller inputs, or a part of the module", answer)
    print(json.dumps({"task": str(brought.task), "way": brought.way, "reason": brought.reason}), file=answer)  # noqa: T201
    return 0


def _tell(sentence: str, answer: TextIO) -> int:
    """Answer with what is wrong."""
    print(json.dumps({"error": sentence}), file=answer)  # noqa: T201 - the caller reads it
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
