"""decide: the gate in front of every fork. Checks the budget, asks the policy, records the answer with its evidence."""

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.context import Context
from tritonsmith.graph.policies.view import Answer, Policy, View, view_of
from tritonsmith.graph.session import Session
from tritonsmith.graph.sites import LINES, SITES, Site
from tritonsmith.graph.state import BranchState, Decision, State, Update
from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.nodes.common import NodeRuntime, branch_of, context_of, emit, session_of


async def decide(gate: str, state: State | BranchState, runtime: NodeRuntime) -> Update:
    """Answer one gate. Raises UsageError when the policy answers something that the site does not offer."""
    context, session, site = context_of(runtime), session_of(state, runtime), SITES[gate]
    part = _part(state, context)
    stop = session.stop_reason(context.budget, candidates=part is None)
    spent = stop if site.budgeted else None
    width = int(getattr(context.policy, "width", 1))
    view = view_of(gate, state, context.budget, stop=stop or "", width=width, claims_from=context.claims)
    waits = session.waits(branch_of(state)) if site.budgeted else ""
    stuck = _stuck(state, session) if site.budgeted else ""
    used_up = part is not None and len(state.get("candidates", {})) >= part
    chosen = None
    if waits:  # no answer of the site: the branch ends here, and a later process asks again
        answers, chosen = [("waiting", "wait", waits)], site.exit
    elif stuck:
        answers = [("author", "stop", stuck), (site.asks, site.exit, "not asked: the author has no answer")]
    elif spent is not None or used_up:
        why = spent or f"budget: this branch has written its {count_words(part or 0, 'candidate')}"
        answers = [("budget", "stop", why), (site.asks, site.exit, f"not asked: {why}")]
    else:
        choice, reason = ask_policy(context.policy, gate, view)
        answers = [(site.asks, choice, reason)]
        allowance, missing = site.spends.get(choice), view.lacks(choice)
        if allowance and not view.left(allowance):
            answers += [("budget", site.exit, f"the policy answered {choice}, but no {allowance} are left")]
        elif missing:  # a policy's mistake must not cost the run
            answers += [("graph", site.exit, f"the policy answered {choice}, but {missing}")]
    decisions = _record(answers, view, policy_name(context.policy, view))
    for decision in decisions.values():
        emit(runtime, "decision", f"decide_{gate}", state, decision.candidate, **decision.model_dump(exclude={"candidate", "branch"}))
    update: Update = {"decisions": decisions, "choice": chosen or answers[-1][1], "elapsed": session.elapsed}
    if spent is not None and not (waits or stuck):
        update["stopped_because"] = spent
    return update | _begin_lines(gate, site, update["choice"], view)


def _begin_lines(gate: str, site: Site, choice: str, view: View) -> Update:
    """What the state keeps of the lines of work that a choice begins; nothing where it begins none."""
    if site.choices.get(choice) != "improve" or view.current is None:
        return {}
    if gate == "after_confirm":
        number = view.returns + 1
        name = f"{LINES[gate]}{number}"
        return {"returns": number, "lines": {name: view.current.id}, "opening": [name]}
    chosen = view.open_lines if choice == "widen" else (view.current.id,)
    names = [f"{LINES[gate]}{view.improvements + number}" for number in range(1, len(chosen) + 1)]
    begun: Update = {"improvements": view.improvements + len(chosen), "lines": dict(zip(names, chosen, strict=True)), "opening": names}
    return begun | ({"widenings": view.widenings + 1} if choice == "widen" else {})


def _part(state: State | BranchState, context: Context) -> int | None:
    """How many candidates a seed branch may write: an equal part, so that its path does not depend on the others' speed."""
    index, limit = state.get("index"), context.budget.candidates
    if not isinstance(index, int) or limit is None:
        return None
    each, over = divmod(limit, context.branches)
    return each + (index < over)


def _stuck(state: State | BranchState, session: Session) -> str:
    """Why only this branch cannot go on: its author wrote no first kernel."""
    branch = branch_of(state)
    return "" if branch == "main" or state.get("current") else session.fault(branch)


def ask_policy(policy: Policy, gate: str, view: View, *, way_out: str = "fix the policy, then resume the run") -> Answer:
    """The policy's choice and reason, checked against what the site offers. Raises UsageError, also where the policy itself raises."""
    site = SITES[gate]
    try:
        answer = getattr(policy, site.asks)(view)
    except (Exception, SystemExit) as error:
        why = f"{site.asks} raised {type(error).__name__}: {error}"
        raise UsageError(f"policy {policy.name}: {why}; {way_out}") from error
    if not (isinstance(answer, tuple) and len(answer) == 2 and all(isinstance(part, str) for part in answer)):
        raise UsageError(f"policy {policy.name}: {site.asks} must answer (choice, reason), two strings, not {answer!r}; {way_out}")
    if answer[0] not in site.choices:
        raise UsageError(f"policy {policy.name}: {site.asks} answered {answer[0]!r}; it may answer {', '.join(site.choices)}; {way_out}")
    return answer


def policy_name(policy: Policy, view: View) -> str:
    """Whose answer it is: a fork's policy names the parent's where it repeats what the parent decided."""
    named = getattr(policy, "name_at", None)
    return str(named(view)) if callable(named) else policy.name


def _record(answers: list[tuple[str, str, str]], view: View, policy: str) -> dict[str, Decision]:
    made = [
        Decision(
            id=f"{view.branch}/{view.step + number:02d}",
            site=site,
            choice=choice,
            reason=reason,
            evidence=view.evidence(),
            policy=policy,
            branch=view.branch,
            candidate=view.current.id if view.current else None,
            gate=view.gate,
        )
        for number, (site, choice, reason) in enumerate(answers)
    ]
    return {decision.id: decision for decision in made}


def choice_of(state: State | BranchState) -> str:
    """What the last gate answered; the conditional edges read it."""
    return state["choice"]
