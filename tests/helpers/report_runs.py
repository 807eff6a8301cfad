"""Folders of runs and of an experiment for the tests of reports: recorded, hostile, large, measured, old, killed."""

import json
import random
import shutil
from pathlib import Path

from project import ROOT
from tritonsmith.benchmarks.ablation.schema import AblationPlan, CellRow, CellState, PlannedPolicy, TuningRow
from tritonsmith.benchmarks.ablation.tables import tabulate, write_tables
from tritonsmith.evaluator.schema import Comparison, Label, Measurement, Stage, Status, Verdict
from tritonsmith.graph.run import optimize
from tritonsmith.graph.state import Budget
from tritonsmith.graph.suites.tasks import PlannedTask
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict
from tritonsmith.prompts.analysis import Analysis, Category, Promise

EXAMPLE = ROOT / "examples" / "recorded_run"
TASK = (EXAMPLE / "task.py").read_text()
EVIL = """</script></style></pre><img src=x onerror="document.title='pwned'"><svg onload=alert(1)>`|[x](javascript:alert(1)) @everyone"""
"""What a hostile model would write: it leaves every element, and is markup in HTML, SVG and Markdown."""
FORMULA = "=HYPERLINK(1)"


def recorded(root: Path) -> Path:
    """The run of examples/recorded_run, played again."""
    folder = root / "recorded"
    optimize(
        EXAMPLE / "task.py", replay=str(EXAMPLE / "run.jsonl"), seeds=1, policy="no-tune", size="small", out=str(folder), checkpoints="none"
    )
    return folder


def killed(root: Path, whole: Path) -> Path:
    """The recorded run as a kill leaves it: no summary, and half a line at the end of the log."""
    folder = root / "killed"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("summary.json", "best.py", "report.*"))
    log = folder / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    verdicts = [number for number, line in enumerate(lines) if '"event": "verdict"' in line]
    log.write_text("".join(lines[: verdicts[1] + 2]) + lines[verdicts[1] + 2][:40])
    for path in (folder / "verdicts").glob("seed0-03*.json"):
        path.unlink()
    return folder


def old(root: Path) -> Path:
    """A measured run of an early version, of which only the summary was kept."""
    folder = root / "old"
    folder.mkdir()
    shutil.copy(ROOT / "tests/helpers/old_run/76.summary.json", folder / "summary.json")
    return folder


def hostile(root: Path) -> Path:
    """A run in which every text that comes from a model, a candidate or a task is EVIL. One kernel works, one does not."""
    task = root / f"{EVIL.replace('/', '_')[:60]}.py"
    task.write_text(TASK)
    good, bad = f"# {EVIL}\nclass ModelNew: pass\n", f"# {EVIL}\nraise SystemExit\n"
    verdict = _evil(scripted_verdict(2.0, comparison=Comparison.FASTER, label=Label.KERNEL, share=1.0, message=EVIL))
    judge = ScriptedEvaluator({good: verdict, bad: scripted_verdict(None, status=Status.COMPILE_ERROR, message=FORMULA + EVIL)})
    author = _EvilAuthor(seeds=(good, bad), name=EVIL)
    folder = root / "hostile"
    optimize(task, evaluator=judge, author=author, seeds=2, policy="no-tune", budget=Budget(repairs=0), out=str(folder), checkpoints="none")
    call = {
        "stage": "seed", "role": "author", "model": EVIL, "reply": EVIL, "reasoning": EVIL, "error": EVIL, "broken": [EVIL],
        "messages": [{"role": EVIL, "content": f"# {EVIL}\n{EVIL * 4}\n"}],
    }  # fmt: skip
    (folder / "llm" / "seed0-01-seed-1.json").write_text(json.dumps(call))
    return folder


class _EvilAuthor(ScriptedAuthor):
    async def seed(self, brief):  # type: ignore[no-untyped-def]
        draft = await super().seed(brief)
        return draft.model_copy(update={"rationale": EVIL, "recipe": EVIL, "settings": {EVIL: EVIL}})


def _evil(verdict: Verdict) -> Verdict:
    kernel = verdict.facts.kernels[0].model_copy(update={"name": EVIL, "registers": 8})
    facts = verdict.facts.model_copy(update={"kernels": (kernel,), "library_calls": {EVIL: 1}})
    timing = verdict.timing.model_copy(update={"notes": (EVIL,), "baselines_ms": {EVIL: 1.0}, "baseline": EVIL})  # type: ignore[union-attr]
    told = {"card": EVIL, "versions": {EVIL: EVIL}, "sandbox": {"layers": {EVIL: EVIL}}}
    return verdict.model_copy(update={"facts": facts, "timing": timing, "environment": told, "advice": (EVIL,)})


