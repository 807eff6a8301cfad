"""The charts of an experiment. Colour and mark say the policy, the same in every chart."""

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, StrMethodFormatter

from tritonsmith.benchmarks.ablation.schema import SEED_BINS, Ablation, IntervalEstimate, Rule
from tritonsmith.benchmarks.ablation.wording import ON_PAGE
from tritonsmith.cli.report.ablation.views import series
from tritonsmith.cli.report.charts import COLOURS, SERIES, chart, wants_log

_MARKS = "osD^vPX*"
_ROW = 0.105
"""Height of one row of a forest, as a share of a chart's."""

Line = tuple[str, IntervalEstimate | None, int]
"""Label, figure and number of the series; a line without a figure is the heading of those that follow."""


def charts(tables: Ablation) -> dict[str, Markup]:
    """Charts by the key of the sheet that they stand with."""
    names = series(tables)
    made = {
        "policies": _forest(
            "policies", "Geometric means", [(row.policy, row.geomean[Rule.FLOOR], names.index(row.policy)) for row in tables.policies]
        ),
        "tasks": _forest("tasks", "Mean on each task", _by_task(tables, names)),
        "fast": _curves(tables, names),
        "pairs": _forest(
            "pairs", "Ratio of scores",
            [(f"{row.policy} / {row.against}", row.ratio, names.index(row.policy)) for row in tables.pairs if row.rule is Rule.FLOOR],
        ),
        "attribution": _forest("attribution", "What each part gives", [(row.part, row.ratio, 0) for row in tables.attribution]),
        "tuning": _forest("tuning", "Variants of tuning", _variants(tables)),
        "seeds": _histogram(tables),
    }  # fmt: skip
    return {key: svg for key, svg in made.items() if svg is not None}


def _by_task(tables: Ablation, names: Sequence[str]) -> list[Line]:
    """The policies under the name of each task."""
    lines: list[Line] = []
    for task in tables.plan.tasks:
        rows = [row for row in tables.tasks if row.task == task.key and row.geomean[Rule.FLOOR].value is not None]
        if rows:
            lines.append((task.key, None, 0))
        lines += [(row.policy, row.geomean[Rule.FLOOR], names.index(row.policy)) for row in rows]
    return lines


def _variants(tables: Ablation) -> list[Line]:
    """The median variant, with the lowest and the highest as its line."""
    return [
        (
            f"{row.task} / {'persistent' if row.persistent else 'other'}",
            IntervalEstimate(value=row.median, low=row.lowest, high=row.highest),
            0,
        )
        for row in tables.tuning
    ]


def _forest(name: str, title: str, lines: Sequence[Line]) -> Markup | None:
    """One row per figure: a mark with its interval, and a line at 1."""
    known = [line for line in lines if line[1] is None or (line[1].value is not None and line[1].value > 0)]
    figures = [found for _, found, _ in known if found is not None]
    if not figures:
        return None
    text = "; ".join(f"{label} {ON_PAGE.factor(found)}" if found else f"{label}:" for label, found, _ in known)

    def draw(axes: Axes, wide: bool) -> dict[str, str]:
        values = [value for found in figures for value in (found.value, found.low, found.high) if value is not None and value > 0]
        if wants_log([*values, 1.0]):
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}x"))
        axes.axvline(1.0, color=COLOURS["muted"], linestyle=(0, (4, 3)), linewidth=1)
        titles: dict[str, str] = {}
        for row, (label, found, number) in enumerate(known):
            colour = COLOURS[SERIES[number % len(SERIES)]]
            if found is None:
                continue
            if found.low is not None and found.high is not None:
                axes.plot([found.low, found.high], [row, row], color=colour, linewidth=2, solid_capstyle="butt")
            titles[f"f{row}"] = f"{label}: {ON_PAGE.factor(found)}"
            mark = _MARKS[number % len(_MARKS)]
            axes.plot([found.value or 0.0], [row], marker=mark, color=colour, markersize=7, gid=f"f{row}", clip_on=False)
        axes.yaxis.set_major_locator(FixedLocator(list(range(len(known)))))
        ticks = axes.set_yticklabels([label if wide else label.replace(" / ", " /\n") for label, _, _ in known], color=COLOURS["ink"])
        for tick, (_, found, _) in zip(ticks, known, strict=True):
            tick.set_fontweight("normal" if found else "bold")
        axes.set_ylim(len(known) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        return titles

    return chart(name, title, text, draw, height=0.22 + _ROW * len(known))


def _curves(tables: Ablation, names: Sequence[str]) -> Markup | None:
    """fast_p by policy."""
    curves = [curve for curve in tables.fast if any(point.share.value is not None for point in curve.points)]
    if not curves:
        return None
    shares = {curve.policy: [f"{ON_PAGE.share(point.share)} at {point.p:g}" for point in curve.points] for curve in curves}
    text = "; ".join(f"{policy}: {', '.join(words)}" for policy, words in shares.items())

    def draw(axes: Axes, wide: bool) -> dict[str, str]:
        for curve in curves:
            number = names.index(curve.policy)
            known = [(point.p, 100 * point.share.value) for point in curve.points if point.share.value is not None]
            axes.plot(
                [p for p, _ in known], [value for _, value in known], marker=_MARKS[number % len(_MARKS)], label=curve.policy,
                color=COLOURS[SERIES[number % len(SERIES)]], linewidth=1.6, markersize=6, clip_on=False,
            )  # fmt: skip
        axes.xaxis.set_major_locator(FixedLocator([point.p for point in curves[0].points]))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}x"))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g} %"))
        axes.set_ylim(0, 104)
        axes.grid(axis="y")
        axes.set_xlabel("at least this many times the baseline")
        figure = axes.get_figure(root=True)
        if figure is not None:
            figure.legend(loc="outside upper left", ncols=4 if wide else 2, fontsize=9, handletextpad=0.3, columnspacing=1.0, borderpad=0)
        return {}

    return chart("fast", "Share of runs by speed", text, draw)


def _histogram(tables: Ablation) -> Markup | None:
    """Seeds of all tasks by score."""
    row = next((row for row in tables.seeds if row.task == "all"), None)
    if row is None or not sum(row.counts) + row.not_working:
        return None
    bins, counts = (*SEED_BINS, "not working"), (*row.counts, row.not_working)
    text = ", ".join(f"{count} in {name}" for name, count in zip(bins, counts, strict=True))

    def draw(axes: Axes, wide: bool) -> dict[str, str]:
        colours = [COLOURS["bad"] if name == "not working" else COLOURS["accent"] for name in bins]
        bars = axes.bar(range(len(bins)), counts, color=colours, width=0.75)
        axes.bar_label(bars, color=COLOURS["ink"], fontsize=9)
        axes.xaxis.set_major_locator(FixedLocator(list(range(len(bins)))))
        axes.set_xticklabels([name if wide else name.replace(" and above", "+").replace(" ", "\n") for name in bins])
        axes.tick_params(axis="x", length=0)
        axes.yaxis.set_visible(False)
        axes.spines["left"].set_visible(False)
        return {}

    return chart("seeds", "Scores of first kernels", text, draw, height=0.8)
