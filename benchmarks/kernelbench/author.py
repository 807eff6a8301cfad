"""The built-in author's kernel for every task of a folder: `python -m tritonsmith.benchmarks.kernelbench.author FOLDER`.

FOLDER is KernelBench's own with level1, level2 and level3, or any folder of task files. The kernel is that of the best recipe with its
plain settings. One that is refused as inaccurate is judged once more with more exact products, as the built-in author repairs it.
`--plan` judges nothing and needs no card: it says for each task which recipe writes it, and what stays a PyTorch call.
`--plans FILE` keeps the kernels, so that they are made without a card and only judged on it.
Rows are added to a file as they come; tasks that have a row are skipped. `--table` makes the page of the rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tritonsmith.benchmarks.host import print_line
from tritonsmith.benchmarks.kernelbench.crew import JobAsker, open_crew
from tritonsmith.benchmarks.kernelbench.folder import find_tasks, select_tasks
from tritonsmith.benchmarks.kernelbench.judging import make_row
from tritonsmith.benchmarks.kernelbench.options import ROWS, CrewOpener, judge_jobs, make_parser, read_again, run_script, write_command
from tritonsmith.benchmarks.kernelbench.planning import AuthorPlan, PlanFile, count_plans, describe_plan, plan_tasks
from tritonsmith.benchmarks.kernelbench.rows.author_page import write_author
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob, JudgeRow, Ruling
from tritonsmith.benchmarks.kernelbench.rows.sheet import RowFile, select_open
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.channel.doorbell import BASELINES
from tritonsmith.evaluator.schema import Status


def main(arguments: Sequence[str] | None = None, opener: CrewOpener = open_crew) -> int:
    """0 when every task has a row and, with --table, every figure is reached; 1 otherwise; 2 for bad input."""
    parser = make_parser("author", __doc__)
    parser.add_argument("folder", type=Path, help="KernelBench's folder with level1, level2 and level3, or a folder of task files")
    parser.add_argument("--only", default="", help="comma-separated names or numbers: level1/23,level3/43")
    parser.add_argument("--profile", default="strict", choices=("quick", "strict"))
    parser.add_argument("--baselines", default="four", choices=("four", "six"), help="of quick verdicts; strict ones have six")
    parser.add_argument("--plan", action="store_true", help="judge nothing, and say what has kernels of its own")
    parser.add_argument("--plans", type=Path, help="a file that keeps the kernels; those in it are not written again")
    parser.add_argument("--texts", type=Path, help="a folder that the kernels are written to, as TASK__RECIPE.py")
    options = parser.parse_args(arguments)
    options.rows = options.rows or ROWS / "author.jsonl"
    return run_script(lambda: _work(options, write_command("author", arguments), opener), options.rows)


def _work(options: argparse.Namespace, command: str, opener: CrewOpener) -> int:
    tasks = find_tasks(options.folder)
    if options.only:
        tasks = select_tasks(tasks, options.only)
    rows = RowFile(options.rows)
    if options.table:
        return 0 if write_author(rows.read(), list(tasks), options.results, options.name) else 1
    if not options.plan:  # what has a row needs no plan
        jobs = [_make_job(name, path, options) for name, path in tasks.items()]
        tasks = {job.name: tasks[job.name] for job in select_open(jobs, rows.read(), read_again(options))}
        if not tasks:
            print_line(f"each of {len(jobs)} tasks has a row in {options.rows}; name another file with --rows, or what to ask --again")
            return 0

    def tell(plan: AuthorPlan) -> None:
        print_line(describe_plan(plan))
        if options.texts and plan.recipe:
            options.texts.mkdir(parents=True, exist_ok=True)
            (options.texts / f"{plan.name.replace('/', '_')}__{plan.recipe}.py").write_text(plan.text, encoding="utf-8")

    hardware = CARDS.get(options.target, CARDS["h200"])
    plans = plan_tasks(tasks, hardware, options.size, PlanFile(options.plans) if options.plans else None, tell)
    for line in count_plans(plans):
        print_line(line)
    if options.plan:
        return 0
    for plan in plans:
        if not plan.recipe:  # the page says why
            row = make_row(_make_job(plan.name, tasks[plan.name], options), ruling=Ruling.OPEN, message=plan.reason)
            rows.add(row.model_copy(update={"command": command}))
    jobs = [_make_job(plan.name, tasks[plan.name], options, plan.text) for plan in plans if plan.recipe]
    exact = {plan.name: plan.exact for plan in plans if plan.exact}

    def open_repairing(target: str, devices: Sequence[str], limit: float) -> Sequence[JobAsker]:
        return [_RepairingAsker(worker, exact) for worker in opener(target, devices, limit)]

    return 1 if judge_jobs(options, jobs, command, open_repairing) else 0


class _RepairingAsker:
    """Asks once more about a kernel that is inaccurate, with the text whose products are more exact."""

    def __init__(self, worker: JobAsker, exact: Mapping[str, str]) -> None:
        self._worker = worker
        self._exact = exact

    def ask(self, job: JudgeJob, after: JudgeJob | None = None) -> JudgeRow:
        """The row of the job, or of its more exact kernel."""
        row, text = self._worker.ask(job, after), self._exact.get(job.name)
        if row.status != Status.INACCURATE or not text:
            return row
        again = self._worker.ask(job.model_copy(update={"text": text}), after)
        return again.model_copy(update={"message": f"with more exact products: {again.message}"})

    def close(self) -> None:
        """End what answers."""
        self._worker.close()


def _make_job(name: str, path: Path, options: argparse.Namespace, text: str = "") -> JudgeJob:
    return JudgeJob(
        name=name, kind="author", task=str(path), text=text, profile=options.profile, size=options.size, expected="accepted",
        baselines=BASELINES if options.baselines == "six" else (),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
