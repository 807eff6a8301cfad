"""Texts that are shown in fewer lines: the same program, without the words around it."""

from pathlib import Path

import pytest

from tritonsmith.author.worked_examples import FOLDER
from tritonsmith.nodes.authors.shorten import shorten_kernel

ODD = '''
"""A docstring."""
import math


def used(x):
    "one"; y = x + 1  # two
    text = """kept

# kept too
"""
    return y, text, "# not a comment"


def empty():
    """Nothing else."""


def unused():
    return helper()


def helper():
    return 1


class Kept:
    """Words."""

    def of(self, x):
        """Words."""
        # words
        return (
            used(x),  # words

            math.floor(2.5),
        )


RESULT = Kept().of(1), empty()
'''


def run(source):
    names = {}
    exec(compile(source, "<text>", "exec"), names)  # noqa: S102 - the test's own text
    return names["RESULT"]


def test_what_is_left_does_the_same():
    """Strings keep their lines, and what nothing calls goes with what only it called."""
    text, left_out = shorten_kernel(ODD)
    assert run(text) == run(ODD) and "left out" in left_out
    assert "ords" not in text and "two" not in text and "helper" not in text and "# kept too" in text
    assert shorten_kernel(text) == (text, left_out)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*/kernel.py")), ids=lambda file: file.parent.name)
def test_worked_examples_lose_comments_alone(file: Path):
    source = file.read_text(encoding="utf-8")
    text, _ = shorten_kernel(source)
    assert len(text.splitlines()) < len(source.splitlines()) and '"""' not in text
    for line in source.splitlines():
        words = line.split()
        if words[:1] in (["def"], ["class"], ["return"]) or "tl.dot(" in line:
            assert line.partition("  #")[0].rstrip() in text


@pytest.mark.parametrize("source", ["def f(:\n", "\0", "x = '''a", "x = 1\x0c\n# a\u2028y = 2\n", "(" * 5000], ids=repr)
def test_a_text_that_cannot_be_read_is_not_shown(source):
    assert shorten_kernel(source) is None
