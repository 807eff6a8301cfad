"""The charts of one run."""

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from tritonsmith.cli.report.charts import COLOURS, chart, wants_log
from tritonsmith.cli.report.run.records import Point
from tritonsmith.graph.storage.outcome import count_words, digits

_MARKS = {"seed": ("o", "seed"), "repair": ("s", "repair"), "optimize": ("D", "optimize"), "tune": ("^", "tuning")}
"""Marks by stage; the three tuning stages share one."""
_HOUR, _MINUTE = 3600.0, 60.0


def score_chart(points: Sequence[Point], winner: str | None, baseline: str, kind: str) -> Markup | None:
    """Every candidate's score against the seconds of the run, with the best so far; None when no candidate has a score."""
    scored = [point for point in points if point.score is not None and point.score > 0]
    if not scored:
        return None
    scores = [point.score for point in scored if point.score is not None]
    failed = len(points) - len(scored)
    text = (
        f"{count_words(len(scored), 'candidate')} with a score from {digits(min(scores))} to {digits(max(scores))}, {failed} without; "
        f"the dashed line is the baseline {baseline} at 1.0. The table of candidates has every figure."
    )

    def draw(axes: Axes, wide: bool) -> dict[str, str]:
        unit, seconds = _unit(max(point.seconds for point in points))
        log = wants_log([*scores, 1.0])
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0) if max(scores) / min(scores) < 2000 else (1.0,)))
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}x"))
        low, high = _limits([*scores, 1.0], log, room=bool(failed))
        axes.set_ylim(low, high)
        axes.set_xlim(0, 1.04 * max(point.seconds for point in points) / seconds or 1)
        axes.grid(axis="y")
        axes.set_xlabel(f"{unit} of the run")
        axes.set_ylabel(f"score, {kind}")
        axes.axhline(1.0, color=COLOURS["muted"], linestyle=(0, (4, 3)), linewidth=1, label=f"baseline {baseline[:24]}")
        steps = [(point.seconds / seconds, point.best) for point in points if point.best is not None]
        if steps:
            steps.append((points[-1].seconds / seconds, steps[-1][1]))
            axes.step([at for at, _ in steps], [value for _, value in steps], where="post", color=COLOURS["accent"], linewidth=1.6)
        titles = {f"p{number}": _title(point) for number, point in enumerate(points)}
        for number, point in enumerate(points):
            _mark(axes, point, f"p{number}", seconds, low, point.candidate == winner)
        _legend(axes, points, wide, bool(failed))
        return titles

    title = "Score over time"
    return chart("score", title, text, draw)


def _mark(axes: Axes, point: Point, gid: str, seconds: float, floor: float, wins: bool) -> None:
    works = point.score is not None and point.score > 0
    shape = _shape(point.stage)[0] if works else "x"
    colour = COLOURS["good" if wins else "accent" if works else "bad"]
    height = point.score if works and point.score is not None else floor
    axes.plot(
        [point.seconds / seconds], [height], marker=shape, markersize=9 if wins else 6, color=colour, markeredgewidth=1.4,
        markerfacecolor=colour if wins or not works else COLOURS["paper"], gid=gid, clip_on=False, zorder=4 if wins else 3,
    )  # fmt: skip
    if wins and point.score is not None:
        axes.annotate(
            f"{digits(point.score)}x", (point.seconds / seconds, height), xytext=(-8, 4), textcoords="offset points", ha="right",
            va="bottom", color=COLOURS["good"], weight="bold",
        )  # fmt: skip


def _legend(axes: Axes, points: Sequence[Point], wide: bool, failed: bool) -> None:
    shapes = dict.fromkeys(_shape(point.stage) for point in points if point.score is not None)
    for shape, name in shapes:
        axes.plot([], [], marker=shape, linestyle="", color=COLOURS["accent"], markerfacecolor=COLOURS["paper"], markersize=6, label=name)
    if failed:
        axes.plot([], [], marker="x", linestyle="", color=COLOURS["bad"], markersize=6, label="failed")
    axes.plot([], [], color=COLOURS["accent"], linewidth=1.6, label="best so far")
    figure = axes.get_figure(root=True)
    if figure is not None:
        layout = {"ncols": 7 if wide else 2, "fontsize": 9, "handletextpad": 0.3, "columnspacing": 1.0, "borderpad": 0}
        figure.legend(loc="outside upper left", **layout)


def _shape(stage: str) -> tuple[str, str]:
    return _MARKS["tune" if stage.startswith("tune") else stage if stage in _MARKS else "seed"]


def _title(point: Point) -> str:
    score = f"{digits(point.score)}x" if point.score is not None else point.status
    return f"{point.candidate} ({point.stage}): {score} after {point.seconds:.1f} s"


def _unit(most: float) -> tuple[str, float]:
    if most >= 3 * _HOUR:
        return "hours", _HOUR
    return ("minutes", _MINUTE) if most >= 3 * _MINUTE else ("seconds", 1.0)


def _limits(values: list[float], log: bool, room: bool) -> tuple[float, float]:
    """Ends of the axis; the lower one leaves room for the marks of candidates that failed."""
    if log:
        return min(values) / (2.2 if room else 1.4), max(values) * 1.6
    return 0.0, max(values) * 1.15
