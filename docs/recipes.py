"""Writes what the built-in author can write into docs/recipes.md: `python docs/recipes.py [--write]`.

Without the option it prints that part of the page. It is made from the recipe book, and a test compares the two.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from tritonsmith.author.book import FAMILIES
from tritonsmith.author.compiler.operations import OPERATIONS
from tritonsmith.author.recipe import RecipeFamily
from tritonsmith.benchmarks.pages import run_page_script
from tritonsmith.prompts.node_names import MODULES

PAGE = Path(__file__).resolve().parent / "recipes.md"
BEGIN, END = "<!-- recipes: begin -->", "<!-- recipes: end -->"
WIDTH = 110
"""Characters of a line of names."""


def describe_family(family: RecipeFamily) -> list[str]:
    """Lines about one family: what forward may be, and what each of its recipes does."""
    recipes = [f"- `{recipe.name}` {recipe.describes}." for recipe in family.recipes]
    title = [f"## {family.name.capitalize()}", "", f"**Forward:** {family.writes}."]
    return [*title, "", "**Recipes,** the plainest first:", "", *recipes, ""]


def table() -> str:
    """What stands between the marks of docs/recipes.md."""
    names = [*sorted(set(OPERATIONS) - {"identity"}), *(f"nn.{name}" for name in sorted(MODULES))]
    listed = textwrap.wrap(" ".join(names), WIDTH, break_long_words=False, break_on_hyphens=False)
    families = [line for family in FAMILIES for line in describe_family(family)]
    words = ["## Elementwise operations", "", "As functions, methods, operators or modules:", "", "```", *listed, "```"]
    return "\n".join([BEGIN, "", *families, *words, "", END])


def main(words: list[str]) -> int:
    """Entry point; returns the exit code."""
    return run_page_script(words, str(__doc__), PAGE, [table()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
