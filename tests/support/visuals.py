"""A visual alone in a page of a real browser: what it shows as numbers, and how long a change takes."""

from pathlib import Path

import numpy as np
import pytest

from regard.common.web import visuals
from regard.common.web.html_page import json_for_html
from regard.learn.pages.site import FILES
from tests.support.browser import listened


def bare_page(kind, data) -> str:
    """A page with one visual, in the style of the pages of the course."""
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>A visual</title>
<style>{FILES["course.css"]()}</style><main><h1>{kind}</h1><figure class="visual"><div id="root"></div></figure></main>
<script type="application/json" id="data">{json_for_html(visuals.given(kind, data))}</script>
<script>{visuals.script([kind])}
const data = JSON.parse(document.getElementById("data").textContent);
const drawn = visuals["{kind}"](document.getElementById("root"), data);</script>"""


class Picture:
    """A visual that is open in a tab of the browser."""

    def __init__(self, tab, folder: Path, kind, data):
        self.tab, self.said = tab, listened(tab)
        file = folder / f"{kind}.html"
        file.write_text(bare_page(kind, data), encoding="utf-8")
        tab.goto(file.as_uri())

    def change(self, **part):
        """Changes what is chosen, as a control does."""
        self.tab.evaluate("(part) => { drawn.change(part); }", part)

    def state(self, *names):
        """What is chosen: one value, or several in a list."""
        found = self.tab.evaluate("(names) => names.map((name) => drawn.state[name])", names)
        return found[0] if len(names) == 1 else found

    def controls(self, role, name, **more):
        """The controls of a role and a name."""
        return self.tab.get_by_role(role, name=name, **more)

    def numbers(self) -> dict[str, float]:
        """Every number that is shown, with all its digits, by its name."""
        found = self.tab.evaluate(
            """() => [...document.querySelectorAll("[data-name]")].filter((node) => node.checkVisibility())
                .map((node) => [node.dataset.name, node.getAttribute("value")])"""
        )
        return {name: float(value.replace("Infinity", "inf")) for name, value in found}

    def row(self, name, count) -> list[float]:
        """The numbers that are shown as name-0, name-1, …"""
        numbers = self.numbers()
        return [numbers[f"{name}-{at}"] for at in range(count)]

    def near(self, wanted, **error):
        """Fails unless these numbers, and rows of numbers, are shown, within an error."""
        numbers = self.numbers()
        for name, value in wanted.items():
            found = numbers[name] if np.ndim(value) == 0 else [numbers[f"{name}-{at}"] for at in range(len(value))]
            assert found == pytest.approx(value, **error), name

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

    def opacities(self, at=0) -> np.ndarray:
        """The opacity of each cell of a matrix, of the visual's matrices the one at a place."""
        found = self.tab.evaluate(
            """(at) => {
                const node = document.querySelectorAll("canvas")[at];
                const copy = new OffscreenCanvas(node.width, node.height).getContext("2d");
                copy.drawImage(node, 0, 0);
                const { data } = copy.getImageData(0, 0, node.width, node.height);
                return [node.height, node.width, [...data].filter((_, place) => place % 4 === 3)];
            }""",
            at,
        )
        return np.reshape(found[2], found[:2]) / 255

    def silent(self):
        """Fails unless the page has said nothing."""
        assert not self.said, self.said
