"""What the author's kernels give at NaN, infinities, zeros, halves and the ends of types is what PyTorch gives (docs/values.md)."""

import importlib.util
import json
import math

import pytest
import torch

from interpreted import Interpreted
from project import HELPERS, ROOT
from recipe_cases.values import GROUPS, find_difference

DRIVER = HELPERS / "recipe_cases" / "values.py"


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["quick", "slow"])
def test_values_are_those_of_torch(interpreted: Interpreted, slow: bool) -> None:
    differences = json.loads(interpreted.run(DRIVER, *(name for name, group in GROUPS.items() if group.slow is slow)))
    assert {name: found for name, found in differences.items() if found} == {}


@pytest.mark.parametrize(
    ("wanted", "given"),
    [([0.0], [-0.0]), ([math.nan], [1.0]), ([1.0], [math.nan]), ([math.inf], [3e38]), ([1.0], [1.0001]), ([1.0], [1])],
)
def test_a_difference_is_told(wanted: list[float], given: list[float]) -> None:
    assert find_difference(torch.tensor(wanted), torch.tensor(given))
    assert not find_difference(torch.tensor(wanted), torch.tensor(wanted))


def test_the_page_has_what_the_table_says() -> None:
    spec = importlib.util.spec_from_file_location("values_page", ROOT / "docs" / "values.py")
    assert spec is not None and spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    assert page.table() in (ROOT / "docs" / "values.md").read_text(), "run: python docs/values.py --write"
