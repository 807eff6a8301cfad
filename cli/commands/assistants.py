"""`tritonsmith assistants`: the policy presets as assistants of a LangGraph server."""

from typing import Annotated

import typer

from tritonsmith.cli.options import JsonOption, out, print_json
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.tasks.files import parse_overrides

UrlOption = Annotated[str | None, typer.Option(help="Address of the server; default: where `langgraph dev` listens on this machine.")]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--setting", metavar="NAME=VALUE", help="A setting of every assistant, such as model=openai:NAME or seeds=3; repeatable."),
]
PoliciesOption = Annotated[str | None, typer.Option("--policies", metavar="A,B,...", help="Presets to make assistants of; default: all.")]


def assistants(
    url: UrlOption = None, setting: SettingOption = None, policies: PoliciesOption = None, as_json: JsonOption = False
) -> None:
    """Make one assistant per policy preset on a LangGraph server; what is there already is kept, or brought up to date."""
    from tritonsmith.graph.policies.presets import PRESETS
    from tritonsmith.graph.server.assistants import DEV_SERVER, make_assistants

    url = url or DEV_SERVER
    try:
        settings = parse_overrides(setting or [])
    except UsageError as error:
        raise UsageError(str(error).replace("--set ", "--setting ").replace("seq_len=16", "seeds=3")) from None
    names = tuple(name.strip() for name in policies.split(",") if name.strip()) if policies else tuple(PRESETS)
    made = make_assistants(url, settings, names)
    if as_json:
        print_json({"url": url, "assistants": [assistant.model_dump(mode="json") for assistant in made]})
        return
    for assistant in made:
        out.print(f"{assistant.name:<14} {assistant.done:<8} {assistant.id}")
