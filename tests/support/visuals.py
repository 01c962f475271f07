"""A visual alone in a page of a real browser: what it shows as numbers, and how long a change takes."""

from pathlib import Path

import numpy as np

from regard.common.web import visuals
from regard.common.web.html_page import json_for_html
from regard.learn.pages.page import FILES

__all__ = ["Picture", "bare_page"]


def bare_page(kind, data) -> str:
    """A page with one visual, in the style of the pages of the course."""
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>A visual</title>
<style>{FILES["course.css"]()}</style><main><h1>{kind}</h1><figure class="visual"><div id="root"></div></figure></main>
<script type="application/json" id="data">{json_for_html(visuals.given(kind, data))}</script>
<script>{visuals.script([kind])}
const data = JSON.parse(document.getElementById("data").textContent);
const drawn = visuals["{kind}"](document.getElementById("root"), data);</script>"""


class Picture:
    """A visual that is open in the browser."""

    def __init__(self, browser, folder: Path, kind, data, **context):
        self.context = browser.new_context(**{"viewport": {"width": 1000, "height": 900}, **context})
        self.tab = self.context.new_page()
        self.said = []
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        file = folder / f"{kind}.html"
        file.write_text(bare_page(kind, data), encoding="utf-8")
        self.tab.goto(file.as_uri())

    def change(self, **part):
        """Changes what is chosen, as a control does."""
        self.tab.evaluate("(part) => { drawn.change(part); }", part)

    def numbers(self) -> dict[str, float]:
        """Every number that is shown, with all its digits, by its name."""
        found = self.tab.evaluate(
            """() => [...document.querySelectorAll("[data-name]")].filter((node) => node.checkVisibility())
                .map((node) => [node.dataset.name, node.getAttribute("value")])"""
        )
        return {name: float(value.replace("Infinity", "inf")) for name, value in found}

    def texts(self) -> dict[str, str]:
        """The same as people read them."""
        found = self.tab.evaluate(
            """() => [...document.querySelectorAll("[data-name]")].filter((node) => node.checkVisibility())
                .map((node) => [node.dataset.name, node.textContent])"""
        )
        return dict(found)

    def cells(self, name, rows, columns, column="column") -> np.ndarray:
        """The number that is shown, under a name, when the reader points at each cell of a matrix."""
        found = self.tab.evaluate(
            """([name, rows, columns, place]) => [...Array(rows).keys()].map((row) =>
                [...Array(columns).keys()].map((column) => {
                    drawn.change({ row, [place]: column });
                    return document.querySelector(`[data-name=${name}]`).getAttribute("value");
                }))""",
            [name, rows, columns, column],
        )
        return np.array(found, float)

    def silent(self):
        """Fails unless the page has said nothing."""
        assert not self.said, self.said
