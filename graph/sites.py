"""The decision sites: which choices a gate offers and where each leads. The drawing comes from here and from nowhere else."""

from dataclasses import dataclass, field

from langgraph.graph import END


@dataclass(frozen=True)
class Site:
    """One gate of the graph."""

    asks: str
    """The policy's method."""
    choices: dict[str, str]
    """Choice to node."""
    exit: str
    """The choice taken when a budget is spent or the machinery failed."""
    spends: dict[str, str] = field(default_factory=dict)
    """Choice to the allowance it uses up: `repairs`, `rounds`, `improvements` or `widenings`."""
    needs: dict[str, str] = field(default_factory=dict)
    """Choice to its condition: `best` (a working candidate), `analysis`, `unconfirmed` (a best without a strict verdict), `refused` (the
    strict profile refuses the current candidate), or `open` (a line among the best that was not gone on with)."""
    budgeted: bool = True
    """False where going on costs nothing and stopping would waste what was reached."""


SITES: dict[str, Site] = {
    # inside a branch
    "after_evaluate": Site(
        asks="after_evaluate",
        choices={"repair": "repair", "rescue": "analyze", "check": "check", "accept": END, "give_up": END},
        exit="give_up",
        spends={"repair": "repairs", "rescue": "rounds"},
        needs={"rescue": "best", "check": "analysis"},
    ),
    "worth_optimizing": Site(
        asks="worth_optimizing", choices={"optimize": "optimize", "stop": END}, exit="stop", needs={"optimize": "analysis"}
    ),
    "after_optimize": Site(
        asks="after_optimize",
        choices={"kept": END, "again": "analyze", "broken": "analyze", "stop": END},
        exit="stop",
        spends={"again": "rounds", "broken": "rounds"},
        needs={"again": "best", "broken": "best"},
    ),
    # after the branches joined
    "after_select": Site(
        asks="after_select",
        choices={"detect": "detect", "rescue": "improve", "widen": "improve", "finish": "confirm"},
        exit="finish",
        spends={"rescue": "improvements", "widen": "widenings"},
        needs={"detect": "best", "rescue": "best", "widen": "open"},
    ),
    "after_detect": Site(asks="after_detect", choices={"tune": "tune_grid", "skip": "confirm"}, exit="skip"),
    "after_grid": Site(asks="after_stage", choices={"next": "tune_block", "stop": "confirm"}, exit="stop"),
    "after_block": Site(asks="after_stage", choices={"next": "tune_memory", "stop": "confirm"}, exit="stop"),
    "after_memory": Site(asks="after_stage", choices={"next": "confirm", "stop": "confirm"}, exit="stop"),
    "after_confirm": Site(
        asks="after_confirm",
        choices={"accept": "finish", "repair": "improve", "next_best": "confirm", "give_up": "finish"},
        exit="give_up",
        spends={"repair": "repairs"},
        needs={"repair": "refused", "next_best": "unconfirmed"},
        budgeted=False,  # the measurement is already paid for
    ),
}

LINES: dict[str, str] = {"after_select": "improve", "after_confirm": "return"}
"""What a line of work is called that a gate begins with a chosen candidate; a number follows."""

QUESTIONS: tuple[str, ...] = tuple(dict.fromkeys(site.asks for site in SITES.values()))
"""The methods that every policy has."""
