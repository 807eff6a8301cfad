"""The presets, one policy's answers, and the outcome of the conformance test, for a reader and as JSON."""

from collections import Counter
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from tritonsmith.cli.options import choose_page, out, print_json
from tritonsmith.graph.conformance.check import ConformanceReport
from tritonsmith.graph.conformance.situations import differing_sites, situations
from tritonsmith.graph.policies.load import about, load_policy
from tritonsmith.graph.policies.presets import PRESETS
from tritonsmith.graph.policies.view import Policy
from tritonsmith.graph.searches import Tuning
from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.nodes.decide import ask_policy

_FILE_WIDTH = 160
_MOST_OF_A_REASON = 100
"""Characters of a reason in a table."""


def describe_policy(policy: Policy) -> dict[str, Any]:
    """A policy in plain values."""
    facts = about(policy)
    return {
        "name": facts.name, "summary": facts.summary, "notes": facts.notes, "mechanisms": list(facts.encodes), "seeds": facts.seeds,
        "tuning": policy.tuning.value, "joint": policy.joint, "width": policy.width, "drop_twins": policy.drop_twins,
        "differs_from_default_at": differing_sites(load_policy("default"), policy),
    }  # fmt: skip


def render_presets() -> str:
    """Every preset as a section of Markdown."""
    lines: list[str] = []
    for name in PRESETS:
        facts = describe_policy(load_policy(name))
        seeds = f" Seeds: {facts['seeds']}." if facts["seeds"] else ""
        lines += [f"### `{name}`", "", f"{facts['summary']}{seeds}", "", facts["notes"], "", f"*{_describe_difference(facts)}*", ""]
    return "\n".join(lines)


def _describe_difference(facts: dict[str, Any]) -> str:
    differs = [f"`{site}`" for site in facts["differs_from_default_at"]]
    if facts["name"] == "default":
        return "All other presets are compared with it."
    settings = [f"variants come from `{facts['tuning']}`"] if facts["tuning"] in (Tuning.MODEL, Tuning.BOTH) else []
    settings += ["one search covers all three stages"] if facts["joint"] else []
    settings += [f"{facts['width']} lines of work go on"] if facts["width"] > 1 else []
    settings += ["equal compiled code is measured once"] if facts["drop_twins"] else []
    settings += ["the number of seeds differs"] if facts["seeds"] and not differs else []
    if differs:
        also = f"; {' and '.join(settings)}" if settings else ""
        return f"Differs from `default` at {', '.join(differs)}{also}."
    return f"Answers like `default` everywhere; only {' and '.join(settings)}."


def print_presets(as_json: bool) -> None:
    """Print what each preset stands for."""
    if as_json:
        print_json({"policies": [describe_policy(load_policy(name)) for name in PRESETS]})
        return
    table = Table(box=box.SIMPLE, title="Policies", pad_edge=False)
    for column in ("policy", "what it does", "the notes", "differs from default at"):
        table.add_column(column, overflow="fold", no_wrap=column == "policy")
    for name in PRESETS:
        facts = describe_policy(load_policy(name))
        sites = ", ".join(facts["differs_from_default_at"]) or ("" if name == "default" else "the number of seeds")
        table.add_row(name, facts["summary"], _format_numbers(facts["mechanisms"]), sites)
    choose_page(_FILE_WIDTH).print(table, soft_wrap=False)
    out.print("The notes' mechanisms by number, and how to write a policy of your own: docs/policies.md.")
    out.print("One policy's answers: tritonsmith policies --show NAME. Test your own: tritonsmith policies --check file.py:ClassName.")


def _format_numbers(numbers: list[int]) -> str:
    whole = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]} to {numbers[-1]}" if whole else ", ".join(map(str, numbers))


def ask_everywhere(policy: Policy) -> list[dict[str, str]]:
    """Its answer in every situation. Raises UsageError where it has none."""
    answers = []
    for situation in situations():
        choice, reason = ask_policy(policy, situation.gate, situation.view, way_out="fix the policy")
        answers.append({"site": situation.site, "gate": situation.gate, "situation": situation.name, "choice": choice, "reason": reason})
    return answers


def print_policy(policy: Policy, as_json: bool) -> None:
    """Print what one policy answers, choice by choice. Raises UsageError where it has no answer."""
    answers = ask_everywhere(policy)
    facts = describe_policy(policy)
    if as_json:
        print_json({**facts, "answers": answers})
        return
    out.print(Text.assemble((policy.name, "bold"), f": {facts['summary'] or 'its class has no docstring'}"))
    if facts["notes"]:
        out.print(facts["notes"])
    if policy.seeds:
        out.print(f"Seeds: {policy.seeds}.")
    out.print(_describe_difference(facts).replace("`", ""))
    table = Table(box=box.SIMPLE, title=f"Answers in {len(answers)} situations", pad_edge=False)
    for column in ("site", "choice", "situations", "for example", "with the reason"):
        table.add_column(column, overflow="fold", justify="right" if column == "situations" else "left")
    counts = Counter((answer["site"], answer["choice"]) for answer in answers)
    for site, choice in counts:
        first = next(answer for answer in answers if (answer["site"], answer["choice"]) == (site, choice))
        table.add_row(site, choice, str(counts[site, choice]), first["situation"], first["reason"][:_MOST_OF_A_REASON])
    choose_page(_FILE_WIDTH).print(table, soft_wrap=False)


def print_check(report: ConformanceReport, as_json: bool) -> None:
    """Print the rules that a policy breaks."""
    found = report.violations
    if as_json:
        answer = {"policy": report.policy.name, "conforms": not found, "situations": report.situations, "runs": report.runs}
        print_json({**answer, "violations": [violation.model_dump(mode="json") for violation in found]})
        return
    for violation in found:
        out.print(str(violation))
    ends = "conforms" if not found else f"breaks {len(found)} {'rule' if len(found) == 1 else 'rules'}"
    how = f"asked in {count_words(report.situations, 'situation')}, driven through {count_words(report.runs, 'run')}"
    out.print(f"Policy {report.policy.name} {ends}: {how}.")
