"""What a forward launches, as two processes saw it: the one that compiled the candidate and the one that interpreted it.

Either runs candidate code, which could find out which one it is in, so each kind of work counts as the larger of the two.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from tritonsmith.evaluator.channel.report import ForwardReport, LaunchCount, read_copied
from tritonsmith.evaluator.records.limits import LineFacts
from tritonsmith.evaluator.schema import KernelFacts, LaunchFacts

Grid = tuple[int, int, int]


def find_other_constants(compiled: dict[str, Any], interpreted: dict[str, Any]) -> str:
    """A sentence about a kernel that was compiled with other constants than it was run with; empty when there is none.

    Tuners may choose differently in the two processes: only kernels that the replay calls `fixed` are looked at.
    """
    kernels = [KernelFacts.model_validate(values) for values in compiled["kernels"]]
    for launch in (LaunchCount.from_dict(values) for values in interpreted.get("launches", ())):
        same = [kernel.constexprs for kernel in kernels if (kernel.name, kernel.grid) == (launch.name, launch.grid)]
        if launch.name not in interpreted.get("fixed", ()) or not same:
            continue
        numbers = {name: value for name, value in launch.constexprs.items() if isinstance(value, int | float)}
        differing = [{name for name, value in numbers.items() if _differs(constexprs.get(name), value)} for constexprs in same]
        if all(differing):
            name = min(differing[0])
            return (
                f"kernel {launch.name} runs with {name}={launch.constexprs[name]} and is compiled with {name}={same[0][name]}: "
                "forward tells the two processes apart"
            )
    return ""


def _differs(compiled: object, run: float) -> bool:
    return isinstance(compiled, int | float) and compiled != run


def merge_launch_facts(compiled: dict[str, Any], interpreted: dict[str, Any], order_dependent: bool) -> tuple[LaunchFacts, ForwardReport]:
    """Facts of one forward. Kernels that only one process saw count too: without resources, or without counts."""
    counts = [LaunchCount.from_dict(launch) for launch in interpreted.get("launches", ())]
    seen: Counter[tuple[str, Grid]] = Counter()
    for count in counts:
        seen[count.name, count.grid] += count.count
    kernels = [KernelFacts.model_validate(values) for values in compiled["kernels"]]
    for kernel in kernels:
        seen[kernel.name, kernel.grid] -= kernel.launches  # several compiled kernels may share a name and a grid
    more = {key: launched for key, launched in seen.items() if launched > 0}
    kernels = [
        kernel.model_copy(update={"launches": kernel.launches + more.pop((kernel.name, kernel.grid), 0)}) for kernel in kernels
    ]  # fmt: skip
    kernels += [KernelFacts(name=name, grid=grid, launches=launched) for (name, grid), launched in more.items()]
    library = ForwardReport.from_dict(compiled) | ForwardReport.from_dict(interpreted)
    triton_launches = sum(kernel.launches for kernel in kernels)
    facts = LaunchFacts(
        launches_per_forward=triton_launches + library.torch_launches, triton_launches=triton_launches, library_calls=library.torch_ops,
        kernels=tuple(add_counts(kernels, counts)), order_dependent=order_dependent, copied_outputs=read_copied(interpreted),
    )  # fmt: skip
    return facts, library


def add_counts(kernels: Sequence[KernelFacts], launches: Sequence[LaunchCount]) -> list[KernelFacts]:
    """Facts of compiled kernels with bytes, FLOPs and sync rounds per launch (mean over launches of the same name and grid).

    Launches that agree in constexprs too are preferred. A kernel the interpreter never saw keeps its empty counts.
    """
    by_grid: dict[tuple[str, tuple[int, int, int]], list[LaunchCount]] = defaultdict(list)
    for launch in launches:
        by_grid[launch.name, launch.grid].append(launch)
    return [_add_mean_counts(kernel, by_grid.get((kernel.name, kernel.grid), [])) for kernel in kernels]


def _add_mean_counts(kernel: KernelFacts, launches: list[LaunchCount]) -> KernelFacts:
    same = [
        launch for launch in launches
        if all(kernel.constexprs.get(name, value) == value for name, value in launch.constexprs.items())
    ]  # fmt: skip
    chosen = same or launches
    if not chosen:
        return kernel
    count = sum(launch.count for launch in chosen)
    products: Counter[str] = Counter()
    for launch in chosen:
        products.update({kind: flops * launch.count for kind, flops in launch.dot_flops.items()})
    return kernel.model_copy(
        update={
            "bytes_loaded": sum(launch.bytes_loaded * launch.count for launch in chosen) / count,
            "bytes_stored": sum(launch.bytes_stored * launch.count for launch in chosen) / count,
            "flops": sum(launch.total_flops * launch.count for launch in chosen) / count,
            "product": products.most_common(1)[0][0] if products else "",
            "sync_rounds": max(launch.sync_rounds for launch in chosen),
            "lines": _join_lines(chosen),
        }
    )


def _join_lines(launches: Sequence[LaunchCount]) -> tuple[LineFacts, ...]:
    """What the launches' lines did at most."""
    found: dict[tuple[int, str], LineFacts] = {}
    for seen in (line for launch in launches for line in launch.lines):
        known = found.get((seen.line, seen.kind))
        counts = {name: max(getattr(seen, name), getattr(known, name, 0)) for name in ("most", "programs", "foreign")}
        found[seen.line, seen.kind] = LineFacts(line=seen.line, kind=seen.kind, **counts)
    return tuple(found[place] for place in sorted(found))
