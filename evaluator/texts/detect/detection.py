"""What kind of kernel a text is: traits with evidence, from the syntax tree and, where there is one, from the verdict."""

from __future__ import annotations

from tritonsmith.evaluator.errors import KernelFileError
from tritonsmith.evaluator.schema import Hardware, KernelFacts, LaunchFacts, TaskFacts, Timing
from tritonsmith.evaluator.texts.detect.algorithms import (
    find_flash_attention,
    find_fourier_transform,
    find_winograd_matrices,
    find_winograd_transform,
)
from tritonsmith.evaluator.texts.detect.bounds import find_bound
from tritonsmith.evaluator.texts.detect.convolutions import find_direct_convolution
from tritonsmith.evaluator.texts.detect.grids import find_one_axis_grid, read_constants, read_grid_extents, read_multiples
from tritonsmith.evaluator.texts.detect.library import find_library_work
from tritonsmith.evaluator.texts.detect.loops import find_loop_traits
from tritonsmith.evaluator.texts.detect.lost_updates import find_lost_update
from tritonsmith.evaluator.texts.detect.observed import compare_sharing, find_observed_waits, note_iterations
from tritonsmith.evaluator.texts.detect.products import find_serial_product
from tritonsmith.evaluator.texts.detect.records import Detection, KernelCode, Trait, TraitHit
from tritonsmith.evaluator.texts.detect.sharing import find_unsynchronised_sharing
from tritonsmith.evaluator.texts.detect.time_loops import find_time_loop
from tritonsmith.evaluator.texts.detect.views import keeps_to_runs, read_overlaps, read_shared_buffers
from tritonsmith.evaluator.texts.source.host_calls import Call, HostCalls
from tritonsmith.evaluator.texts.source.host_values import HostValues
from tritonsmith.evaluator.texts.source.kernel_file import read_kernel_source
from tritonsmith.evaluator.texts.source.values import KernelWalk
from tritonsmith.evaluator.texts.source.walk import walk_kernel

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
    index = read_kernel_source(source, path, plainly=True)
    host = HostCalls(index)
    launches = [call for call in host.calls if call.kernel]
    hits: list[TraitHit | None] = []
    codes: list[KernelCode] = []
    walks: dict[str, KernelWalk] = {}
    for name, node in index.find_kernels(str(call.kernel) for call in launches).items():
        known, calls = _facts_of(name, facts), [call for call in launches if call.kernel == name]
        constants, shared = read_constants(host.values, name, calls, known), read_shared_buffers(host.values, calls)
        given = read_multiples(host.values, calls) | constants
        walk = walks[name] = walk_kernel(index, node, given, shared)
        overlaps = read_overlaps(host.values, calls)
        joined = {parameter: other for parameter, (other, _) in overlaps.items()}
        places = {parameter: place for parameter, (_, place) in overlaps.items()}
        viewed = walk_kernel(index, node, given | places, shared | joined) if overlaps else walk
        found = _find_kernel_traits(host.values, walk, viewed, known, calls, hardware)
        hits += found
        codes.append(
            KernelCode(
                name=name, line=walk.line, launch_lines=tuple(sorted({call.node.lineno for call in calls})),
                program_axes=tuple(sorted(walk.program_axes)), uses_dot=walk.has_dot, waits=walk.waits,
                persistent=any(hit is not None and hit.name is Trait.PERSISTENT for hit in found),
            )
        )  # fmt: skip
    hits.append(find_time_loop(index, host, walks, facts, task_facts))
    hits.append(find_library_work(index, host, walks, facts))
    hits.append(find_winograd_matrices(index))
    if facts is not None and task_facts is not None and hardware is not None and timing is not None:
        hits.append(find_bound(facts, task_facts, hardware, timing))
    order = list(Trait)
    labels = sorted((hit for hit in hits if hit is not None), key=lambda hit: (order.index(hit.name), hit.line or 0))
    return Detection(labels=tuple(labels), kernels=tuple(codes))


def _find_kernel_traits(
    values: HostValues, walk: KernelWalk, viewed: KernelWalk, known: KernelFacts | None, launches: list[Call], hardware: Hardware | None
) -> list[TraitHit | None]:
    extents = known.grid if known is not None else _read_single_axes(values, launches)
    serial, serial_loops = find_serial_product(walk)
    convolution, tap_loops = find_direct_convolution(walk)
    if known is not None:
        note_iterations(walk, known.lines)
    transform = find_flash_attention(walk) or find_winograd_transform(walk) or find_fourier_transform(walk)
    persistent, row = find_loop_traits(walk, serial_loops | tap_loops, transform)
    if known is not None:
        persistent = persistent or find_observed_waits(walk, known)
    grid = find_one_axis_grid(values, walk, known, launches, hardware) if persistent is not None else None
    if transform is not None:
        convolution = None  # its loops are that algorithm's
    shared = find_unsynchronised_sharing(walk, extents)
    if shared is None and viewed is not walk and keeps_to_runs(viewed):
        shared = find_unsynchronised_sharing(viewed, extents)
    shared = shared or find_lost_update(walk, extents)
    if shared is not None and known is not None:
        shared = compare_sharing(shared, walk, known)
    return [persistent, row, grid, shared, serial, convolution, transform]


def _read_single_axes(values: HostValues, launches: list[Call]) -> tuple[int | None, int | None, int | None]:
    """1 for axes along which every launch has one program, by the text; None for others."""
    grids = [read_grid_extents(values, call) for call in launches]
    if not grids or any(grid is None for grid in grids):
        return None, None, None
    whole = [(*(grid or ()), 1, 1, 1)[:3] for grid in grids]
    first, second, third = (1 if all(grid[axis] == 1 for grid in whole) else None for axis in range(3))
    return first, second, third


def _facts_of(name: str, facts: LaunchFacts | None) -> KernelFacts | None:
    """The largest launch of a kernel."""
    same = [kernel for kernel in facts.kernels if kernel.name == name] if facts is not None else []
    return max(same, key=lambda kernel: kernel.grid[0] * kernel.grid[1] * kernel.grid[2], default=None)
