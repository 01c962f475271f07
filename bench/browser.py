"""Browser: times the page of a run in Chromium: opening it, switching to another head, and drawing while it moves."""

from __future__ import annotations

import importlib.util
import math
import shutil
import statistics
import tempfile
from pathlib import Path

from .system import Figure

__all__ = ["measure"]

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu"]
OPENED = "performance.getEntriesByName('ready')[0].startTime"
SWITCHED = """async () => {
  const spent = [];
  for (let head = 1; head < runs[0].calls[0].heads; head++) {
    const begin = performance.now();
    await choose({ head });
    await new Promise(requestAnimationFrame);
    spent.push(performance.now() - begin);
    await new Promise((later) => setTimeout(later, 100));
  }
  return spent;
}"""
MOVED = """async () => {
  const { Q } = runs[0].calls[0], span = Q / 4, frames = [];
  for (let frame = 0; frame < 121; frame++) {
    const at = (Q - span) * (0.5 - 0.5 * Math.cos((frame / 120) * 2 * Math.PI));
    choose({ view: { row: at, column: at, span } });
    frames.push(await new Promise(requestAnimationFrame));
  }
  return frames.slice(1).map((time, i) => time - frames[i]);
}"""


def measure(html: str) -> list[Figure]:
    """Opening (median of five), switching to another head (first time, and again), and frames while the map moves."""
    chromium = next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None or importlib.util.find_spec("playwright") is None:
        return [Figure("in a browser", math.nan, "s", "chromium or playwright is not installed")]
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "page.html"
        file.write_text(html, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        opened = []
        for _ in range(5):
            tab = browser.new_page(viewport={"width": 1440, "height": 900})
            tab.goto(file.as_uri())
            tab.wait_for_selector("html[data-ready]", state="attached")
            opened.append(tab.evaluate(OPENED))
            tab.close()
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        tab.goto(file.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        tab.wait_for_timeout(1000)
        first, again, frames = tab.evaluate(SWITCHED), tab.evaluate(SWITCHED), tab.evaluate(MOVED)
        browser.close()
    version = Path(chromium).name
    return [
        Figure("opening the page", statistics.median(opened) / 1e3, "s", f"{version}, until everything is drawn"),
        Figure(
            "another head",
            statistics.median(first) / 1e3,
            "s",
            f"until the next frame; the slowest took {max(first):.0f} ms",
        ),
        Figure("the same head again", statistics.median(again) / 1e3, "s", f"the slowest took {max(again):.0f} ms"),
        Figure(
            "a frame while the map moves",
            statistics.median(frames) / 1e3,
            "s",
            f"95 % within {sorted(frames)[-len(frames) // 20]:.0f} ms",
        ),
    ]
