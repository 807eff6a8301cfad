"""Reports without a browser: what they say, that nothing hostile leaves its element, and that folders of any age are read."""

import csv
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import report_runs as runs
from tritonsmith.cli.main import run
from tritonsmith.cli.report.drawing.draw import draw_file
from tritonsmith.cli.report.forms import Form
from tritonsmith.cli.report.run.markdown import code, prose
from tritonsmith.cli.report.run.reading import read_run
from tritonsmith.cli.report.run.tables import csv_text
from tritonsmith.cli.report.write import write_report
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.drawing import drawn_edges, drawn_graph, graph_mermaid

OUTSIDE = ("src", "srcset", "data", "action", "formaction", "poster", "background", "style")
"""Attributes that load or run something."""
RECORDED_ANSWER = "right; its speed is not known here (estimate 3.04x, 0.23 to 41)"
_TABLE = ("table", "thead", "tbody", "tr", "th", "td")


class Page(HTMLParser):
    """The elements and the visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def recorded(root: Path) -> Path:
    return Path(runs.recorded(root))


@pytest.fixture(scope="module")
def measured(root: Path) -> Path:
    return Path(runs.measured(root))


@pytest.fixture(scope="module")
def hostile(root: Path) -> Path:
    return Path(runs.hostile(root))


def page_text(folder: Path) -> str:
    """The page that `write_report` makes of a folder, written next to it."""
    (page,) = write_report(folder, Form.HTML, folder.parent / f"{folder.name}-page.html")
    return page.read_text()


def test_the_command_writes_every_form(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(recorded), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"report.html", "report.md", "report.json", "candidates.csv", "decisions.csv"}
    assert printed.splitlines()[0] == RECORDED_ANSWER
    assert all(f"{tmp_path / name}" in printed for name in names)


def test_one_form_goes_to_one_file(recorded: Path, tmp_path: Path) -> None:
    assert run(["report", str(recorded), "--format", "md", "--out", str(tmp_path / "note.md")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["note.md"]


def test_json_on_stdout_is_the_report(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(recorded), "--json", "--format", "json", "--out", str(tmp_path / "report.json")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "report.json").read_text())
    assert told["state"] == "finished" and told["tone"] == "estimate" and told["summary"]["winner"]["id"] == "seed0-03"
    assert told["summary"]["answer"] == told["headline"] == RECORDED_ANSWER
    assert told["changes"]["seed0-02"] == {"parent": "seed0-01", "added": 1, "removed": 1}


def test_the_answer_comes_first(measured: Path) -> None:
    words = Page(page_text(measured)).text
    answer = words.index("FASTER than eager: 4.20x (4.16 to 4.24), measured")
    chart = words.index("Score over time", words.index("Run it again"))
    for told in ("Confirmed in fresh processes", "4.158 to 4.242", "kernel win", "NVIDIA H200", "the winner is confirmed", "torch 2.11.0"):
        assert answer < words.index(told) < chart


def test_every_candidate_decision_kernel_and_failure_is_there(measured: Path) -> None:
    summary = read_run(measured).summary
    page = Page(page_text(measured))
    for row in summary.candidates:
        assert ("li", {"id": f"c-{row.id}"}) in page.elements
    for decision in summary.decisions:
        assert decision.reason in page.text
    for told in ("3072 launches, one per layer and step", "shared memory, required 294912", "147456 B", "24 B", "168", "97 %"):
        assert told in page.text


def test_the_chart_shows_each_score_and_its_time(measured: Path) -> None:
    page = page_text(measured)
    summary = read_run(measured).summary
    for row in summary.candidates:
        assert f"<title>{row.id} ({row.stage}): " in page
    assert "logarithmic" not in page and ">0.05x<" in page  # 0.04 to 4.2 asks for a logarithmic axis, whose marks are these


def test_what_the_recorded_model_was_asked_is_shown_once(recorded: Path) -> None:
    page = page_text(recorded)
    first = json.loads((recorded / "llm" / "seed0-01-seed-1.json").read_text())["messages"][0]["content"]
    section = next(line for line in first.splitlines() if line.startswith("- The work is done by Triton kernels"))
    assert Page(page).text.count(" ".join(section.split())) == 1
    assert "as in seed0-01-seed-1" in page


def test_a_repair_shows_its_difference(recorded: Path) -> None:
    page = Page(page_text(recorded))
    added = [number for number, (tag, attributes) in enumerate(page.elements) if tag == "span" and attributes.get("class") == "gi"]
    assert added and "Difference from seed0-01" in page.text and "2 * tl.sigmoid(2 * y) - 1" in page.text


def test_nothing_hostile_becomes_an_element(hostile: Path) -> None:
    text = page_text(hostile)
    page = Page(text)
    tags = {tag for tag, _ in page.elements}
    assert tags.isdisjoint({"script", "img", "iframe", "object", "embed", "link", "form", "base", "image", "foreignobject", "audio"})
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in OUTSIDE], (tag, attributes)
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    assert page.text.count("<img src=x onerror=") > 20  # it is all there to be read


def test_a_page_forbids_itself_scripts_and_network(hostile: Path) -> None:
    metas = [attributes for tag, attributes in Page(page_text(hostile)).elements if tag == "meta"]
    policy = next(meta["content"] or "" for meta in metas if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy and "http" not in policy


def test_nothing_hostile_is_markup_in_markdown(hostile: Path, tmp_path: Path) -> None:
    write_report(hostile, Form.MARKDOWN, tmp_path / "report.md")
    rendered = Page(MarkdownIt("commonmark", {"html": True}).enable("table").render((tmp_path / "report.md").read_text()))
    assert {tag for tag, _ in rendered.elements} <= {"h1", "h2", "p", "strong", "em", "code", "pre", "blockquote", *_TABLE}
    assert rendered.text.count("<img src=x onerror=") > 5


def test_a_spreadsheet_finds_no_formula(hostile: Path, tmp_path: Path) -> None:
    write_report(hostile, Form.CSV, tmp_path)
    rows = list(csv.DictReader((tmp_path / "candidates.csv").open(encoding="utf-8", newline="")))
    assert any(row["message"].startswith(f"'{runs.FORMULA}") for row in rows)
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())


@pytest.mark.parametrize("text", ["a`b``c", "``", "x|y", "`", "plain"])
def test_code_cannot_leave_its_fence(text: str) -> None:
    fence = code(text)[: len(code(text)) - len(code(text).lstrip("`"))]
    assert fence and fence not in text and code(text).endswith(fence)


def test_prose_is_neither_link_nor_mention() -> None:
    told = prose("see https://example.org/x and @someone <b>[a](b)</b> a|b")
    assert "https:" not in told and "@someone" not in told and "<b>" not in told and "\\[a\\]" in told and "a\\|b" in told


def test_csv_keeps_numbers(measured: Path, tmp_path: Path) -> None:
    write_report(measured, Form.CSV, tmp_path)
    rows = {row["id"]: row for row in csv.DictReader((tmp_path / "candidates.csv").open(encoding="utf-8", newline=""))}
    winner = next(row for row in rows.values() if row["winner"] == "yes")
    assert float(winner["score"]) == 4.2 and float(winner["interval_low"]) == pytest.approx(4.158) and winner["kind"] == "measured"
    decisions = list(csv.DictReader((tmp_path / "decisions.csv").open(encoding="utf-8", newline="")))
    assert len(decisions) == len(read_run(measured).summary.decisions) and json.loads(decisions[0]["evidence"])
    assert csv_text(("a",), [{"a": -1.5}]) == "a\n-1.5\n"


def test_a_killed_run_says_that_it_is_not_over(root: Path, recorded: Path) -> None:
    folder = runs.killed(root, recorded)
    files = read_run(folder)
    assert not files.finished and [row.id for row in files.summary.candidates] == ["seed0-01", "seed0-02"]
    words = Page(page_text(folder)).text
    assert "Best so far 0.12x ESTIMATE" in words and "The run is not over" in words and "half a line" in words and "NOT confirmed" in words


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"event": "run", "time": "2026-11-21T10:00:00+00:00", "task": "t.py"}\n')
    words = Page(page_text(tmp_path)).text
    assert "No working candidate so far" in words and "None were written." in words


def test_waiting_between_processes_is_no_time_of_the_run(tmp_path: Path) -> None:
    times = [("run", "10:00:00"), ("candidate", "10:00:10"), ("run", "18:00:00"), ("verdict", "18:00:05")]
    about = {"candidate": "seed0-01", "stage": "seed", "sha": "ab"}
    events = [{"event": event, "time": f"2026-11-21T{at}+00:00", **about} for event, at in times]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert read_run(tmp_path).seconds == (0.0, 10.0, 10.0, 15.0)


def test_an_old_run_is_told_with_what_is_missing(root: Path) -> None:
    words = Page(page_text(runs.old(root))).text
    assert "FASTER than eager in a CUDA graph: 1.99x" in words and "no events.jsonl" in words and "13 of 14 verdicts" in words


def test_a_run_without_a_winner_says_so(root: Path) -> None:
    folder = runs.winnerless(root)
    words = Page(page_text(folder)).text
    assert words.index("NO KERNEL: no candidate was accepted") < words.index("1 inaccurate") < words.index("Card")
    assert "error 0.3 of the oracle" in words


@pytest.mark.parametrize("broken", ["{", *(pytest.param(text, marks=pytest.mark.slow) for text in ("[]", '{"task": 3}', "\x00\xff"))])
def test_a_broken_summary_is_told_and_rebuilt(broken: str, root: Path, recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs.shutil.copytree(recorded, folder)
    (folder / "summary.json").write_text(broken)
    words = Page(page_text(folder)).text
    assert "summary.json cannot be read" in words and "Best so far 3.04x ESTIMATE: AMBIGUOUS against eager" in words


def test_settings_give_the_command_that_runs_it_again(recorded: Path) -> None:
    words = Page(page_text(recorded)).text
    assert "tritonsmith optimize" in words and "--replay" in words and "--policy no-tune --seeds 1 --size small" in words


def test_the_page_of_a_long_run_stays_small(root: Path, recorded: Path) -> None:
    text = page_text(runs.large(root, recorded))
    assert len(text.encode()) < 1_500_000
    assert "more characters lie in llm/many-" in text and "c-seed0-69" in text


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{missing}", "no such folder"), ("{empty}", "neither summary.json nor events.jsonl"),
        ("{broken}", "events.jsonl: 1 of 1 lines cannot be read"),
    ],
)  # fmt: skip
def test_a_folder_that_is_no_run_gets_one_sentence(line: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("empty", "broken"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "events.jsonl").write_text('{"event": ')
    assert run(["report", line.format(**{name: tmp_path / name for name in ("missing", "empty", "broken")})]) == 2
    told = capsys.readouterr().err
    assert named in told and told.count("\n") == 1


def test_a_report_that_cannot_be_written_names_the_place(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file"):
        write_report(recorded, Form.ALL, tmp_path / "file")


def test_a_run_ends_with_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["optimize", str(runs.EXAMPLE / "task.py"), "--replay", str(runs.EXAMPLE / "run.jsonl"), "--seeds", "1", "--policy", "no-tune"]
    assert run([*line, "--size", "small", "--out", str(tmp_path / "run")]) == 0
    assert "report.html" in capsys.readouterr().out and (tmp_path / "run" / "report.html").stat().st_size > 20_000


@pytest.mark.slow
def test_an_ablation_is_told_with_its_intervals(root: Path) -> None:
    folder = runs.ablation(root)
    page = Page(page_text(folder))
    assert "default is ahead of every other policy: 2.15x on average" in page.text and "1 of 27 runs could not be made" in page.text
    sections = ("Paired differences", "What each part gives", "What tuning did", "First kernels", "Cost per solved run")
    for told in (*sections, "p = 1.5", "the card went away"):
        assert told in page.text
    assert [attributes.get("href") for tag, attributes in page.elements if (attributes.get("href") or "").endswith(".html")] == [
        "cells/39_gru/default/1/report.html"
    ]
    assert sum(tag == "svg" for tag, _ in page.elements) == 14  # seven charts, each in a wide and a narrow form
    assert run(["report", str(folder)]) == 0
    rows = list(csv.DictReader((folder / "policies.csv").open(encoding="utf-8", newline="")))
    assert [row["policy"] for row in rows] == ["default", "no-analysis", "single-seed"]
    assert float(rows[0]["geomean_floor_low"]) < float(rows[0]["geomean_floor"]) < float(rows[0]["geomean_floor_high"])
    assert "## Paired differences" in (folder / "report.md").read_text()


def test_the_svg_draws_the_graph_of_the_mermaid_text() -> None:
    drawing = ElementTree.fromstring(draw_file(()))
    words = {" ".join("".join(element.itertext()).split()).rstrip("?") for element in drawing.iter("{http://www.w3.org/2000/svg}text")}
    for node in drawn_graph(True).nodes:
        name = node.rpartition(":")[2].strip("_")
        assert name.removeprefix("decide_").replace("_", " ") in words, node
    inside = [pair for pair in drawn_edges(drawn_graph(True)) if pair[0].startswith("branch:") and pair[1].startswith("branch:")]
    lines = [element for element in drawing.iter("{http://www.w3.org/2000/svg}path") if element.get("class") == "edge"]
    assert len(lines) == len(inside) + len(drawn_edges(drawn_graph(False)))
    mermaid = graph_mermaid()
    assert all(f"&nbsp;{label}&nbsp;" in mermaid for label in drawn_edges(drawn_graph(True)).values() if label)


def test_the_svg_marks_the_way_of_a_run(recorded: Path, tmp_path: Path) -> None:
    assert run(["graph", "--format", "svg", "--run", str(recorded), "--out", str(tmp_path / "way.svg")]) == 0
    drawing = ElementTree.parse(tmp_path / "way.svg").getroot()
    taken = {
        "".join(element.itertext()).rstrip("?").split(": decided")[0]
        for element in drawing.iter("{http://www.w3.org/2000/svg}g")
        if "node" in (element.get("class") or "") and "taken" in (element.get("class") or "")
    }
    assert {"seed", "evaluate", "repair", "analyze", "optimize", "check", "select", "detect", "confirm", "finish"} <= taken
    assert taken.isdisjoint({"tune grid", "tune block", "tune memory", "improve"})


@pytest.mark.slow
def test_a_home_that_cannot_be_written_is_no_matter(recorded: Path, tmp_path: Path) -> None:
    line = [sys.executable, "-c", "from tritonsmith.cli.main import main; main()", "report", str(recorded), "--out", str(tmp_path)]
    quiet = {name: value for name, value in os.environ.items() if name not in ("MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
    done = subprocess.run(line, env={**quiet, "HOME": "/proc/nothing"}, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")

