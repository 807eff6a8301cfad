"""What a forward launched on a card, from the report of the candidate's process and the candidate's text. Imports no torch.

The report cannot be trusted far, so it is read with care: whatever is not as it must be is refused, and which kernels are the
candidate's own is decided by its text. `second_opinion.second_opinion` compares the label with another process's view.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from tritonsmith.evaluator.schema import KernelFacts, LaunchFacts
from tritonsmith.evaluator.source.kernel_file import read_kernel_source

_FREE = ("Memcpy", "Memset")
_MOST_KINDS = 20
_Device = TypeAdapter(dict[str, tuple[int, float]])
_Kernels = TypeAdapter(list[KernelFacts])


def launch_facts(report: dict[str, Any], source: str, order_dependent: bool) -> LaunchFacts:
    """Facts of one forward: `device` has count and milliseconds of each kernel that the profiler saw, `kernels` what was launched through
    Triton's JIT (a replayed CUDA graph launches nothing through it).

    Raises:
        ValueError: the report is not what a runner of ours sends.
    """
    try:
        device, kernels = _Device.validate_python(report["device"]), _Kernels.validate_python(report["kernels"])
    except (KeyError, ValidationError) as error:
        raise ValueError(f"unreadable facts: {type(error).__name__}") from error
    if any(count < 0 or not 0 <= ms < float("inf") for count, ms in device.values()):
        raise ValueError("unreadable facts: a negative count or time")
    own = set(read_kernel_source(source, "the candidate").jit)  # what triton.jit really is in this text, whatever else is called jit
    mine = {name: seen for name, seen in device.items() if name in own}
    library = {name: count for name, (count, _) in device.items() if name not in own and not name.startswith(_FREE)}
    launched = max(sum(kernel.launches for kernel in kernels if kernel.name in own), sum(count for count, _ in mine.values()))
    total = sum(ms for _, ms in device.values())
    single = {kernel.name for kernel in kernels if [one.name for one in kernels].count(kernel.name) == 1}
    return LaunchFacts(
        launches_per_forward=launched + sum(library.values()), triton_launches=launched,
        library_calls=dict(sorted(library.items(), key=lambda one: -one[1])[:_MOST_KINDS]),
        kernels=tuple(
            kernel.model_copy(update={"device_ms": mine[kernel.name][1]}) if kernel.name in single and kernel.name in mine else kernel
            for kernel in kernels
        ),
        own_time_share=sum(ms for _, ms in mine.values()) / total if total else None, device_ms=total or None,
        order_dependent=order_dependent,
    )  # fmt: skip
