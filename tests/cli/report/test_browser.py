"""Reports in a real browser: nothing is fetched, nothing overflows a phone, everything can be read, reached and opened.

Screenshots lie in build/screenshots afterwards.
"""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, Page, sync_playwright

import browsers
import report_runs as runs
from project import ROOT
from tritonsmith.cli.report.forms import Form
from tritonsmith.cli.report.write import write_report

SCREENSHOTS = ROOT / "build" / "screenshots"
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages by name; made before the browser starts, which has an event loop of its own in this thread."""
    if browsers.find_browser() == "":
        pytest.skip("TRITONSMITH_BROWSER=none")
    assert browsers.find_browser() is not None, browsers.ADVICE
    root = tmp_path_factory.mktemp("pages")
    whole = runs.recorded(root)
    folders = {
        "recorded": whole, "measured": runs.measured(root), "hostile": runs.hostile(root), "winnerless": runs.winnerless(root),
        "killed": runs.killed(root, whole), "old": runs.old(root), "ablation": runs.ablation(root),
    }  # fmt: skip
    return {name: write_report(folder, Form.HTML)[0] for name, folder in folders.items()}


@pytest.fixture(scope="module")
def browser(pages: dict[str, Path]) -> Iterator[Any]:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        found = browsers.launch(playwright)
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any, pages: dict[str, Path]) -> Iterator[Open]:
    """Opens a page; at the end nothing may have been asked of a network or written to the console."""
    told: list[str] = []
    contexts = []

    def go(name: str, size: dict[str, int] = DESK, scheme: str = "light") -> Page:
        context = browser.new_context(viewport=size, color_scheme=scheme)
        contexts.append(context)
        page: Page = context.new_page()
        page.on("console", lambda message: told.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: told.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (told.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: None if request.url == address else told.append(f"request: {request.url}"))
        address = pages[name].as_uri()
        page.goto(address)
        return page

    yield go
    for context in contexts:
        context.close()
    assert told == []


def shoot(page: Page, name: str, whole: bool = True) -> None:
    """A picture to look at; no claim hangs on it, and on a busy machine Chromium may fail to take one."""
    for _ in range(3):
        with contextlib.suppress(Error):
            page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=whole)
            return


LOOKS = [("phone", PHONE, "dark"), ("desk", DESK, "light"), ("phone", PHONE, "light"), ("desk", DESK, "dark")]


@pytest.mark.parametrize("name", ["measured", "ablation"])
@pytest.mark.parametrize(("device", "size", "scheme"), LOOKS[:2], ids=["phone-dark", "desk-light"])
def test_it_fits_and_can_be_read(name: str, device: str, size: dict[str, int], scheme: str, open_page: Open) -> None:
    page = open_page(name, size, scheme)
    assert page.evaluate(browsers.OVERFLOW) <= 0
    shoot(page, f"{name}-{device}-{scheme}")
    page.evaluate(browsers.OPEN_ALL)
    assert page.evaluate(browsers.OVERFLOW) <= 0
    assert page.evaluate(browsers.CONTRAST) == []
    assert page.evaluate(browsers.STRUCTURE) == []


@pytest.mark.slow  # the same templates with other contents, and the other two looks
@pytest.mark.parametrize("name", ["recorded", "winnerless", "killed", "old", "hostile", "measured", "ablation"])
@pytest.mark.parametrize(("device", "size", "scheme"), LOOKS, ids=[f"{device}-{scheme}" for device, _, scheme in LOOKS])
def test_other_pages_fit_and_can_be_read(name: str, device: str, size: dict[str, int], scheme: str, open_page: Open) -> None:
    test_it_fits_and_can_be_read(name, device, size, scheme, open_page)


@pytest.mark.parametrize(
    ("name", "told"),
    [("measured", ["FASTER than eager: 4.20x", "Confirmed", "4.158 to 4.242", "kernel win"]), ("winnerless", ["NO KERNEL"])],
)
def test_the_answer_is_on_the_first_screen_of_a_phone(name: str, told: list[str], open_page: Open) -> None:
    page = open_page(name, PHONE)
    for words in told:
        place = page.get_by_text(words).first.bounding_box()
        assert place is not None and place["y"] + place["height"] < PHONE["height"], words
    shoot(page, f"{name}-first-screen", whole=False)


def test_a_question_of_the_drawing_shows_its_answers(open_page: Open) -> None:
    page = open_page("measured")
    panel = page.locator("#gate-after_evaluate")
    assert not panel.is_visible()
    page.get_by_role("link", name=re.compile("after evaluate")).first.click()
    assert panel.is_visible() and "compile_error: repair 1 of 5" in panel.inner_text()
    place = panel.bounding_box()
    assert place is not None and -2 < place["y"] < DESK["height"] / 2
    shoot(page, "measured-gate", whole=False)


def test_a_keyboard_opens_a_candidate_and_its_difference(open_page: Open) -> None:
    page = open_page("measured")
    candidate = page.locator("#c-seed0-02 > details")
    candidate.locator("> summary").focus()
    page.keyboard.press("Enter")
    difference = candidate.get_by_text("Difference from seed0-01")
    assert difference.is_visible()
    for _ in range(4):  # a message that scrolls is a stop on the way
        page.keyboard.press("Tab")
        if "Difference" in page.evaluate("document.activeElement.textContent"):
            break
    page.keyboard.press("Enter")
    assert candidate.locator("pre .gi").first.is_visible()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_nothing_hostile_happens_when_everything_is_open(open_page: Open) -> None:
    page = open_page("hostile", PHONE)
    page.evaluate(browsers.OPEN_ALL)
    assert page.evaluate(browsers.OVERFLOW) <= 0  # the planted text has no place to break
    assert page.title() != "pwned"
    assert page.locator("script, img, iframe, object").count() == 0
    assert page.get_by_text("<img src=x onerror=").count() > 10


def test_the_pages_policy_stops_what_would_get_through(browser: Any, pages: dict[str, Path]) -> None:
    """Even markup that reached the page would neither run nor load: it is put there by hand."""
    page = browser.new_page()
    page.goto(pages["recorded"].as_uri())
    refused = page.evaluate(
        """() => new Promise((done) => {
          const refused = [];
          document.addEventListener('securitypolicyviolation', (event) => {
            refused.push(event.effectiveDirective); if (refused.length === 2) done(refused.sort());
          });
          const image = document.createElement('img'); image.src = 'http://127.0.0.1:9/x.png';
          const script = document.createElement('script'); script.textContent = 'document.title = "pwned"';
          document.body.append(image, script);
        })"""
    )
    assert refused == ["img-src", "script-src-elem"] and page.title() != "pwned"
    page.close()


def test_it_prints(open_page: Open, tmp_path: Path) -> None:
    page = open_page("measured", {"width": 700, "height": 990})
    page.emulate_media(media="print")
    assert not page.get_by_role("navigation").is_visible() and page.evaluate(browsers.OVERFLOW) <= 0
    shoot(page, "measured-print")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder for PATH with the tools of a bare machine, and beside it an environment without anything in it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "uname", "rm", "mkdir", "pwd"):
        (tools / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    for name, line in (("npm", "exit 1"), ("id", "echo 1000"), ("python", "exit 1")):
        (tools / name).write_text(f"#!/bin/sh\n{line}\n")
        (tools / name).chmod(0o755)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(tools / "python")
    return tools


def bring(tools: Path) -> subprocess.CompletedProcess[str]:
    line = [str(ROOT / ".ci" / "browser"), str(tools.parent / "venv")]
    return subprocess.run(line, env={**os.environ, "PATH": str(tools)}, capture_output=True, text=True, timeout=60)


def test_set_up_takes_the_browser_that_is_there(bare: Path) -> None:
    (bare / "chromium").write_text("#!/bin/sh\n")
    (bare / "chromium").chmod(0o755)
    done = bring(bare)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_set_up_without_any_browser_says_what_to_do(bare: Path) -> None:
    done = bring(bare)
    assert done.returncode == 0 and "TRITONSMITH_BROWSER=/path" in done.stderr and "will fail" in done.stderr
    assert not (bare.parent / "venv" / "browser").exists()
