"""Lets code written for device="cuda" run on CPU tensors: stub of the interface, body follows."""

from types import TracebackType
from typing import Any

from torch.overrides import TorchFunctionMode

from tritonsmith.evaluator.schema import Hardware


class FakeCuda(TorchFunctionMode):  # type: ignore[misc]
    """Context manager: inside, tensors say they are on cuda:0 and torch.cuda answers for `hardware`; the work is done on the CPU."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__()
        self.hardware = hardware

    def __enter__(self) -> "FakeCuda":
        raise NotImplementedError

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        raise NotImplementedError

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError
