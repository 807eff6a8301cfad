"""A family of the built-in author beside its compiler: `python -m tritonsmith.benchmarks.families chain|convnet --out FILE`.

For each task of `family_tasks.py`: every recipe of the family and of the compiler that writes it is judged with its plain settings. The
fastest of the family then runs in turn with the fastest of the compiler (a race, pair by pair). FILE gets a line for each text, with its
samples, and one for each pair. Tasks that have a pair in FILE are skipped, so the same command goes on.
Without a card `--target h200` judges at the small size, so only correctness counts. `--estimate` judges nothing: each text is compiled
for the card at the task's own size, and its time is estimated.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tritonsmith.author.book import FAMILIES, Match, list_matches
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.benchmarks.estimates.compare import write_request
from tritonsmith.benchmarks.family_tasks import TASKS, FamilyTask
from tritonsmith.benchmarks.host import begin_record, print_line, shorten_paths
from tritonsmith.benchmarks.timing.study import pair_ratios
from tritonsmith.evaluator.caller.compiling.pool import CompilePool
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.caller.questions.describe import run_probe
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.cards.estimate import estimate_candidate
from tritonsmith.evaluator.errors import InfrastructureError, TaskError, TritonsmithError, UsageError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import Hardware, KernelFacts, LaunchFacts, Status, Task, TaskFacts
from tritonsmith.evaluator.tasks.files import choose_load_size, load_task, settle_task

BASELINES = ("eager", "cuda_graph")
"""Without torch.compile, whose first calls take longer than all else here."""
MEMBERS = {"chain": ("product", "pointwise"), "convnet": ("convnet",)}
"""Families of the book by the name of their folder."""
COMPILER = REGIONS.name
_RACE_SECONDS = 4.0
_COMPILE_SECONDS = 180.0
_MESSAGE_CHARACTERS = 200
Best = dict[str, tuple[float, "Contender", LaunchFacts]]
"""By side: the milliseconds of the fastest text, the text, and what it launches."""
Asking = Callable[[str, Task], Iterator[dict[str, Any]]]
"""The rows of a task, by family and task."""


@dataclass(frozen=True)
class Contender:
    """A recipe's text for a task with its plain settings.

    Args:
        side: `chain` or `convnet`, or the compiler.
        recipe: its name.
        text: the module.
        calls: what stays a PyTorch call.
        chosen: whether the book takes this family for the task.
    """

    side: str
    recipe: str
    text: KernelText
    calls: tuple[str, ...]
    chosen: bool


def list_contenders(folder: str, task: Task, facts: TaskFacts, hardware: Hardware) -> list[Contender]:
    """The texts of a family's recipes and of the compiler's for a task, each text once."""
    sides = {recipe.name: COMPILER for recipe in REGIONS.recipes}
    sides |= {recipe.name: folder for family in FAMILIES if family.name in MEMBERS[folder] for recipe in family.recipes}
    found: dict[str, Contender] = {}
    for number, its in enumerate(list_matches(task, facts, hardware)):
        for contender in _write_recipes(its, sides, task, hardware, chosen=number == 0):
            found.setdefault(contender.text.sha, contender)
    return list(found.values())


def _write_recipes(its: Match, sides: dict[str, str], task: Task, hardware: Hardware, chosen: bool) -> Iterator[Contender]:
    for recipe in its.recipes:
        settings = recipe.defaults(its.plan, hardware, task.precision)
        if recipe.name in sides and settings is not None:
            text = KernelText.of(recipe.render(its.plan, settings))
            yield Contender(sides[recipe.name], recipe.name, text, its.plan.calls, chosen)


def judge_text(evaluator: LocalEvaluator, task: Task, contender: Contender) -> tuple[dict[str, Any], LaunchFacts]:
    """The row of one text, and what it launches."""
    verdict = evaluator.evaluate_now(task, contender.text)
    timing = verdict.timing
    label = verdict.label.value if verdict.label else ""
    row: dict[str, Any] = {"status": verdict.status.value, "message": verdict.message, "label": label}
    if timing is not None:
        row |= {
            "timing": timing.kind.value, "ms": timing.median_ms, "device_ms": timing.device_ms, "score": timing.score,
            "score_eager": timing.score_eager, "baselines_ms": timing.baselines_ms, "interval": timing.interval,
            "ratios_eager": pair_ratios(verdict, "eager"),
        }  # fmt: skip
    if verdict.correctness is not None:
        row |= {"error": verdict.correctness.err_vs_oracle, "reference_error": verdict.correctness.reference_err_vs_oracle}
    return row | _describe_kernels(verdict.facts.kernels), verdict.facts


def judge_task(evaluator: LocalEvaluator, folder: str, task: Task) -> Iterator[dict[str, Any]]:
    """A row of each text, and one of the pair. Raises TaskError or InfrastructureError."""
    facts = asyncio.run(evaluator.describe(task))
    task = settle_task(task, facts)
    best: Best = {}
    for contender in list_contenders(folder, task, facts, evaluator.hardware):
        row, launched = judge_text(evaluator, task, contender)
        yield _name_text(contender) | {"precision": task.precision.value} | row
        if row["status"] == Status.OK.value and "ms" in row:
            held = best.get(contender.side)
            if held is None or row["ms"] < held[0]:
                best[contender.side] = (row["ms"], contender, launched)
    yield _pair(folder, best) | _race(evaluator, task, folder, best)


def _race(evaluator: LocalEvaluator, task: Task, folder: str, best: Best) -> dict[str, Any]:
    """The two fastest texts in turn: the compiler's time over the family's, from one race."""
    if not evaluator.hardware.present or len(best) < len((folder, COMPILER)):
        return {}
    compiler, family = best[COMPILER], best[folder]
    report = evaluator.race_now(task, compiler[1].text, [family[1].text], compiler[2], keep=1, seconds=_RACE_SECONDS)
    if report is None or not report.rows:
        return {}
    raced = report.rows[0]
    told = {"fate": raced.fate.value, "note": raced.reason or report.note}
    return {"ratio": raced.ratio, "interval": raced.interval, "pairs": raced.pairs} | told


def estimate_task(pool: CompilePool, hardware: Hardware, place: Path, folder: str, task: Task) -> Iterator[dict[str, Any]]:
    """A row of each text compiled for a card that is not here, with its estimate, and one of the pair. Raises TaskError."""
    facts, _ = run_probe(task)
    task = settle_task(task, facts)
    best: Best = {}
    for contender in list_contenders(folder, task, facts, hardware):
        report = pool.submit(contender.text, write_request(place, task, facts), _COMPILE_SECONDS).result()
        row: dict[str, Any] = {"status": report["status"], "message": str(report.get("message", "")), "timing": "estimated"}
        if report["status"] == Status.OK.value:
            kernels = tuple(KernelFacts.model_validate(values) for values in report["kernels"])
            estimate = estimate_candidate(
                hardware, kernels, report["torch_ops"], report["torch_flops"], report["torch_bytes"], report["torch_launches"],
                torch_half=task.precision.value not in ("ieee", "split", "tf32"), torch_tf32=task.precision.allows_tf32,
            )  # fmt: skip
            row |= {"ms": estimate.ms, "apart": estimate.apart, "library": report["torch_ops"]} | _describe_kernels(kernels)
            if contender.side not in best or estimate.ms < best[contender.side][0]:
                best[contender.side] = (estimate.ms, contender, LaunchFacts(kernels=kernels))
        yield _name_text(contender) | {"precision": task.precision.value} | row
    yield _pair(folder, best)


def _name_text(contender: Contender) -> dict[str, Any]:
    return {
        "side": contender.side, "recipe": contender.recipe, "sha": contender.text.sha, "calls": contender.calls, "chosen": contender.chosen,
    }  # fmt: skip


def _describe_kernels(kernels: Sequence[KernelFacts]) -> dict[str, Any]:
    """How many kernels there are, and the most registers, spills and shared memory of them."""
    most = {
        name: max((value for kernel in kernels if (value := getattr(kernel, name)) is not None), default=None)
        for name in ("registers", "spills", "shared_memory")
    }
    return {"kernels": len(kernels), "launches": sum(kernel.launches for kernel in kernels)} | most


def _pair(folder: str, best: Best) -> dict[str, Any]:
    """The fastest text of each side, and the compiler's time over the family's, each from its own verdict."""
    row: dict[str, Any] = {"side": "pair", "texts": {side: held[1].recipe for side, held in best.items()}}
    row |= {"calls": best[COMPILER][1].calls if COMPILER in best else (), "ms": {side: held[0] for side, held in best.items()}}
    if folder in best and COMPILER in best:
        row["ratio_of_medians"] = best[COMPILER][0] / best[folder][0]
    return row


def describe_row(row: dict[str, Any]) -> str:
    """A row on one line of the screen."""
    if row["side"] != "pair":
        time_of = f"{row['ms']:.4f} ms" if "ms" in row else row["message"][:_MESSAGE_CHARACTERS]
        score = f", {row['score']:.3f}x strongest baseline" if "score" in row else ""
        calls = f", PyTorch does {', '.join(row['calls'])}" if row["calls"] else ""
        size = f", {row['registers']} registers, {row['spills']} spills, {row['shared_memory']} B shared" if row.get("registers") else ""
        chosen = " (chosen)" if row["chosen"] else ""
        return f"  {row['side']:<8} {row['recipe']:<17} {row['status']:<10} {time_of}{score}{size}{calls}{chosen}"
    if "fault" in row or "ratio_of_medians" not in row:
        return f"{row['task']}: no pair, {row.get('fault') or 'works: ' + (', '.join(row['texts']) or 'none')}"
    raced = f", in turn {row['ratio']:.3f} {tuple(row['interval'])}" if row.get("ratio") and row.get("interval") else ""
    return f"{row['task']}: the compiler takes {row['ratio_of_medians']:.3f} of the family's time{raced}"


def main(words: Sequence[str] | None = None) -> int:
    """0 where every text of a task that was begun works; 1 where one does not; 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m tritonsmith.benchmarks.families", description=__doc__)
    parser.add_argument("folder", choices=tuple(TASKS), help="the family")
    parser.add_argument("--out", required=True, type=Path, help="the file that rows are added to")
    parser.add_argument("--part", default="1/1", help="K/N: of the tasks each N-th one, from the K-th on")
    parser.add_argument("--only", default="", help="comma-separated names of tasks")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further task after so many seconds")
    parser.add_argument("--target", default="auto", help="auto: the card of this machine; a named one that is not here: the interpreter")
    parser.add_argument("--estimate", action="store_true", help="judge nothing, and estimate what each text takes on the card")
    asked = parser.parse_args(words)
    try:
        return _work(asked, words)
    except TritonsmithError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, UsageError) else 1


