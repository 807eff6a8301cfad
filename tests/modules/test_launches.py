"""Launches of a drop-in's Triton kernels that are kept: the same kernel with the same values as Triton's own launch, for each call."""

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

TEXT = """
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, out_ptr, count, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < count) * factor, mask=at < count)
"""


class Card:
    """A driver for cards that are not there: kernels are compiled for them, and launches are noted."""

    def __init__(self) -> None:
        from triton.backends.compiler import GPUTarget

        self.card, self.stream, self.launches = 0, 7, list[Any]()
        self.target = GPUTarget("cuda", 90, 32)
        self.utils = SimpleNamespace(
            get_device_properties=lambda _: {"max_shared_mem": 232448},
            load_binary=lambda *given: (1, f"loaded on {given[-1]}", 32, 0, 1024),
        )
        self.get_current_device = lambda: self.card
        self.get_current_stream = lambda card: (card, self.stream)
        self.get_current_target = lambda: self.target

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """What Triton calls for each launch of a compiled kernel."""

        def launch(x: int, y: int, z: int, stream: Any, function: str, packed: Any, *rest: Any) -> None:
            compiled = source.signature, source.constants, source.attrs, metadata.num_warps
            values = [value.data_ptr() if isinstance(value, torch.Tensor) else value for value in rest[3:]]
            self.launches.append(((x, y, z), stream, function, compiled, values))

        return launch


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    from triton.runtime import driver

    made = Card()
    monkeypatch.setattr(driver, "_active", made)
    return made


@pytest.fixture
def kernels(card: Card) -> Iterator[tuple[Any, Any, list[Any]]]:
    """A kernel whose launches are kept, one whose are not, and the calls that Triton was asked to launch of the first."""
    import triton

    from tritonsmith.modules.dropin.runtime.kernel import import_text
    from tritonsmith.modules.dropin.runtime.launches import hold_launches

    names = "launches_kept", "launches_plain"
    kept, plain = (import_text(TEXT, name) for name in names)
    asked, launch = list[Any](), triton.JITFunction.run

    def ask(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(args)
        return launch(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton.JITFunction, "run", ask)
        hold_launches(kept)
    yield kept.scale, plain.scale, asked
    for name in names:
        del sys.modules[name]


def list_calls() -> list[Callable[[Any], Any]]:
    """Launches of kernels that Triton compiles in several ways."""
    x, out = torch.zeros(4096), torch.zeros(4096)
    half, far = x.half(), x[1:]
    assert x.data_ptr() % 16 == 0 and far.data_ptr() % 16 == 4
    return [
        lambda kernel: kernel[(4,)](x, out, 1024, 2.0, BLOCK=256),
        lambda kernel: kernel[(4,)](far, out, 1024, 2.0, BLOCK=256),  # an address that does not divide by 16
        lambda kernel: kernel[(4,)](x[4:], out, 1024, 2.0, BLOCK=256),
        lambda kernel: kernel[(4,)](x, out[3:], 1024, 2.0, BLOCK=256),
        lambda kernel: kernel[(4,)](half, out, 1024, 2.0, BLOCK=256),
        lambda kernel: kernel[(4,)](x, out, 1023, 3.0, BLOCK=256),
        lambda kernel: kernel[(1,)](x, out, 1, 2.0, BLOCK=256),
        lambda kernel: kernel[(1,)](x, out, True, 2.0, BLOCK=256),
        lambda kernel: kernel[(1,)](x, out, 1 << 40, 2.0, BLOCK=256),
        lambda kernel: kernel[(4,)](x, out, 1024, 2, BLOCK=256),
        lambda kernel: kernel[(2,)](x, out, 1024, 2.0, BLOCK=512, num_warps=8),
        lambda kernel: kernel[2, 3](x, out, 1024, 2.0, 512),
        lambda kernel: kernel[lambda values: (values["count"] // values["BLOCK"], 2, 3)](x, out, factor=2.0, count=1024, BLOCK=256),
    ]


def test_each_call_launches_what_triton_itself_would(card: Card, kernels: tuple[Any, Any, list[Any]]) -> None:
    kept, plain, asked = kernels
    calls = list_calls()
    for again in range(3):
        for number, call in enumerate(calls):
            card.card, card.stream = again % 2, number
            asked.clear(), card.launches.clear()
            call(plain)
            call(kept)
            theirs, own = card.launches
            assert own == theirs, number
            if number in (0, 2):  # which differ in nothing that Triton goes by
                assert bool(asked) is (number == 0 and again < 2), "Triton is asked once for each card"
            assert again < 2 or not asked


def test_a_tensor_in_place_of_a_number_is_never_taken_for_it(card: Card, kernels: tuple[Any, Any, list[Any]]) -> None:
    kept, plain, _ = kernels
    x, out, count = torch.zeros(256), torch.zeros(256), torch.zeros(4, dtype=torch.int32)
    kept[(1,)](x, out, 256, 2.0, BLOCK=256)
    for _ in range(2):
        for kernel in (plain, kept):
            with pytest.raises(Exception, match=r"."):  # the kernel compares a number with it
                kernel[(1,)](x, out, count, 2.0, BLOCK=256)
    assert len(card.launches) == 1


def test_launches_that_something_watches_are_triton_s(card: Card, kernels: tuple[Any, Any, list[Any]]) -> None:
    from triton import knobs

    kept, _, asked = kernels
    call = list_calls()[0]
    call(kept)
    asked.clear()
    seen: list[Any] = []
    knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        call(kept)
    finally:
        knobs.runtime.launch_enter_hook.remove(seen.append)
    assert len(asked) == 1 and len(card.launches) == 2
    kept.warmup(torch.float32, torch.float32, 1024, 2.0, BLOCK=256, grid=(1,))
    assert len(asked) == 2 and len(card.launches) == 2
    call(kept)
    assert len(asked) == 2 and len(card.launches) == 3
