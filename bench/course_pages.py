"""The pages of the course: their size, the time until they are ready, and the script of every slider and animation.

    python -m bench.course_pages [FOLDER]

FOLDER is a site that `regard learn --site FOLDER` wrote; without it, one is written. Each page is opened from its file
in a real browser (Chromium). Then every slider of every visual is moved through its range; sliders of a player go
through its steps, so these are the frames of an animation. A time is the script of one change with the layout that it
asks for.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from regard.learn.pages.site import name_of, write_site
from regard.learn.source import chapters
from tests.support.browser import FLAGS
from tests.support.chromium import CHROMIUM

STEPS = 40

# Moves one slider over its range, and returns the milliseconds of each move.
MOVE = """(slider, steps) => {
    const [low, high] = [Number(slider.min || 0), Number(slider.max || 100)];
    return Array.from({ length: steps }, (_, at) => {
        slider.value = String(low + ((high - low) * ((at * 7) % steps)) / (steps - 1));
        const begin = performance.now();
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        document.body.getBoundingClientRect();
        return performance.now() - begin;
    });
}"""


def main() -> None:
    """Prints a line for each page, and one for each kind of visual."""
    from playwright.sync_api import sync_playwright

    changes: dict[str, list[float]] = {}
    frames: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        site = Path(sys.argv[1]).resolve() if sys.argv[1:] else Path(folder) / "site"
        if not sys.argv[1:]:
            list(write_site(site, chapters()))
        course = [each for each in chapters() if (site / name_of(each)).is_file()]
        size = sum(path.stat().st_size for path in site.iterdir())
        print(f"the site: {size / 1e6:.2f} MB, {len(course)} chapters")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for chapter in course:
            tab = browser.new_page(viewport={"width": 1000, "height": 900})
            tab.goto((site / name_of(chapter)).as_uri())
            tab.wait_for_selector("html[data-ready]", state="attached")
            print(f"{name_of(chapter)}: ready after {tab.evaluate('performance.now()'):.0f} ms")
            tab.evaluate("() => { for (const each of document.querySelectorAll('.skip')) each.click(); }")
            for figure in tab.locator("[data-visual]").all():
                figure.scroll_into_view_if_needed()
                tab.wait_for_timeout(200)
                kind = tab.evaluate("(name) => page.visuals[name].kind", figure.get_attribute("data-visual"))
                for slider in figure.locator("input[type=range]").element_handles():
                    if slider.is_visible():
                        plays = slider.evaluate("(slider) => Boolean(slider.closest('.player'))")
                        (frames if plays else changes).setdefault(kind, []).extend(slider.evaluate(MOVE, STEPS))
            tab.close()
        browser.close()
    for what, found in (("change", changes), ("frame", frames)):
        for kind, times in sorted(found.items()):
            print(f"{kind}, a {what}: median {statistics.median(times):.1f} ms, largest {max(times):.1f}")


if __name__ == "__main__":
    main()
