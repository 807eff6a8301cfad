"""What honest kernels use of Triton and the stock interpreter lacks. The kernels run once, in one process with TRITON_INTERPRET=1."""

import json
from typing import Any

import numpy as np
import pytest

from interpreted import Interpreted
from project import HELPERS
from tritonsmith.evaluator.confined.interpreter.assembly import run_instruction

CASES = HELPERS / "language_cases.py"


@pytest.fixture(scope="module")
def results(interpreted: Interpreted) -> Any:
    return json.loads(interpreted.run(CASES))


def test_one_instruction_of_inline_assembly_is_computed(results: Any) -> None:
    assert results["assembly"] < 1e-6


def test_other_assembly_is_refused_and_never_guessed(results: Any) -> None:
    for text, message in results["unknown"].items():
        assert "cannot be interpreted without a card" in message and text.split()[0] in message


def test_atomic_additions_through_a_descriptor_are_atomic(results: Any) -> None:
    assert results["descriptors"] < 1e-5 and results["atomics"] == 4 * 32 and results["races"] == []


def test_a_kernel_sees_what_the_function_around_it_gives(results: Any) -> None:
    assert results["factory"]


def test_a_warmed_kernel_has_numbers_and_can_be_launched(results: Any) -> None:
    assert results["warmup"] and results["occupancy"] == [True, True, 8] and results["launches"] == 2


def test_a_bound_that_many_steps_leave_as_it_is_is_no_deadlock(results: Any) -> None:
    """Each step looks at one word and changes nothing, as a wait does; it reads on, as no wait does."""
    assert results["bounds"] == [1.0, 0.0] and results["rounds"][0] == 0


def test_eight_bit_floats_are_rounded_as_torch_rounds_them(results: Any) -> None:
    assert results["eight_bits"] == [True, True]


def test_a_column_of_equal_addresses_can_be_stored_to(results: Any) -> None:
    assert results["one_place"] == 5.0


def test_a_maximum_of_assembly_keeps_nan_where_its_suffix_says_so() -> None:
    values = np.array([np.nan, -1.0, 2.0], np.float32)
    plain, kept = (run_instruction([f"max{suffix}.f32 $0, $1, 0f00000000"], [values], np.float32) for suffix in ("", ".NaN"))
    np.testing.assert_array_equal(plain, [0.0, 0.0, 2.0])
    np.testing.assert_array_equal(kept, [np.nan, 0.0, 2.0])
