"""Triton's modules without their partial types, for the modules that patch them. Imports Triton: for evaluator processes only."""

from typing import Any

import triton
import triton.language
from triton.runtime import interpreter as _interpreter
from triton.runtime.jit import JITFunction as _JITFunction

tl: Any = triton.language
interpreter: Any = _interpreter
driver: Any = triton.runtime.driver
knobs: Any = triton.knobs
JITFunction: Any = _JITFunction
