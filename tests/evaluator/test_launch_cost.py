"""What a launch costs is one figure wherever it is told."""

import re

from project import ROOT
from tritonsmith.author.examples import prompt_for
from tritonsmith.evaluator.cards import launch_cost
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.cards.estimate import estimate_launches
from tritonsmith.evaluator.cards.launch_cost import LAUNCH_AS_CALLED, LAUNCH_IN_GRAPH, count_launch_seconds
from tritonsmith.evaluator.schema import LaunchFacts, Task, TaskFacts
from tritonsmith.prompts.author import Brief


def test_the_page_has_the_figures_of_the_code() -> None:
    page = (ROOT / "docs" / "timing.md").read_text()
    table = re.search("<!-- launch costs: begin -->(.*)<!-- launch costs: end -->", page, re.DOTALL)
    assert table is not None
    told = [float(number) for number in re.findall(r"\| ([\d.]+) \|\n", table[1])]
    names = ("LAUNCH_AS_CALLED", "LAUNCH_IN_GRAPH", "OPERATOR_AS_CALLED", "OPERATOR_INSIDE")
    assert told == [round(getattr(launch_cost, name) * 1e6, 3) for name in names]


def test_prompts_have_them_too() -> None:
    card = named_card("h200").model_copy(update={"present": True})
    task = Task(name="t", path="t.py", source="class Model(nn.Module):\n    pass\n")
    text = prompt_for("seed", Brief(task=task, facts=TaskFacts(), hardware=card)).text
    as_called, in_graph = (f"{seconds * 1e6:.3g} microseconds" for seconds in (LAUNCH_AS_CALLED, LAUNCH_IN_GRAPH))
    assert f"a launch takes {as_called}" in text and f"On the card a launch takes {in_graph}." in text


def test_the_hold_hides_the_host_of_few_launches_and_a_graph_of_all() -> None:
    assert count_launch_seconds(3) == 3 * LAUNCH_IN_GRAPH
    many = count_launch_seconds(3000)
    assert count_launch_seconds(3000, in_graph=True) == 3000 * LAUNCH_IN_GRAPH < many < 3000 * LAUNCH_AS_CALLED
    assert estimate_launches(LaunchFacts(launches_per_forward=3000, triton_launches=3000)) == many * 1e3
