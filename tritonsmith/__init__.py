"""Your own module in, a proven faster drop-in out: the public names. Everything else is private to the project.

Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__path__ = extend_path(__path__, __name__)  # in a checkout's root this folder stands before an installed package of the same name

if TYPE_CHECKING:
    from tritonsmith.modules.api import optimize, optimize_async
    from tritonsmith.modules.dropin.drop_in import load
    from tritonsmith.modules.result import Result

_PLACES = {
    "Result": "tritonsmith.modules.result",
    "load": "tritonsmith.modules.dropin.drop_in",
    "optimize": "tritonsmith.modules.api",
    "optimize_async": "tritonsmith.modules.api",
}
"""Where each public name is, imported when it is first asked for."""
__all__ = ["Result", "load", "optimize", "optimize_async"]


def __getattr__(name: str) -> Any:
    """A public name, brought in when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'tritonsmith' has no attribute {name!r}; its names are {', '.join(__all__)}")
    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
