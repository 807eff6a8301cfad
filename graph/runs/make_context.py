"""A context for scripts that invoke the compiled graph themselves, without a run's folder."""

from pathlib import Path
from typing import get_args

from tritonsmith.evaluator.caller.local import BaselineSet, open_evaluator
from tritonsmith.evaluator.caller.questions.compiler_seed import Compiler
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Allow
from tritonsmith.graph.context import Context
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.policies.view import Policy
from tritonsmith.graph.runs.players import open_players
from tritonsmith.graph.searches import Tuning
from tritonsmith.graph.state import Budget
from tritonsmith.graph.storage.folder import TAPE
from tritonsmith.graph.storage.store import Store
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.chat.defaults import KEY, REQUEST_SECONDS
from tritonsmith.nodes.chat.model import Source
from tritonsmith.prompts.author import Author


def make_context(
    *,
    model: str | Source = "offline",
    analyst_model: str | Source | None = None,
    repair_model: str | Source | None = None,
    base_url: str | None = None,
    key_env: str = KEY,
    model_timeout: float = REQUEST_SECONDS,
    prices: str | Path | None = None,
    target: str = "auto",
    policy: str | Policy = "default",
    seeds: int = 2,
    budget: Budget | None = None,
    out: str | Path | None = None,
    author: Author | None = None,
    evaluator: Evaluator | None = None,
    sandbox: str = "auto",
    baselines: BaselineSet = "four",
    allow: str | Allow = Allow.HYBRID,
    tuning: str | Tuning | None = None,
    seed_from: Compiler | None = None,
) -> Context:
    """A context for scripts that invoke the compiled graph themselves.

    Use it in a `with` block, which ends the evaluator's processes. A model is a name as on the command line, a LangChain chat model, or a
    function that makes one. Without `out` the kernels lie in a temporary folder that goes with the context. Raises UsageError.
    """
    if allow not in list(Allow):
        raise UsageError(f"--allow {allow}: choose one of {', '.join(Allow)}")
    if tuning is not None and tuning not in list(Tuning):
        raise UsageError(f"--tuning {tuning}: choose one of {', '.join(Tuning)}")
    if seed_from not in (None, *get_args(Compiler)):
        raise UsageError(f"--seed-from {seed_from}: choose one of {', '.join(get_args(Compiler))}")
    models = Models(model, analyst_model, repair_model, base_url, key_env, model_timeout, prices)
    players = open_players(models, author=author, budget=budget)
    chosen = load_policy(policy) if isinstance(policy, str) else policy
    store = Store(Path(out) if out is not None else None)
    tape = store.root / TAPE if players.may_wait else None
    judge = players.evaluator(
        tape, target, lambda: evaluator or open_evaluator(target, store.root / "raw", sandbox=sandbox, baselines=baselines)
    )
    limits, may_win = budget or Budget(), Allow(allow)
    return Context(
        author=players.author, evaluator=judge, policy=chosen, store=store, budget=limits, seeds=seeds, allow=may_win,
        tuning=None if tuning is None else Tuning(tuning), seed_from=seed_from,
    )  # fmt: skip