def measured(root: Path) -> Path:
    """A measured run with everything: two branches, repairs, an analysis, three tuning stages, a failure in each, and an interval."""
    texts = {name: _kernel(name) for name in ("first", "mended", "second", "better", "g1", "g2", "b1", "b2", "m1", "m2")}
    scores = {"mended": 0.04, "second": 0.6, "better": 1.9, "g1": 2.2, "g2": 1.7, "b1": 3.1, "m1": 3.0, "m2": 4.2}
    table: dict[str, Verdict | Exception] = {texts[name]: _measured(name, score) for name, score in scores.items()}
    tanh = "line 11: module 'triton.language' has no attribute 'tanh'"
    memory = "out of resource: shared memory, required 294912, limit 232448"
    table[texts["first"]] = scripted_verdict(None, status=Status.COMPILE_ERROR, message=tanh)
    table[texts["b2"]] = scripted_verdict(None, status=Status.LAUNCH_ERROR, message=memory)
    analysis = Analysis(
        bottleneck="3072 launches, one per layer and step", optimisation_method="the time loop inside the kernel",
        modification_plan="One program per slice of hidden units; a barrier between steps.", category=Category.LAUNCHES,
        expected_speedup=8.0, promise=Promise(metric="launches_per_forward", before=3072, bound=2), reason="launching is all of the time",
    )  # fmt: skip
    author = ScriptedAuthor(
        seeds=(texts["first"], texts["second"]), repairs={texts["first"]: texts["mended"]},
        analyses={texts["second"]: analysis}, optimized={texts["second"]: (texts["better"],)},
        variants={
            (Stage.TUNE_GRID, texts["better"]): (texts["g1"], texts["g2"]), (Stage.TUNE_BLOCK, texts["g1"]): (texts["b1"], texts["b2"]),
            (Stage.TUNE_MEMORY, texts["b1"]): (texts["m1"], texts["m2"]),
        },
    )  # fmt: skip
    folder, judge = root / "measured", ScriptedEvaluator(table)
    given = {"evaluator": judge, "author": author, "seeds": 2, "policy": "no-detect", "tuning": "model"}
    optimize(EXAMPLE / "task.py", **given, out=str(folder), checkpoints="none")
    _spread(folder / "events.jsonl")
    return folder


def _kernel(name: str) -> str:
    body = "\n".join(f"    y = tl.load(x + {number} * BLOCK)  # {name if number == 7 else 'part'}" for number in range(24))
    return f"import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef {name}(x, BLOCK: tl.constexpr):\n{body}\n"


def _measured(name: str, score: float) -> Verdict:
    said = Comparison.FASTER if score > 1.01 else Comparison.SLOWER
    found = scripted_verdict(score, comparison=said, label=Label.KERNEL, share=0.97, launches=2, programs=132)
    kernel = found.facts.kernels[0].model_copy(
        update={"name": name, "num_warps": 8, "registers": 168, "spills": 24, "shared_memory": 147456, "resident": 132, "device_ms": 0.2}
    )
    ratios = [score * part for part in (0.99, 1.0, 1.01)]
    sessions = tuple(Measurement(ratio=ratio, interval=(ratio * 0.99, ratio * 1.01), pairs=200) for ratio in ratios)
    timing = found.timing
    assert timing is not None
    timing = timing.model_copy(
        update={
            "interval": (score * 0.99, score * 1.01), "pairs": 200, "sessions": sessions,
            "baselines_ms": {"eager": 1.0, "cuda_graph": 1.3, "compile": 2.0},
            "control": Measurement(ratio=1.0, interval=(0.998, 1.003), pairs=200),
        }
    )  # fmt: skip
    told = {"card": "NVIDIA H200", "versions": {"torch": "2.11.0", "triton": "3.6.0"}, "sandbox": {"layers": {"seccomp": "applied"}}}
    return found.model_copy(update={"timing": timing, "facts": found.facts.model_copy(update={"kernels": (kernel,)}), "environment": told})


