"""Whole numbers and floating inputs of each kind stay within what a task's inputs may be, and reach its ends."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.oracle.checks.inputs import KINDS
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.tasks.files import load_task

FRAME = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 4)

    def forward(self, x, ids):
        {body}


def get_inputs():
    return [torch.randn(6, 12), {draw}]


def get_init_inputs():
    return []


{rest}
"""
SUM = "return x.sum(1, keepdim=True) + self.table(ids).sum((1, 2))[:, None]"
IDS = "torch.randint(0, 40, (6, 12))"

Load = Callable[..., LoadedTask]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Loads a task with this forward, these ids and this at the file's end."""
    loaded: list[LoadedTask] = []

    def make(body: str = SUM, draw: str = IDS, rest: str = "") -> LoadedTask:
        path = tmp_path / f"task{len(loaded)}.py"
        path.write_text(FRAME.format(body=body, draw=draw, rest=rest))
        loaded.append(LoadedTask(load_task(path), named_card("h200"), "cpu"))
        return loaded[-1]

    yield make
    for one in loaded:
        one.close()


def draw_ids(loaded: LoadedTask) -> dict[str, torch.Tensor]:
    return {kind: loaded.draw(kind)[1] for kind in KINDS}


def test_kinds_reach_the_ends_of_a_range_and_stay_within(load: Load) -> None:
    drawn = draw_ids(load())
    assert all(0 <= int(ids.min()) and int(ids.max()) < 40 and ids.shape == (6, 12) for ids in drawn.values())
    assert bool((drawn["below"] == 0).all()) and bool((drawn["above"] == 39).all())
    assert bool((drawn["constant"] == drawn["constant"][:, :1]).all()) and len(drawn["ints"].unique()) <= 3
    assert bool((drawn["tail"].diff() >= 0).all()) and bool((drawn["large"].diff() <= 0).all())
    assert bool((drawn["ends"][:, 0] == 0).all()) and bool((drawn["ends"][:, -1] == 39).all()) and len(drawn["ends"].unique()) > 5
    assert bool((drawn["edges"][0] == 0).all()) and bool((drawn["edges"][-1] == 39).all())
    assert len(drawn["own"].unique()) > 5 and not torch.equal(drawn["own"], drawn["signed"])


@pytest.mark.parametrize(("draw", "last"), [
    ("torch.randint(40, size=(6, 12), dtype=torch.int32)", 39),
    ("torch.randint(low=3, high=40, size=(12, 6)).view(6, 12).long()", 39),
    ("torch.empty(6, 12, dtype=torch.long).random_(0, 40)", 39),
    ("torch.tensor([[7] * 6 + [3] * 6] * 6)", 49),  # the table's last row
    ("torch.tensor([[7, 3, 3] * 4] * 6).int()", 49),
], ids=["high", "named", "in-place", "table", "cast-in-forward"])  # fmt: skip
def test_a_range_is_that_of_the_draw_or_of_the_table(load: Load, draw: str, last: int) -> None:
    drawn = draw_ids(load("ids = ids.long(); " + SUM, draw))
    assert bool((drawn["above"] == last).all())


@pytest.mark.parametrize("draw", ["torch.randperm(72).view(6, 12) % 72", "torch.randint(0, 9, (6, 12)).cumsum(1) % 7"])
def test_numbers_of_which_nothing_is_known_are_those_of_get_inputs(load: Load, draw: str) -> None:
    """They are no places of a table either."""
    loaded = load("return x.sum(1, keepdim=True) + ids.float().sum(1, keepdim=True)", draw)
    whole = torch.randint(0, 9, (6, 12))
    assert all(loaded.domains.redraw(kind, [torch.randn(6, 12), whole], 1)[1] is whole for kind in KINDS)


@pytest.mark.parametrize("draw", [
    "torch.randperm(12).view(1, 12).repeat(6, 1)", "torch.stack([torch.randperm(12) for _ in range(6)])", "torch.arange(12).expand(6, 12)",
])  # fmt: skip
def test_different_numbers_stay_different(load: Load, draw: str) -> None:
    loaded = load(draw=draw)
    for kind in KINDS:
        ids = loaded.draw(kind)[1]
        assert all(sorted(line) == [*range(12)] for line in ids.tolist()), kind
    assert bool((loaded.draw("below")[1].diff() == 1).all()) and bool((loaded.draw("above")[1].diff() == -1).all())
    assert not torch.equal(loaded.draw("shifted")[1], loaded.draw("shifted")[1])


