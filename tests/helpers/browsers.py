"""The browser that tests open reports in, and what is asked of a page there."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OWN = Path(sys.prefix) / "browser" / "chromium"
"""Where .ci/browser puts one when there is none on PATH."""
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
ADVICE = (
    "no browser is on this machine, and .ci/browser could not bring one: install Chromium or Chrome, name one with "
    "TRITONSMITH_BROWSER=/path, or leave these tests out knowingly with TRITONSMITH_BROWSER=none"
)

OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
OPEN_ALL = "() => document.querySelectorAll('details').forEach((part) => { part.open = true; })"

CONTRAST = """() => {
  const parse = (text) => { const found = text.match(/[\\d.]+/g).map(Number); return found.length < 4 ? [...found, 1] : found; };
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const box = at.matches('g.node') ? at.querySelector('rect.box') : null;
      const colour = parse(box ? getComputedStyle(box).fill : getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) return colour;
    }
    return [255, 255, 255, 1];
  };
  const weak = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest('title, desc, style')) continue;
    const style = getComputedStyle(element), drawn = element instanceof SVGElement;
    const front = parse(drawn ? style.fill : style.color), back = ground(element);
    const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (large ? 3 : 4.5)) weak.push(`${ratio.toFixed(2)} ${walker.currentNode.data.trim().slice(0, 40)}`);
  }
  return weak;
}"""
"""Texts whose contrast with what is behind them is below 4.5 (3 for large ones)."""

STRUCTURE = """() => {
  const faults = [], headings = [...document.querySelectorAll('h1,h2,h3,h4')].filter((part) => part.checkVisibility());
  const levels = headings.map((part) => Number(part.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1) faults.push('not exactly one h1');
  levels.forEach((level, index) => {
    if (index && level > levels[index - 1] + 1) faults.push(`a heading of level ${level} follows ${levels[index - 1]}`);
  });
  document.querySelectorAll('svg').forEach((part) => {
    const names = (part.getAttribute('aria-labelledby') || '').split(' ').filter(Boolean).map((id) => document.getElementById(id));
    const named = part.getAttribute('aria-label') || (names.length && names.every((name) => name && name.textContent));
    if (!named) faults.push('an svg without a name');
  });
  document.querySelectorAll('th:not([scope])').forEach((part) => faults.push(`no scope: ${part.textContent}`));
  const ids = [...document.querySelectorAll('[id]')].map((part) => part.id);
  new Set(ids.filter((id, index) => ids.indexOf(id) !== index)).forEach((id) => faults.push(`twice: ${id}`));
  document.querySelectorAll('a[href^="#"]').forEach((part) => {
    const id = (part.getAttribute('href') || '').slice(1);
    if (!document.getElementById(id)) faults.push(`leads nowhere: ${id}`);
  });
  return faults;
}"""
"""What readers with a screen reader or a keyboard would stumble over."""


def find_browser() -> str | None:
    """The browser to use; None where there is none, empty where the tests are left out."""
    named = os.environ.get("TRITONSMITH_BROWSER")
    if named == "none":
        return ""
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    return found or next((str(path) for path in (OWN, MAC) if path.is_file()), None)


def launch(playwright: Any) -> Any:
    """The browser; without its own sandbox, for a container's root has none to give and the pages are ours."""
    return playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