def _spread(log: Path) -> None:
    """Give the events the times of a run that takes minutes: a scripted one is over within a second."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    for number, event in enumerate(events):
        event["time"] = f"2026-11-21T10:{number * 4 // 60:02d}:{number * 4 % 60:02d}.000+00:00"
    log.write_text("".join(json.dumps(event) + "\n" for event in events))


def winnerless(root: Path) -> Path:
    """A run in which nothing works."""
    folder = root / "winnerless"
    judge = ScriptedEvaluator({"bad": scripted_verdict(None, status=Status.INACCURATE, message="error 0.3 of the oracle")})
    optimize(EXAMPLE / "task.py", evaluator=judge, author=ScriptedAuthor(seeds=("bad",)), seeds=1, out=str(folder), checkpoints="none")
    return folder


def large(root: Path, whole: Path) -> Path:
    """The recorded run with as much text as a long run with a model has: 60 candidates and 120 prompts of 40 KB."""
    folder = root / "large"
    shutil.copytree(whole, folder)
    told = json.loads((folder / "summary.json").read_text())
    rng = random.Random(1)
    row = told["candidates"][-1]
    for number in range(60):
        sha = f"{number:016x}"
        lines = [f"    x{number}_{line} = tl.load(p + {rng.randrange(10**6)}, p < 9)  # <&>é {'word ' * 4}" for line in range(250)]
        (folder / "kernels" / f"{sha}.py").write_text("\n".join(lines))
        told["candidates"].append({**row, "id": f"seed0-{number + 10}", "parent": "seed0-01", "sha": sha})
    (folder / "summary.json").write_text(json.dumps(told))
    for number in range(120):
        message = "\n".join(f"# Part {part} of {number}\n" + f"{rng.random()} words " * 300 for part in range(5))
        call = {"stage": "repair", "role": "repair", "messages": [{"role": "user", "content": message}], "reply": "reply " * 1500}
        (folder / "llm" / f"many-{number:03d}.json").write_text(json.dumps(call))
    return folder


def ablation(root: Path) -> Path:
    """The tables of an experiment: three policies, three tasks, three repeats; one run could not be made."""
    folder = root / "ablation"
    folder.mkdir()
    rng = random.Random(3)
    scores = {"39_gru": 4.6, "76_linear_bias_relu": 2.0, "26_gelu_scale_bias": 1.1}
    parts = {"default": 1.0, "no-analysis": 0.1, "single-seed": 0.93}
    plan = AblationPlan(
        name="leave-one-out", tasks=tuple(PlannedTask(key=key, path=f"benchmarks/tasks/{key}.py") for key in scores),
        policies=tuple(PlannedPolicy(key=key, given=key, seeds=2) for key in parts), repeats=3, settings={"model": "offline"},
        card="NVIDIA H200", kind="measured", date="2026-11-21", versions={"torch": "2.11.0"},
    )  # fmt: skip
    cells = [(task, policy, repeat) for task in scores for policy in parts for repeat in (1, 2, 3)]
    rows = [_cell(*cell, scores[cell[0]] * parts[cell[1]] * rng.uniform(0.95, 1.05), rng) for cell in cells]
    counts = {"variants": 6, "not_working": 1, "better": 1, "worse": 4, "lowest": 0.4, "median": 0.93, "highest": 1.3}
    tuned = tuple(TuningRow(task=task, persistent=task == "39_gru", **counts) for task in ("all", *scores))
    write_tables(tabulate(plan, rows).model_copy(update={"tuning": tuned}), folder)
    (folder / "plan.json").write_text(plan.model_dump_json())
    page = folder / rows[0].folder / "report.html"
    page.parent.mkdir(parents=True)
    page.write_text("<!doctype html><title>one run</title>")
    return folder


def _cell(task: str, policy: str, repeat: int, score: float, rng: random.Random) -> CellRow:
    lost = policy == "single-seed" and repeat == 3 and task == "39_gru"
    solved = not lost and not (policy == "single-seed" and repeat == 2)
    seeds = tuple(rng.choice([0.11, 0.3, 0.6, 0.9, 1.2, None]) for _ in range(2))
    return CellRow(
        task=task, policy=policy, repeat=repeat, state=CellState.FAILED if lost else CellState.DONE,
        folder=f"cells/{task}/{policy}/{repeat}", reason="the card went away" if lost else "the winner is confirmed",
        solved=solved, faster=solved and score > 1.01, score=score if solved else None,
        comparison="faster" if score > 1.01 else "slower", kind="measured", baseline="cuda_graph",
        label="kernel", seed_scores=seeds, seed_shas=tuple(str(rng.random()) for _ in seeds), candidates=rng.randint(3, 15), evaluations=8,
        evaluation_seconds=rng.uniform(60, 200), shared_evaluations=3, seconds=100.0,
    )  # fmt: skip