@pytest.mark.parametrize("body", [
    "return torch.zeros(40, 12).index_put((ids[:, 0],), x) + self.table(ids[:1]).sum()",
    "return torch.zeros(6, 40).scatter(1, ids, x)",
    "keep = (ids[:, 0] > 3).nonzero(); return x * 2 + keep.sum() * 0 + self.table(ids).mean()",
], ids=["index_put", "scatter", "by-values"])  # fmt: skip
def test_no_more_numbers_are_equal_where_that_would_decide_the_result(load: Load, body: str) -> None:
    loaded = load(body)
    given = [torch.randn(6, 12), torch.arange(72).view(6, 12) % 40]
    assert all(loaded.domains.redraw(kind, given, 1)[1] is given[1] for kind in KINDS)


def test_a_result_that_is_a_place_has_ties_on_kinds_with_ties_alone(load: Load) -> None:
    loaded = load("return (x + self.table(ids).sum(2)).argmax(1)")
    given = [torch.randn(6, 12), torch.randint(0, 40, (6, 12))]
    assert loaded.domains.redraw("below", given, 1)[1] is given[1] and len(loaded.domains.redraw("ints", given, 1)[1].unique()) <= 3


def test_added_values_may_meet(load: Load) -> None:
    loaded = load("return torch.zeros(40, 12).index_add(0, ids[:, 0], x) + torch.zeros(40, 12).scatter_add(0, ids, x)")
    marks = load("return torch.zeros(6, 40).scatter(1, ids, 1.0) + x.sum()")  # of one value for a place any may stay
    assert bool((loaded.draw("above")[1] == 39).all()) and bool((marks.draw("above")[1] == 39).all())


def test_a_task_declares_what_its_inputs_may_be(load: Load) -> None:
    ends = "DOMAINS = {'ids': (5, 90), 0: (-9, 9.5)}"
    loaded = load("return (x + 3).log() * self.table(ids % 50).sum(2)", "torch.randint(0, 9, (6, 12)) + 5", ends)
    drawn = {kind: loaded.draw(kind) for kind in KINDS}
    assert bool((drawn["above"][1] == 89).all()) and bool((drawn["below"][1] == 5).all())
    assert all(float(x.abs().max()) <= 9.5 and float(x.min()) >= -9.0 for x, _ in drawn.values())
    assert float(drawn["large"][0].max()) > 9.0 and float(drawn["large"][0].min()) < -8.0
    assert float(drawn["signed"][0].std()) > 1.5


@pytest.mark.parametrize(("rest", "says"), [
    ("DOMAINS = {'id': (0, 50)}", "DOMAINS names 'id', which is no tensor among forward's arguments; choose among: x, ids"),
    ("DOMAINS = {2: (0, 50)}", "DOMAINS names 2, which is no tensor"),
    ("DOMAINS = {'ids': (0, 5)}", "DOMAINS says that 'ids' has numbers from 0 to 5, the last one excluded, and get_inputs\\(\\) draws"),
    ("DOMAINS = {'ids': (0, 50.5)}", "but it is int64; give whole ends"),
    ("DOMAINS = {'x': (0, 1)}", "DOMAINS says that 'x' has numbers from 0 to 1, and get_inputs\\(\\) draws -"),
    ("DOMAINS = {'ids': (9, 9)}", r"line \d+: DOMAINS gives 'ids' the ends 9 and 9; write the lower one first"),
    ("DOMAINS = {'ids': 50}", r"line \d+: DOMAINS must be a dict"),
    ("DOMAINS = {'ids': (0, float('inf'))}", r"task0\.py: DOMAINS must be a dict"),
    ("DOMAINS = [(0, 50)]", r"line \d+: DOMAINS must be a dict"),
])  # fmt: skip
def test_a_bad_declaration_is_one_sentence(load: Load, rest: str, says: str) -> None:
    with pytest.raises(TaskError, match=says):
        load(rest=rest)


def test_a_declaration_follows_the_sizes_of_the_file_and_of_tables(load: Load) -> None:
    computed = load(rest="many = 45\nDOMAINS = {'ids': (0, many)}")
    beyond = load(rest="DOMAINS = {'ids': (0, 50000)}")  # as at a size of the file that is not judged
    assert [int(one.draw("above")[1].max()) for one in (computed, beyond)] == [44, 49]


def test_strided_and_expanded_numbers_keep_their_layout(load: Load) -> None:
    loaded = load(draw="torch.randint(0, 40, (12, 6)).t()")
    spread = load(draw="torch.randint(0, 40, (6, 1)).expand(6, 12)")
    for one, kind in itertools.product((loaded, spread), KINDS):
        natural, drawn = one.draw("own")[1], one.draw(kind)[1]
        assert drawn.stride() == natural.stride() and drawn.shape == natural.shape
