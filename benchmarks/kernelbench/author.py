"""The built-in author's kernel for every task of a folder: `python -m tritonsmith.benchmarks.kernelbench.author FOLDER`.

FOLDER is KernelBench's own with level1, level2 and level3, or any folder of task files. The kernel is that of the best recipe with its
plain settings. `--plan` judges nothing and needs no card: it says for each task which recipe writes it, and what stays a PyTorch call.
Rows are added to a file as they come; tasks that have a row are skipped. `--table` makes the page of the rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tritonsmith.benchmarks.host import print_line
from tritonsmith.benchmarks.kernelbench.author_page import write_author
from tritonsmith.benchmarks.kernelbench.crew import open_crew
from tritonsmith.benchmarks.kernelbench.folder import find_tasks, select_tasks
from tritonsmith.benchmarks.kernelbench.options import ROWS, CrewOpener, judge_jobs, make_parser, run_script, write_command
from tritonsmith.benchmarks.kernelbench.records import JudgeJob
from tritonsmith.benchmarks.kernelbench.sheet import RowFile
from tritonsmith.evaluator.cards import CARDS
from tritonsmith.evaluator.errors import InfrastructureError, TaskError
from tritonsmith.evaluator.questions.describe import run_probe
from tritonsmith.evaluator.schema import Hardware, Record
from tritonsmith.evaluator.tasks import load_task
from tritonsmith.prompts.recipes.book import explain_refusal, match

_PROBES = 2
"""Tasks that are traced at the same time."""
_MESSAGE_CHARACTERS = 200


class AuthorPlan(Record):
    """What the built-in author makes of a task."""

    name: str
    recipe: str = ""
    """Empty where no recipe can write it."""
    calls: tuple[str, ...] = ()
    """What stays a PyTorch call."""
    reason: str = ""
    """Why no recipe can write it."""
    text: str = ""


def plan_task(name: str, path: Path, hardware: Hardware, size: str = "full") -> AuthorPlan:
    """The kernel for a task on a card, or the reason why there is none."""
    try:
        task = load_task(str(path), size)
        facts, _ = run_probe(task)
    except (TaskError, InfrastructureError) as error:
        return AuthorPlan(name=name, reason=" ".join(str(error).split())[:_MESSAGE_CHARACTERS])
    task = task.model_copy(update={"precision": facts.precision})
    found = match(task, facts, hardware)
    if found is None:
        return AuthorPlan(name=name, reason=f"no recipe for {explain_refusal(task, facts, hardware)}"[:_MESSAGE_CHARACTERS])
    recipe = found.recipes[-1]
    settings = recipe.defaults(found.plan, hardware, task.precision)
    assert settings is not None, "match() keeps only recipes that have settings"
    return AuthorPlan(name=name, recipe=recipe.name, calls=found.plan.calls, text=recipe.render(found.plan, settings))


def count_plans(plans: Iterable[AuthorPlan]) -> list[str]:
    """For each folder of tasks: how many have kernels of their own, how many of them alone, and how many have none."""
    folders: dict[str, list[AuthorPlan]] = {}
    for plan in plans:
        folders.setdefault(plan.name.rpartition("/")[0] or "tasks", []).append(plan)
    return [
        f"{folder}: {sum(bool(one.recipe) for one in found)} of {len(found)} have kernels of their own, "
        f"{sum(bool(one.recipe) and not one.calls for one in found)} of them without PyTorch calls"
        for folder, found in sorted(folders.items())
    ]


def describe_plan(plan: AuthorPlan) -> str:
    """A plan on one line of the screen."""
    if not plan.recipe:
        return f"{plan.name}: none, {plan.reason}"
    calls = f", PyTorch does {', '.join(plan.calls)}" if plan.calls else ""
    return f"{plan.name}: {plan.recipe}{calls}"


def main(arguments: Sequence[str] | None = None, opener: CrewOpener = open_crew) -> int:
    """0 when every task has a row and, with --table, every figure is reached; 1 otherwise; 2 for bad input."""
    parser = make_parser("author", __doc__)
    parser.add_argument("folder", type=Path, help="KernelBench's folder with level1, level2 and level3, or a folder of task files")
    parser.add_argument("--only", default="", help="comma-separated names or numbers: level1/23,level3/43")
    parser.add_argument("--profile", default="strict", choices=("quick", "strict"))
    parser.add_argument("--plan", action="store_true", help="judge nothing, and say what has kernels of its own")
    parser.add_argument("--texts", type=Path, help="a folder that the kernels are written to, as TASK__RECIPE.py")
    options = parser.parse_args(arguments)
    options.rows = options.rows or ROWS / "author.jsonl"
    return run_script(lambda: _work(options, write_command("author", arguments), opener), options.rows)


def _work(options: argparse.Namespace, command: str, opener: CrewOpener) -> int:
    tasks = find_tasks(options.folder)
    if options.only:
        tasks = select_tasks(tasks, options.only)
    if options.table:
        return 0 if write_author(RowFile(options.rows).read(), list(tasks), options.results, options.name) else 1
    hardware = CARDS.get(options.target, CARDS["h200"])
    done = {row.name for row in RowFile(options.rows).read()} if not options.plan and not options.again else set()
    waiting = {name: path for name, path in tasks.items() if name not in done}
    plans: list[AuthorPlan] = []
    with ThreadPoolExecutor(_PROBES) as pool:
        for plan in pool.map(lambda item: plan_task(item[0], item[1], hardware, options.size), waiting.items()):
            plans.append(plan)
            print_line(describe_plan(plan))
            if options.texts and plan.recipe:
                options.texts.mkdir(parents=True, exist_ok=True)
                (options.texts / f"{plan.name.replace('/', '_')}__{plan.recipe}.py").write_text(plan.text, encoding="utf-8")
    for line in count_plans(plans):
        print_line(line)
    if options.plan:
        return 0
    jobs = [
        JudgeJob(
            name=plan.name, kind="author", task=str(tasks[plan.name]), text=plan.text, profile=options.profile, size=options.size,
            expected="accepted",
        )
        for plan in plans if plan.recipe
    ]  # fmt: skip
    return 1 if judge_jobs(options, jobs, command, opener) else 0


if __name__ == "__main__":
    sys.exit(main())
