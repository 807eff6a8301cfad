"""Which author a `--model` names."""

import re
from collections.abc import Callable
from dataclasses import replace

from tritonsmith.author.built_in import RecipeAuthor
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.nodes.authors.model import ModelAuthor
from tritonsmith.nodes.authors.several import SeveralAuthors
from tritonsmith.nodes.chat.connect import IN_TURN, Models, open_chat, split_names
from tritonsmith.nodes.chat.ledger import load_prices
from tritonsmith.nodes.chat.records import Chat, Role
from tritonsmith.nodes.tape.chats import ReplayedChat
from tritonsmith.nodes.tape.tape import Tape
from tritonsmith.prompts.author import Author

_LIST = re.compile(",(?! )")
"""Between the names of several authors; the roles of one author have a blank after the comma."""
_OPTIONS: dict[Role, str] = {"author": "--model", "analyst": "--analyst-model", "repair": "--repair-model"}


def make_author(models: Models | str = "offline", base_url: str | None = None, *, wrap: Callable[[Chat], Chat] | None = None) -> Author:
    """`offline` is the built-in author; every other name asks models; `wrap` is put around each. Raises UsageError."""
    if isinstance(models, str):
        models = Models(author=models, base_url=base_url)
    turns, names = split_names(models.author)
    if len(names) > 1:
        return SeveralAuthors([_make_one(replace(models, author=name), wrap) for name in names], turns=turns)
    given = {"author": models.author, "analyst": models.analyst, "repair": models.repair}
    if models.prices is not None:
        load_prices(models.prices)  # a wrong name is reported, even where no model is asked
    if models.author == "offline":
        for role, option in _OPTIONS.items():
            if role != "author" and given[role] is not None:
                raise UsageError(f"{option} {given[role]}: the built-in author asks no model; name one with --model too")
        return RecipeAuthor()
    chats: dict[Role, Chat | None] = {}
    for role, option in _OPTIONS.items():
        model = given[role]
        chat = None if model is None else open_chat(model, models, option)
        chats[role] = wrap(chat) if chat is not None and wrap is not None else chat
    author = chats["author"]
    if author is None:
        raise UsageError("--model: name an author")
    return ModelAuthor(author, analyst=chats["analyst"], repair=chats["repair"])


def _make_one(models: Models, wrap: Callable[[Chat], Chat] | None) -> Author:
    """One of several authors; settings for other roles are those of the ones that ask models."""
    return make_author(replace(models, analyst=None, repair=None) if models.author == "offline" else models, wrap=wrap)


def make_replaying_author(tape: Tape, *, wrap: Callable[[Chat], Chat] = lambda chat: chat) -> Author:
    """The author that says what was recorded; it needs no key and no network; `wrap` is put around the recording."""
    names = _LIST.split(tape.model.removeprefix(IN_TURN))
    if len(names) > 1:
        return SeveralAuthors([_replay_one(name, tape, wrap) for name in names], turns=tape.model.startswith(IN_TURN))
    return _replay_one(tape.model, tape, wrap)


def _replay_one(name: str, tape: Tape, wrap: Callable[[Chat], Chat]) -> Author:
    if name == "offline":
        return RecipeAuthor()
    chat = ReplayedChat(tape)
    chat.name = name
    return ModelAuthor(wrap(chat))
