"""Charts as inline SVG: drawn by matplotlib, then freed of everything that a page under a strict policy or in the dark cannot use.

A figure is drawn in stand-in colours. The SVG gets `var(--name)` in their place, so the page's style decides about light and dark;
`style` attributes become plain ones, ids are the chart's own, and points carry a `<title>`.
"""

import io
import re
from collections.abc import Callable, Mapping
from typing import Any, cast
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = {
    name: f"#0000{number:02x}"
    for number, name in enumerate(("ink", "muted", "line", "paper", "accent", "good", "warn", "bad", "s1", "s2", "s3", "s4", "s5", "s6"), 1)
}
"""The page's colour names (`--ink`, ...) and what stands for them while matplotlib draws."""
SERIES = tuple(name for name in COLOURS if name.startswith("s"))

_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_NAMES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": COLOURS["line"],
    "axes.labelcolor": COLOURS["muted"], "xtick.color": COLOURS["line"], "ytick.color": COLOURS["line"],
    "xtick.labelcolor": COLOURS["muted"], "ytick.labelcolor": COLOURS["muted"],
    "text.color": COLOURS["ink"], "grid.color": COLOURS["line"], "grid.linewidth": 0.6,
    "axes.axisbelow": True, "legend.frameon": False, "axes.unicode_minus": False, "text.parse_math": False,
}  # fmt: skip
_SIZES = {"wide": (7.4, 3.0), "narrow": (3.4, 2.8)}
"""Inches; a page shows one of the two."""
_LOG_FROM = 20.0
"""A range of factors as large as this asks for a logarithmic axis."""
_DROPPED = {"font-family", "stroke-linejoin", "stroke-linecap", "stroke-miterlimit"}

Draw = Callable[[Axes, bool], Mapping[str, str] | None]
"""Draws into axes (the flag says whether they are wide) and may return titles of artists by their gid."""


def chart(name: str, title: str, text: str, draw: Draw, *, height: float = 1.0) -> Markup:
    """One chart in a wide and in a narrow form; `name` keeps ids apart, `text` says what is to be seen, for readers without eyes."""
    forms = [_draw_form(name, title, text, draw, form, (width, tall * height)) for form, (width, tall) in _SIZES.items()]
    return Markup("".join(forms))  # ElementTree has escaped every text in it


def wants_log(values: list[float]) -> bool:
    """Whether positive values spread so far that a logarithmic axis shows them better."""
    above = [value for value in values if value > 0]
    return bool(above) and max(above) / min(above) >= _LOG_FROM


def _draw_form(name: str, title: str, text: str, draw: Draw, form: str, size: tuple[float, float]) -> str:
    with rc_context(cast("Any", {**_SETTINGS, "svg.hashsalt": f"{name}-{form}"})):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        titles = draw(axes, form == "wide") or {}
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return clean_svg(written.getvalue(), f"{name}-{form}", title, text, titles, form)


def clean_svg(source: str, name: str, title: str, text: str, titles: Mapping[str, str], form: str) -> str:
    """The SVG as an element of a page."""
    ElementTree.register_namespace("", _SVG.strip("{}"))
    root = ElementTree.fromstring(source)
    for unwanted in (f"{_SVG}metadata", f"{_SVG}defs"):
        for element in root.findall(unwanted):
            if unwanted.endswith("metadata") or element.find(f"{_SVG}style") is not None:
                _drop_style(root, element)
    used = {match for element in root.iter() for value in element.attrib.values() for match in re.findall(r"#([\w.:-]+)", value)}
    for element in root.iter():
        _simplify(element, name, used, titles)
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.attrib |= {"class": f"chart {form}", "role": "img", "aria-labelledby": f"{name}-title {name}-text"}
    for tag, words in (("desc", text), ("title", title)):
        label = ElementTree.Element(f"{_SVG}{tag}", {"id": f"{name}-{'text' if tag == 'desc' else tag}"})
        label.text = words
        root.insert(0, label)
    return ElementTree.tostring(root, encoding="unicode")


def _drop_style(root: ElementTree.Element, element: ElementTree.Element) -> None:
    style = element.find(f"{_SVG}style")
    if style is not None:
        element.remove(style)
    if style is None or not len(element):
        root.remove(element)


def _simplify(element: ElementTree.Element, name: str, used: set[str], titles: Mapping[str, str]) -> None:
    """Plain attributes, own ids and a title for one element."""
    title = titles.get(element.attrib.get("id", ""))
    if title is not None:
        element.insert(0, ElementTree.Element(f"{_SVG}title"))
        element[0].text = title
    for part in element.attrib.pop("style", "").split(";"):
        key, _, value = (piece.strip() for piece in part.partition(":"))
        if key == "font":  # `10px sans-serif`
            key, value = "font-size", value.split()[0]
        if key and key not in _DROPPED:
            element.set(key, _NAMES.get(value, value))
    if "d" in element.attrib:
        element.set("d", " ".join(element.attrib["d"].split()))
    own = element.attrib.pop("id", None)
    if own in used:
        element.set("id", f"{name}-{own}")
    link = element.attrib.pop(_LINK, None)
    if link is not None:
        element.set("href", f"#{name}-{link.removeprefix('#')}")
    if "clip-path" in element.attrib:
        element.set("clip-path", element.attrib["clip-path"].replace("#", f"#{name}-"))
