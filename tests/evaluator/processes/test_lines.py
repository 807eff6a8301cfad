"""Lines over a pipe: what a process says can be written to a file."""

import os

import pytest

from tritonsmith.evaluator.processes.lines import read_line, send_line

WHOLE = "whole \U0001f600 \\ud800 \u00e9"


@pytest.mark.parametrize(("said", "heard"), [("half \ud800, \udfff", "half ?, ?"), (WHOLE, WHOLE)])
def test_half_a_character_is_read_as_a_question_mark(said: str, heard: str) -> None:
    """A candidate's message may hold what no tape can keep."""
    reading, writing = os.pipe()
    send_line(writing, {"message": said, said: [said, 1.5, None]})
    assert read_line(reading, 5.0) == {"message": heard, heard: [heard, 1.5, None]}
    os.close(writing)
    os.close(reading)
