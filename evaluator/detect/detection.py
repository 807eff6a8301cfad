"""What kind of kernel a text is: traits with evidence, from the syntax tree and, where there is one, from the verdict."""

from __future__ import annotations

import ast

from tritonsmith.evaluator.detect import host, kernels
from tritonsmith.evaluator.detect.bounds import find_bound
from tritonsmith.evaluator.detect.records import Detection, KernelCode, Trait, TraitHit
from tritonsmith.evaluator.errors import KernelFileError
from tritonsmith.evaluator.schema import Hardware, KernelFacts, LaunchFacts, TaskFacts, Timing
from tritonsmith.evaluator.source.kernel_file import Call, find_host_calls, read_kernel_source
from tritonsmith.evaluator.source.values import KernelWalk
from tritonsmith.evaluator.source.walk import walk_kernel

__all__ = ["Detection", "KernelCode", "TraitHit", "Trait", "detect"]


def detect(
    source: str,
    facts: LaunchFacts | None = None,
    task_facts: TaskFacts | None = None,
    hardware: Hardware | None = None,
    timing: Timing | None = None,
    path: str = "the kernel",
) -> Detection:
    """Labels of a kernel file.

    Args:
        source: the file's text; it is parsed, never run.
        facts: what one forward launches, from a verdict.
        task_facts: the reference's facts; with facts, hardware and timing they show what bounds the kernel.
        hardware: the card that the facts are about.
        timing: latency, measured or estimated.
        path: what errors call the file.
    Raises:
        KernelFileError: the text is no Python (names the line), or too deep or too branched to be followed.
    """
    try:
        return _detect(source, facts, task_facts, hardware, timing, path)
    except (RecursionError, MemoryError):
        raise KernelFileError(f"{path}: it is nested deeper than can be followed; write it plainer") from None


def _detect(
    source: str, facts: LaunchFacts | None, task_facts: TaskFacts | None, hardware: Hardware | None, timing: Timing | None, path: str
) -> Detection:
    index = read_kernel_source(source, path)
    walks = {name: walk_kernel(index, node) for name, node in index.find_kernels().items()}
    launches = [call for call in find_host_calls(index) if call.kernel]
    hits: list[TraitHit | None] = []
    codes: list[KernelCode] = []
    for name, walk in walks.items():
        known = _facts_of(name, facts)
        lines = sorted({call.node.lineno for call in launches if call.kernel == name})
        persistent = kernels.find_persistence(walk)
        hits.append(persistent)
        if persistent is not None:
            hits.append(_find_one_axis_grid(walk, known, [call for call in launches if call.kernel == name], hardware))
        hits += _find_kernel_traits(walk, known, [call for call in launches if call.kernel == name])
        codes.append(
            KernelCode(
                name=name, line=walk.line, launch_lines=tuple(lines), program_axes=tuple(sorted(walk.program_axes)),
                uses_dot=walk.has_dot, waits=walk.waits, persistent=persistent is not None,
            )
        )  # fmt: skip
    hits.append(host.find_time_loop(index, facts, task_facts))
    hits.append(host.find_library_work(index, facts, uses_dot=any(walk.has_dot for walk in walks.values())))
    hits.append(kernels.find_winograd(index))
    if facts is not None and task_facts is not None and hardware is not None and timing is not None:
        hits.append(find_bound(facts, task_facts, hardware, timing))
    order = list(Trait)
    found = sorted((hit for hit in hits if hit is not None), key=lambda hit: (order.index(hit.name), hit.line or 0))
    return Detection(labels=tuple(found), kernels=tuple(codes))


def _find_kernel_traits(walk: KernelWalk, known: KernelFacts | None, launches: list[Call]) -> list[TraitHit | None]:
    constants = dict(known.constexprs) if known is not None else {}
    extents = kernels.extents_of(known)
    if known is None and launches and all(_read_grid_extents(call) == (1,) * len(_read_grid_extents(call) or (0,)) for call in launches):
        extents = (1, 1, 1)
    return [
        kernels.find_unsynchronised_sharing(walk, extents),
        kernels.find_serial_product(walk, constants),
        kernels.find_direct_convolution(walk, constants),
        kernels.find_flash_attention(walk),
    ]


def _facts_of(name: str, facts: LaunchFacts | None) -> KernelFacts | None:
    """The largest launch of a kernel."""
    same = [kernel for kernel in facts.kernels if kernel.name == name] if facts is not None else []
    return max(same, key=lambda kernel: kernel.grid[0] * kernel.grid[1] * kernel.grid[2], default=None)


def _find_one_axis_grid(walk: KernelWalk, known: KernelFacts | None, launches: list[Call], hardware: Hardware | None) -> TraitHit | None:
    """A grid along one axis that fills less than half of the card, where programs share no work."""
    if walk.waits or walk.pid_parts or len(walk.program_axes) > 1 and known is None:
        return None
    if known is not None:
        programs = known.grid[0] * known.grid[1] * known.grid[2]
        if hardware is None or 2 * programs > hardware.processors or sum(extent > 1 for extent in known.grid) > 1:
            return None
        text = f"{walk.name}: the grid {known.grid} covers one axis: {programs} programs on {hardware.processors} processors"
        return TraitHit(name=Trait.ONE_AXIS_GRID, line=launches[0].node.lineno if launches else walk.line, evidence=text)
    for call in launches:
        extents = _read_grid_extents(call)
        if extents is not None and sum(extent != 1 for extent in extents) <= 1:
            text = f"{walk.name}: the launch in line {call.node.lineno} has a grid of one axis; each program keeps the other one whole"
            return TraitHit(name=Trait.ONE_AXIS_GRID, line=call.node.lineno, evidence=text)
    return None


def _read_grid_extents(call: Call) -> tuple[int | None, ...] | None:
    """Extents of a launch grid that is a tuple, also in a lambda or a local name; None for those not literal."""
    node: ast.expr | None = call.node.func.slice if isinstance(call.node.func, ast.Subscript) else None
    if isinstance(node, ast.Name):
        name = node.id
        node = next(
            (
                part.value
                for part in ast.walk(call.function)
                if isinstance(part, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in part.targets)
            ),
            None,
        )
    if isinstance(node, ast.Lambda):
        node = node.body
    if not isinstance(node, ast.Tuple):
        return None
    return tuple(extent.value if isinstance(extent, ast.Constant) and isinstance(extent.value, int) else None for extent in node.elts)
