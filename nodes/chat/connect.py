"""Models from the names of the command line: `openai:NAME` at an address, with a key from the environment."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from langchain_core.language_models import BaseChatModel
from pydantic import SecretStr

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.nodes.chat.defaults import KEY, REQUEST_SECONDS
from tritonsmith.nodes.chat.handoff import HandoffChat
from tritonsmith.nodes.chat.ledger import Prices, load_prices
from tritonsmith.nodes.chat.model import ModelChat, Patience, Source
from tritonsmith.nodes.chat.records import Chat
from tritonsmith.nodes.chat.wire import note_response

IN_TURN = "turns:"
"""How a list of authors begins that take turns."""
OPENAI = "https://api.openai.com/v1"
"""The address that is asked unless a setting names another one; the only one that needs a key."""


@dataclass(frozen=True)
class Models:
    """Which models a run asks: names as on the command line, LangChain models, or functions that make one."""

    author: str | Source = "offline"
    """`offline` (the built-in recipes), `openai:NAME`, `handoff:DIR`, or a model; several names with commas between them.
    `openai:NAME@http://host:8000/v1` has an address of its own."""
    analyst: str | Source | None = None
    """None: the author's."""
    repair: str | Source | None = None
    """None: the author's."""
    base_url: str | None = None
    key_env: str = KEY
    """Name of the environment variable with the key."""
    seconds: float = REQUEST_SECONDS
    """The longest that one request may take."""
    prices: str | Path | None = None
    """The user's price table."""
    patience: Patience | None = None

    @property
    def patient(self) -> Patience:
        """How failed tries are repeated."""
        return self.patience or Patience(request=self.seconds)


def split_names(given: str | Source | None) -> tuple[bool, tuple[str | Source, ...]]:
    """Whether authors take turns, and their names: `A,B` is side by side, `turns:A,B` in turn. Raises UsageError for an empty name."""
    if not isinstance(given, str):
        return False, () if given is None else (given,)
    turns = given.startswith(IN_TURN)
    names = tuple(name.strip() for name in given.removeprefix(IN_TURN).split(","))
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(f"--model {given}: name every author once, such as openai:A,openai:B or turns:offline,openai:A")
    if turns and len(names) < 2:
        raise UsageError(f"--model {given}: one author cannot take turns; name several, with commas between them")
    return turns, names


def open_chat(given: str | Source, models: Models, option: str = "--model") -> Chat:
    """The chat that answers for a role. Raises UsageError with a sentence that names the option."""
    prices = load_prices(models.prices)
    if not isinstance(given, str):
        name = _name_of(given)
        return ModelChat(given, name, price=prices.of(name), patience=models.patient)
    provider, _, name = given.partition(":")
    if provider == "openai" and name:
        return _connect(name, models, option, prices)
    if provider == "handoff" and name:
        return HandoffChat(Path(name))
    raise UsageError(f"{option} {given}: no such author; use offline or openai:NAME (--base-url names other servers), or handoff:DIR")


def web_address(address: str, option: str, example: str) -> SplitResult:
    """The parts of a web address. Raises UsageError, which names the option, where it is none."""
    try:
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:  # asking for a port reads it
            return parts
    except ValueError:  # a bracket that is left open, a port that is no number
        pass
    raise UsageError(f"{option} {address}: write the whole address, such as {example}")


def _split_address(name: str, option: str) -> tuple[str, str]:
    """`NAME@http://host:8000/v1` as name and address; an empty address where there is none. Raises UsageError for one with a secret."""
    bare, at, address = name.partition("@http")
    if not at:
        return name, ""
    parts = web_address(f"http{address}", f"{option} openai:{bare}@", "http://localhost:8000/v1")
    if parts.password or parts.query:
        raise UsageError(f"{option} openai:{bare}: an address in a name is kept with the run; give one with a secret as --base-url")
    return bare, f"http{address}"


def _connect(name: str, models: Models, option: str, prices: Prices) -> ModelChat:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - a second, which a run without such a model does not spend
    from openai import DefaultHttpxClient  # noqa: PLC0415 - likewise

    asked, name, own = name, *_split_address(name, option)
    place = own or models.base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE") or OPENAI
    address = web_address(place, "--base-url", "http://localhost:8000/v1")
    key = os.environ.get(models.key_env, "").strip()
    if not key and place == OPENAI:
        way_out = "name a server with --base-url, or use --model offline"
        raise UsageError(f"{option} openai:{asked}: set {models.key_env} to your key, {way_out}")
    if not key.isascii():
        raise UsageError(f"{models.key_env}: the key has characters that no key has; copy it again")
    chat = ChatOpenAI(
        model=name,
        base_url=place,
        api_key=SecretStr(key or "none"),  # servers of one's own often want none
        timeout=models.patient.request,
        max_retries=0,  # ours are enough
        http_client=DefaultHttpxClient(event_hooks={"response": [note_response]}),
    )
    shown = f"{address.scheme}://{address.hostname}{f':{address.port}' if address.port else ''}{address.path}"  # without a password in it
    secrets = [part for part in (key, address.password) if part]
    return ModelChat(
        chat, f"openai:{asked}", place=shown, key=models.key_env, secrets=secrets, price=prices.of(name), patience=models.patient
    )


def _name_of(model: Source) -> str:
    """The name of a model that was passed in: its provider's name for it, else its class."""
    own = getattr(model, "model_name", None) or getattr(model, "model", None)
    if isinstance(own, str) and own:
        return own
    return type(model).__name__ if isinstance(model, BaseChatModel) else getattr(model, "__name__", "factory")
