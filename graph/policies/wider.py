"""Presets that go on where `default` stops: nearer to the floor of the task, and with several lines of work."""

import math

from tritonsmith.graph.policies.default import GOOD_SCORE, Default, score_words
from tritonsmith.graph.policies.view import Answer, View

NEAR_FLOOR = 0.85
"""Share of its floor from which on a kernel is not analysed any more."""


class ToTheFloor(Default):
    """`default`, and analysis goes on beyond 1.0 while the best kernel is below 85 % of its floor.

    The notes, 3 and 4: they stop at 1.0, where a kernel is as fast as its baseline. The floor says what a card needs at the least. A kernel
    far from it is analysed again while a round is left, and rewritten while at least 10 % is predicted to be gained. Where no floor is
    known, the rules of `default` hold.
    """

    name = "to-the-floor"
    encodes: tuple[int, ...] = (3, 4)
    race_below: float = math.inf

    def seed_works(self, view: View) -> Answer:
        """Below 1.0 as in `default`; from there on by the distance to the floor."""
        floor = view.best_floor
        if (view.score or 0.0) < GOOD_SCORE or floor is None:
            return super().seed_works(view)
        said = f"{score_words(view.score)}, {floor.words}"
        if floor.share >= NEAR_FLOOR:
            return "accept", f"{said}: near enough"
        if not view.rounds_left:
            return "accept", f"{said}, but no analysis is left"
        return "rescue", f"{said}: below {NEAR_FLOOR:.0%}, analyse the algorithm"

    def after_optimize(self, view: View) -> Answer:
        """Where `default` is content, another round while the best is far from its floor."""
        choice, reason = super().after_optimize(view)
        floor = view.best_floor
        if choice == "again" and floor is not None and floor.share >= NEAR_FLOOR and view.works:
            return "kept", f"the best reaches {floor.words}: no further round"
        if choice != "kept" or floor is None or floor.share >= NEAR_FLOOR or not view.rounds_left:
            return choice, reason
        return "again", f"promise kept, and the best reaches {floor.words}: below {NEAR_FLOOR:.0%}, another round"


class Beam(ToTheFloor):
    """The best three lines of work go on side by side, one analysis each at a time, instead of one line to its end.

    The notes, 6: the best of the pool goes on. Here the best three do, in rounds: each is analysed and rewritten once, all results join the
    pool, and the best three of it go on. A candidate goes on once. Rounds end with the budget's number of them, when the best
    reaches 85 % of its floor, or when every one of the best was gone on with. A candidate whose compiled code is that of an earlier
    working one is dropped before it costs a measurement. `beam:N` keeps N lines.
    """

    name = "beam"
    width = 3
    drop_twins = True
    encodes = (6,)

    def __init__(self, width: int | None = None) -> None:
        """As many lines as asked for; three by default."""
        if width is not None:
            self.width, self.name = width, f"beam:{width}"

    def seed_works(self, view: View) -> Answer:
        """Seeds are compared first."""
        return "accept", f"{score_words(view.score)}; the best lines go on after all seeds are judged"

    def after_optimize(self, view: View) -> Answer:
        """A line ends with its one rewrite."""
        if view.works:
            kept = f"promise {'kept' if view.promise is None or view.promise.kept else 'broken'}"
            return "kept", f"{kept}, {score_words(view.score)}: it is compared with the other lines"
        choice, reason = super().after_optimize(view)
        return ("stop", reason) if choice in ("again", "broken") else (choice, reason)

    def after_select(self, view: View) -> Answer:
        """Another round while there is something to go on with."""
        floor = view.best_floor
        far = floor is None or floor.share < NEAR_FLOOR
        if view.best is None or view.returns or not far or not view.open_lines or not view.left("widenings"):
            return super().after_select(view)
        reached = f", which reaches {floor.words}" if floor else ""
        lines = ", ".join(view.open_lines)
        best = f"best is {view.best.id} ({score_words(view.best_score)}){reached}"
        return "widen", f"round {view.widenings + 1}: {lines} go on side by side; {best}"
