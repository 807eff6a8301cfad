"""The tasks of the study with their kernels, and the same space as a list for triton.autotune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tritonsmith.evaluator.schema import Task
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.evaluator.texts.spaces.read import read_space
from tritonsmith.evaluator.texts.spaces.space import Parameter, TextSpace, Values, list_configurations

_HERE = Path(__file__).parent
_TASKS = _HERE.parent / "tasks"
_LARGE = _HERE.parent / "kernelbench"
"""Tasks on large tensors, which run here at sizes of their own, and a kernel of them."""
_OPTIONS = ("num_warps", "num_stages")
"""What a configuration of triton.autotune takes besides constants."""
_LAUNCH = ", **TUNED)"
"""How every kernel's launch ends; its constants stand in a dictionary."""
_SETTINGS = "BLOCK = 1024\nWARPS = 4\n", "BLOCK=BLOCK, num_warps=WARPS)"
"""How a kernel of `kernelbench` has its settings: as constants, and at the end of its launch."""
_PARAMETERS = "nn.Linear(columns, rows)"
"""How the product's kernel makes its parameters."""
_RUNNING_SUM_SPACE = """# tunable: BLOCK = 512, 1024, 2048, 4096, 8192 [block]
# tunable: num_warps = 2, 4, 8, 16 [memory]
# tunable: num_stages = 1, 2, 3, 4 [memory]
TUNED = {"BLOCK": 1024, "num_warps": 4, "num_stages": 3}
"""


@dataclass(frozen=True)
class TuningCase:
    """One task of the study.

    Attributes:
        name: how `--cases` names it.
        task: its file.
        kernel: the untuned kernel's file; None where a recipe writes it.
        precision: the class that is asked for; None: what follows from the task.
        sizes: values for the task's dimensions by size, where they are not the file's own.
        space: what takes the place of the kernel's constants where it does not state a space itself.
        dtype: type of the kernel's parameters, where it is not float32.
    """

    name: str
    task: Path
    kernel: Path | None
    precision: str | None = None
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    space: str = ""
    dtype: str = ""

    def read_kernel(self) -> str:
        """The untuned kernel. Raises OSError."""
        assert self.kernel is not None, "a recipe writes this kernel"
        text = self.kernel.read_text(encoding="utf-8")
        if self.space:
            constants, launched = _SETTINGS
            assert text.count(constants) == text.count(launched) == 1, f"{self.kernel.name} has its settings in another way"
            text = text.replace(constants, self.space).replace(launched, _LAUNCH.removeprefix(", "))
        if self.dtype:
            assert text.count(_PARAMETERS) == 1, f"{self.kernel.name} makes its parameters in another way"
            text = text.replace(_PARAMETERS, f"{_PARAMETERS.removesuffix(')')}, dtype=torch.{self.dtype})")
        return text.replace('PRECISION = "ieee"', 'PRECISION = "tf32"') if self.precision == "tf32" else text


def _rows(rows: int, columns: int) -> dict[str, dict[str, int]]:
    """A matrix of this size; small, rows that are still longer than most tiles."""
    return {"full": {"rows": rows, "columns": columns}, "small": {"rows": 4, "columns": 4096}}


CASES = (
    TuningCase("matmul_ieee", _TASKS / "13_matmul_bias_gelu.py", _HERE / "kernels/matmul.py", "ieee"),
    TuningCase("matmul_tf32", _TASKS / "13_matmul_bias_gelu.py", _HERE / "kernels/matmul.py", "tf32"),
    TuningCase("matmul_bf16", _HERE / "tasks/matmul_bf16.py", _HERE / "kernels/matmul.py", dtype="bfloat16"),
    TuningCase("softmax", _LARGE / "tasks/softmax.py", _HERE / "kernels/softmax.py", sizes=_rows(4096, 32768)),
    TuningCase("layer_norm", _LARGE / "tasks/layer_norm.py", _HERE / "kernels/layer_norm.py", sizes=_rows(8192, 8192)),
    TuningCase(
        "cumsum", _LARGE / "tasks/running_sum.py", _LARGE / "kernels/running_sum.py", sizes=_rows(32768, 32768), space=_RUNNING_SUM_SPACE
    ),
    TuningCase("gru_persistent", _TASKS / "39_gru.py", None),
)
"""In the order in which they are measured."""


def read_stated(text: str) -> TextSpace:
    """The space that a kernel states in comments, and nothing else: an autotuner gets the same."""
    space = read_space(text)
    stated = tuple(parameter for parameter in space.parameters if parameter.origin.startswith("stated"))
    return replace(space, parameters=stated)


def write_autotuned(text: str, parameters: Sequence[Parameter]) -> str:
    """The kernel with `@triton.autotune` over every configuration of the space, in place of its constants."""
    configs = ",\n    ".join(map(_write_config, list_configurations(tuple(parameters))))
    decorator = f"@triton.autotune(configs=[\n    {configs},\n], key=[])\n@triton.jit\n"
    head, kernel, rest = text.partition("@triton.jit\n")
    assert kernel and rest.count(_LAUNCH) == 1, "a kernel of this study has one kernel and one launch"
    return head + decorator + rest.replace(_LAUNCH, ")")


def _write_config(values: Values) -> str:
    constants = {name: value for name, value in values.items() if name not in _OPTIONS}
    options = ", ".join(f"{name}={values[name]}" for name in _OPTIONS if name in values)
    return f"triton.Config({constants}, {options})"


def load_case(case: TuningCase, size: str) -> Task:
    """The task of a case. Raises TaskError."""
    return load_task(case.task, size, case.sizes.get(size), case.precision)
