"""Whether the built-in author's texts are those that were kept: `python -m tritonsmith.benchmarks.kernelbench.digests FOLDER [--write]`.

FOLDER is KernelBench's own with level1, level2 and level3, or any folder of task files. Each task is traced and written for one card.
A text's digest is compared with that in a file. `--write` brings the file up to date, for texts that are meant to change.
`--texts FOLDER` also writes the texts, so that two versions of them can be compared line by line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tritonsmith.benchmarks.host import print_line
from tritonsmith.benchmarks.kernelbench.folder import find_tasks, select_tasks
from tritonsmith.benchmarks.kernelbench.planning import AuthorPlan, plan_tasks
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.kernel_text import text_sha

DIGESTS = Path(__file__).parents[1] / "results" / "author_texts.json"
_CARD = "h200"
_SHOWN = 20


def read_digests(path: Path) -> dict[str, str]:
    """The digest of each task's text, by the task's name. Raises UsageError for a file that cannot be read."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--digests {path}: cannot be read ({error.strerror}); write it with --write") from None
    except ValueError:
        kept = None
    if not isinstance(kept, dict):
        raise UsageError(f"--digests {path}: holds no digests by name; write it with --write")
    return {str(name): str(digest) for name, digest in kept.items()}


def digest_plan(plan: AuthorPlan) -> str:
    """Of the recipe, the text and the reason why there is none."""
    return text_sha(f"{plan.recipe}\n{plan.text or plan.reason}")


def compare(kept: Mapping[str, str], made: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Names whose texts differ from what was kept, and names that were not kept."""
    return sorted(name for name in made if kept.get(name, made[name]) != made[name]), sorted(made.keys() - kept.keys())


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every text is as it was kept, 1 when one differs, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m tritonsmith.benchmarks.kernelbench.digests", description=__doc__)
    parser.add_argument("folder", type=Path, help="KernelBench's folder with level1, level2 and level3, or a folder of task files")
    parser.add_argument("--only", default="", help="comma-separated names or numbers: level1/23,level3/43")
    parser.add_argument("--digests", type=Path, default=DIGESTS, help="the file that keeps them")
    parser.add_argument("--write", action="store_true", help="bring the file up to date")
    parser.add_argument("--texts", type=Path, help="a folder that the texts are written to")
    options = parser.parse_args(arguments)
    try:
        return _work(options)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _work(options: argparse.Namespace) -> int:
    tasks = find_tasks(options.folder)
    if options.only:
        tasks = select_tasks(tasks, options.only)
    kept = {} if options.write and not options.digests.exists() else read_digests(options.digests)
    plans = plan_tasks(tasks, CARDS[_CARD], "full", None, lambda plan: None)
    if options.texts:
        for plan in plans:
            _write(options.texts / f"{plan.name.replace('/', '_')}.py", plan.text or f"# {plan.reason}\n", "--texts")
    made = {plan.name: digest_plan(plan) for plan in plans}
    different, new = compare(kept, made)
    for name in different[:_SHOWN]:
        print_line(f"{name}: another text than was kept")
    same = len(made) - len(different) - len(new)
    print_line(f"{len(made)} texts: {same} as kept, {len(different)} different, {len(new)} not kept before")
    print_line(f"planned and written in {sum(plan.seconds for plan in plans):.1f} seconds of a processor")
    if options.write:
        text = json.dumps(dict(sorted({**kept, **made}.items())), indent=0)
        _write(options.digests, f"{text}\n", "--digests")
        return 0
    return 1 if different or new else 0


def _write(path: Path, text: str, option: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be written ({error.strerror}); name a file or folder that can") from None


if __name__ == "__main__":
    sys.exit(main())
