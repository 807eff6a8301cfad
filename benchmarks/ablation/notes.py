"""The sentences under an experiment's tables: what the figures are, what is missing, and what the intervals cover."""

from tritonsmith.benchmarks.ablation.schema import Ablation, CellState


def notes_of(tables: Ablation) -> tuple[str, ...]:
    """The sentences, most important first."""
    plan = tables.plan
    done = [row for row in tables.cells if row.state is CellState.DONE]
    failed = [row for row in tables.cells if row.state is CellState.FAILED]
    open_ = len(tables.cells) - len(done) - len(failed)
    unproven = sum(row.solved and not row.faster and (row.score or 0.0) > 1.0 for row in done)
    found: list[str] = []
    if tables.kind == "measured":
        where = f"{tables.card} at precision {tables.precision}"
        found.append(f"Scores were measured on {where}, each against the strongest baseline of its task.")
    elif tables.kind:
        found.append(f"Scores are ESTIMATES for {tables.card} at precision {tables.precision}; no time was measured on a card.")
    if open_:
        found.append(f"{open_} of {len(tables.cells)} runs are not finished; the same command goes on with them.")
    if failed:
        found.append(
            f"{len(failed)} of {len(tables.cells)} runs could not be made and are in no figure; "
            "their reasons stand in their rows, and the same command tries them again."
        )
    if unproven:
        found.append(f"{unproven} winners score above 1 and are SAME or AMBIGUOUS: none of them counts as faster.")
    tasks = len({row.task for row in done})
    if tasks > 1:
        found.append(f"Intervals (95 %) resample the {tasks} tasks, then the repeats of each{_few(tasks)}.")
    elif done:
        found.append("There is one task: intervals (95 %) resample its repeats and say nothing about other tasks.")
    if plan.seed_step:
        found.append(
            "The built-in author always writes the same, so each repeat begins further on in its list of seeds: "
            "repeats differ by their seeds and by the noise of measuring."
        )
        seeds = {(row.task, row.repeat, place, sha) for row in done for place, sha in enumerate(row.seed_shas)}
        texts = {(task, sha) for task, _, _, sha in seeds}
        if len(texts) < len(seeds):
            found.append(f"That list is shorter than the experiment: its {len(seeds)} seeds are {len(texts)} different kernels.")
    if tables.shared.evaluations > tables.shared.evaluations_paid:
        found.append(
            f"Runs of one task and repeat share verdicts about equal kernels: {tables.shared.evaluations_paid} of "
            f"{tables.shared.evaluations} were judged; costs are given as if each run had been alone."
        )
    return tuple(found)


def _few(tasks: int) -> str:
    return "; with so few tasks they are rough, and hold for tasks like these only" if tasks < 10 else ""
