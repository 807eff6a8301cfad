"""`tritonsmith policies`: the presets with what they stand for, one policy's answers, and the conformance test for a user's own."""

from collections import Counter
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tritonsmith.cli.options import JsonOption, out, print_json
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.conformance.check import ConformanceReport, check_named
from tritonsmith.graph.conformance.situations import differing_sites, situations
from tritonsmith.graph.policies.load import about, load_policy
from tritonsmith.graph.policies.presets import PRESETS
from tritonsmith.graph.policies.view import Policy
from tritonsmith.nodes.decide import ask_policy

ShowOption = Annotated[str | None, typer.Option("--show", metavar="POLICY", help="What one policy answers: a preset or file.py:ClassName.")]
CheckOption = Annotated[
    str | None, typer.Option("--check", metavar="POLICY", help="Put a policy to the conformance test; exit code 1 when it breaks a rule.")
]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print the presets as Markdown, as in docs/policies.md.")]

_FILE_WIDTH = 160
_MOST_OF_A_REASON = 100
"""Characters of a reason in a table."""


def policies(show: ShowOption = None, check: CheckOption = None, markdown: MarkdownOption = False, as_json: JsonOption = False) -> None:
    """List the policy presets with the sentence of the notes that each stands for; --show and --check take any policy."""
    if sum((show is not None, check is not None, markdown)) > 1:
        raise UsageError("--show, --check and --markdown: choose one of them")
    if check is not None:
        _print_check(check_named(check, "--check"), as_json)
    elif show is not None:
        _print_policy(load_policy(show, "--show"), as_json)
    elif markdown:
        typer.echo(render_presets(), nl=False)
    elif as_json:
        print_json({"policies": [describe_policy(load_policy(name)) for name in PRESETS]})
    else:
        _print_presets()


def describe_policy(policy: Policy) -> dict[str, Any]:
    """A policy in plain values."""
    facts = about(policy)
    return {
        "name": facts.name, "summary": facts.summary, "notes": facts.notes, "mechanisms": list(facts.encodes), "seeds": facts.seeds,
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
    if differs:
        return f"Differs from `default` at {', '.join(differs)}."
    return "Answers like `default` everywhere; only the number of seeds differs."


def _print_presets() -> None:
    page = out if out.is_terminal else Console(width=_FILE_WIDTH)
    table = Table(box=box.SIMPLE, title="Policies", pad_edge=False)
    for column in ("policy", "what it does", "the notes", "differs from default at"):
        table.add_column(column, overflow="fold", no_wrap=column == "policy")
    for name in PRESETS:
        facts = describe_policy(load_policy(name))
        sites = ", ".join(facts["differs_from_default_at"]) or ("" if name == "default" else "the number of seeds")
        table.add_row(name, facts["summary"], _format_numbers(facts["mechanisms"]), sites)
    page.print(table)
    out.print("The notes' mechanisms by number, and how to write a policy of your own: docs/policies.md.")
    out.print("One policy's answers: tritonsmith policies --show NAME. Test your own: tritonsmith policies --check file.py:ClassName.")


def _format_numbers(numbers: list[int]) -> str:
    whole = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]} to {numbers[-1]}" if whole else ", ".join(map(str, numbers))


def _ask_everywhere(policy: Policy) -> list[dict[str, str]]:
    """Its answer in every situation. Raises UsageError where it has none."""
    answers = []
    for situation in situations():
        choice, reason = ask_policy(policy, situation.gate, situation.view, way_out="fix the policy")
        answers.append({"site": situation.site, "gate": situation.gate, "situation": situation.name, "choice": choice, "reason": reason})
    return answers


def _print_policy(policy: Policy, as_json: bool) -> None:
    answers = _ask_everywhere(policy)
    facts = describe_policy(policy)
    if as_json:
        print_json({**facts, "answers": answers})
        return
    out.print(f"[bold]{escape(policy.name)}[/]: {escape(facts['summary'] or 'its class has no docstring')}")
    if facts["notes"]:
        out.print(facts["notes"], markup=False)
    if policy.seeds:
        out.print(f"Seeds: {policy.seeds}.")
    out.print(_describe_difference(facts).replace("`", ""))
    page = out if out.is_terminal else Console(width=_FILE_WIDTH)
    table = Table(box=box.SIMPLE, title=f"Answers in {len(answers)} situations", pad_edge=False)
    for column in ("site", "choice", "situations", "for example", "with the reason"):
        table.add_column(column, overflow="fold", justify="right" if column == "situations" else "left")
    counts = Counter((answer["site"], answer["choice"]) for answer in answers)
    for site, choice in counts:
        first = next(answer for answer in answers if (answer["site"], answer["choice"]) == (site, choice))
        table.add_row(site, choice, str(counts[site, choice]), first["situation"], escape(first["reason"][:_MOST_OF_A_REASON]))
    page.print(table)


def _print_check(report: ConformanceReport, as_json: bool) -> None:
    found = report.violations
    if as_json:
        answer = {"policy": report.policy.name, "conforms": not found, "situations": report.situations, "runs": report.runs}
        print_json({**answer, "violations": [violation.model_dump(mode="json") for violation in found]})
    else:
        for violation in found:
            out.print(str(violation), markup=False)
        ends = "conforms" if not found else f"breaks {len(found)} {'rule' if len(found) == 1 else 'rules'}"
        how = f"asked in {report.situations} situations, driven through {report.runs} runs"
        out.print(f"Policy {report.policy.name} {ends}: {how}.", markup=False)
    raise typer.Exit(1 if found else 0)
