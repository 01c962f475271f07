"""The times of a served page, from a typed text and from a switched rule to the new picture, and of `regard look`.

    python -m bench.served_page

A real browser (Chromium) opens `regard look TEXT --serve`. A picture is complete when every view that is in sight has
been drawn. Medians over repetitions, in milliseconds.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.support.browser import FLAGS
from tests.support.chromium import CHROMIUM

TEXT = (
    "The animal didn't cross the street because it was too tired, and the rain had not yet stopped over the old town."
)
REPEATS = 15
COMMAND = [sys.executable, "-m", "regard", "look", TEXT]

# Changes something, waits until every view of the page has been drawn, and returns the milliseconds.
CHANGE = (
    "async (change) => { const begin = performance.now(); await choose(change); return performance.now() - begin; }"
)


def commands() -> list[float]:
    """Milliseconds of the command that writes a page, from its start."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        for _ in range(5):
            begin = time.perf_counter()
            subprocess.run([*COMMAND, "--out", str(page)], check=True, stdout=subprocess.DEVNULL)
            found.append(1e3 * (time.perf_counter() - begin))
        print(f"the page: {page.stat().st_size / 1e3:.0f} kB")
    return found


def served() -> dict[str, list[float]]:
    """Milliseconds from each kind of change to its picture."""
    from playwright.sync_api import sync_playwright

    found: dict[str, list[float]] = defaultdict(list)
    command = subprocess.Popen([*COMMAND, "--serve"], stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    address = next(match[0] for line in command.stdout if (match := re.search(r"http://\S+", line)))
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            tab = browser.new_context(bypass_csp=True, viewport={"width": 1300, "height": 900}).new_page()
            tab.goto(address)
            tab.wait_for_selector("html[data-ready]", state="attached")
            changes = {
                "another text": lambda number: {"text": TEXT.replace("animal", f"number {number}")},
                "a switched rule": lambda number: {"temperature": 1.05 + number / 10},
                "another head": lambda number: {"call": number % 6, "head": number % 12},
            }
            for name, change in changes.items():
                for number in range(REPEATS):
                    found[name].append(tab.evaluate(CHANGE, change(number)))
                    tab.wait_for_timeout(300)
            browser.close()
    finally:
        command.terminate()
    return found


if __name__ == "__main__":
    for name, times in {"regard look, from the start of the command": commands(), **served()}.items():
        print(f"{name}: median {statistics.median(times):.0f} ms, largest {max(times):.0f}")
