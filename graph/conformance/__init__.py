"""A test for any policy."""

from tritonsmith.graph.conformance.check import Violation, check_policy

__all__ = ["Violation", "check_policy"]
