"""What a forward launched on a card, from the report of the candidate's process and the candidate's text.

The report cannot be trusted far, so it is read with care. What is not as it must be is refused, and the candidate's text decides which
kernels are its own. `audits.second_opinion` compares the label with another process's view.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import TypeAdapter

from tritonsmith.evaluator.channel.report import read_copied
from tritonsmith.evaluator.schema import KernelFacts, LaunchFacts
from tritonsmith.evaluator.texts.source.kernel_file import read_kernel_source

_FREE = ("Memcpy", "Memset")
"""How names of device work begin that is no kernel."""
_MAX_KINDS = 20
"""Library kernels that are listed, the most frequent ones."""
_Device = TypeAdapter(dict[str, tuple[int, float]])
_Kernels = TypeAdapter(list[KernelFacts])
_Milliseconds = TypeAdapter(float)


def read_launch_facts(report: dict[str, Any], source: str, order_dependent: bool) -> LaunchFacts:
    """Facts of one forward.

    In the report `device` has count and milliseconds of each kernel that the profiler saw, `busy_ms` the time in which any of them ran, and
    `kernels` what was launched through Triton's JIT. A replayed CUDA graph launches nothing through it.

    Raises:
        ValueError: the report is not what a runner of ours sends.
    """
    try:
        device, kernels = _Device.validate_python(report["device"]), _Kernels.validate_python(report["kernels"])
        busy, copied = _Milliseconds.validate_python(report["busy_ms"]), read_copied(report)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"unreadable facts: {type(error).__name__}") from error
    if any(count < 0 or not 0 <= ms < float("inf") for count, ms in [*device.values(), (0, busy)]):
        raise ValueError("unreadable facts: a negative count or time")
    own = set(read_kernel_source(source, "the candidate").jit)  # what triton.jit really is in this text
    own_device = {name: seen for name, seen in device.items() if name in own}
    foreign = {name: seen for name, seen in device.items() if name not in own and not name.startswith(_FREE)}
    library = {name: count for name, (count, _) in foreign.items()}
    longest = sorted(foreign, key=lambda name: -foreign[name][1])[:_MAX_KINDS]
    launched = max(sum(kernel.launches for kernel in kernels if kernel.name in own), sum(count for count, _ in own_device.values()))
    total = sum(ms for _, ms in device.values())
    launched_names = Counter(kernel.name for kernel in kernels)
    return LaunchFacts(
        launches_per_forward=launched + sum(library.values()), triton_launches=launched,
        library_calls=dict(sorted(library.items(), key=lambda item: -item[1])[:_MAX_KINDS]),
        library_ms={name: foreign[name][1] for name in longest},
        kernels=tuple(
            kernel.model_copy(update={"device_ms": own_device[kernel.name][1]})
            if launched_names[kernel.name] == 1 and kernel.name in own_device else kernel
            for kernel in kernels
        ),
        own_time_share=sum(ms for _, ms in own_device.values()) / total if total else None, device_ms=busy or None,
        order_dependent=order_dependent, copied_outputs=copied,
    )  # fmt: skip