def select_tasks(folder: str, part: str, only: str) -> list[FamilyTask]:
    """The tasks of a part, such as `1/2`, among those that are named. Raises UsageError."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = {task.name: task for task in TASKS[folder]}
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--only {unknown[0]}: no such task; choose from {', '.join(known)}")
    number, _, count = part.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise UsageError(f"--part {part}: write K/N, such as 1/2")
    return [known[name] for name in (names or list(known))][int(number) - 1 :: int(count)]


def _work(asked: argparse.Namespace, words: Sequence[str] | None) -> int:
    tasks = select_tasks(asked.folder, asked.part, asked.only)
    if not asked.out.resolve().parent.is_dir():
        raise UsageError(f"--out {asked.out}: there is no such folder; make it, or name another place")
    lines = asked.out.read_text(encoding="utf-8").splitlines() if asked.out.exists() else []
    done = {row["task"] for row in map(json.loads, lines) if row.get("side") == "pair" and "fault" not in row}
    tasks, failed, begun = [task for task in tasks if task.name not in done], 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tritonsmith-families-") as name, asked.out.open("a", encoding="utf-8") as file:
        place = Path(name)
        place.chmod(0o755)

        def keep(row: dict[str, Any]) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        with (_open_pool if asked.estimate else _open_judge)(asked.target, place) as (hardware, size, ask):
            keep(begin_record("families", words) | {"card": hardware.name, "size": size, "part": asked.part})
            for number, task in enumerate(tasks):
                if time.monotonic() - begun > asked.seconds:
                    print_line(f"{len(tasks) - number} tasks are left; the same command goes on")
                    break
                for row in _list_rows(partial(ask, asked.folder), task, place, size):
                    keep(row)
                    failed += row["side"] != "pair" and row["status"] != Status.OK.value or "fault" in row
                    print_line(describe_row(row))
    return int(failed > 0)


@contextlib.contextmanager
def _open_judge(target: str, place: Path) -> Iterator[tuple[Hardware, str, Asking]]:
    """What judges: the card of this machine at full size, or the interpreter at the small one."""
    del place
    with open_evaluator(target) as evaluator:
        if not evaluator.hardware.present and target == "auto":
            raise UsageError("--target auto: this machine has no card; name one, such as --target h200, for the interpreter")
        evaluator.baselines = BASELINES
        yield evaluator.hardware, "full" if evaluator.hardware.present else "small", partial(judge_task, evaluator)


@contextlib.contextmanager
def _open_pool(target: str, place: Path) -> Iterator[tuple[Hardware, str, Asking]]:
    """What compiles and estimates for a card that is not here."""
    hardware = named_card("h200" if target == "auto" else target)
    pool = CompilePool(hardware.key, "auto", place / "mark")
    try:
        yield hardware, "full", partial(estimate_task, pool, hardware, place)
    finally:
        pool.close()


def _list_rows(ask: Callable[[Task], Iterator[dict[str, Any]]], named: FamilyTask, place: Path, size: str) -> Iterator[dict[str, Any]]:
    """The rows of a task; a pair with `fault` where its file or the evaluator fails."""
    try:
        task = load_task(named.place(place), choose_load_size(size, size == "full"), precision=named.precision or None)
        for row in ask(task):
            yield {"task": named.name} | row | {"message": shorten_paths(row.get("message", ""))}
    except (TaskError, InfrastructureError) as error:
        yield {"task": named.name, "side": "pair", "fault": shorten_paths(str(error))[:_MESSAGE_CHARACTERS]}


if __name__ == "__main__":
    sys.exit(main())
