"""The visual of a mask that the reader writes: its cells and counts are those of regard, and mistakes are explained."""

import numpy as np
import pytest

import regard as rg
from tests.support.engines import at_every_pair
from tests.support.lanes import sweep

DOCUMENT = [0, 0, 0, 1, 1, 2, 2, 2, 2]
GIVEN = {"tables": {"document": DOCUMENT}, "numbers": {"length": 6}}
MASKS = {
    "key <= query": rg.causal(),
    "key < length": rg.key < 6,
    "(key <= query) & (query - key < 4)": rg.causal() & rg.window(4),
    "document[query] == document[key]": rg.documents(DOCUMENT),
    "(key <= query) | (key < 3)": rg.prefix(3),
    "(query - key) % 3 == 0": rg.dilated(3),
    "key < query": rg.key < rg.query,
}


def dense(rule, n, rows):
    return at_every_pair(rule, (1, 1, rows, n), n - rows)[0, 0]


@pytest.mark.parametrize("n, rows", [(9, 9), (12, 5), *sweep((2, 1), (32, 32))])
def test_cells_and_counts_are_those_of_regard(shown, n, rows):
    """Of the mask and of its blocks, for every row and for the last ones."""
    view = shown("mask", expression="key <= query", block=4, **GIVEN)
    for text, rule in MASKS.items():
        view.change(expression=text, n=n, rows=rows)
        expected = dense(rule, n, rows)
        wanted = {"allowed": expected.sum(), "total": expected.size, "share": 100 * expected.mean()}
        wanted["blocks-used"] = len({(i // 4, j // 4) for i, j in np.argwhere(expected).tolist()})
        wanted["blocks"] = -(-rows // 4) * -(-n // 4)
        view.near(wanted, rel=1e-12)
        assert view.row("keys", rows) == expected.sum(1).tolist()
        assert view.numbers().get("empty", 0) == (~expected.any(1)).sum()
        cells = view.tab.evaluate(
            """([rows, n]) => [...Array(rows).keys()].map((row) => [...Array(n).keys()].map((column) => {
                drawn.change({ row, column });
                return document.querySelector(".readout strong").textContent === "allowed";
            }))""",
            [rows, n],
        )
        assert np.array_equal(cells, expected)


def test_typing_draws_at_once_and_a_mistake_is_explained_in_place(shown):
    """The last mask stays until the text is one again."""
    view = shown("mask", expression="key <= query", n=8)
    tab, field = view.tab, view.tab.get_by_role("textbox")
    field.fill("key <= query & query - key < 4")
    assert field.get_attribute("aria-invalid") == "true"
    said = tab.inner_text(".mask-error")
    assert "& needs conditions" in said and all(beat in said for beat in ("given", "expected", "fix"))
    assert tab.inner_text(".mask-wrong mark") == "query"
    assert view.numbers()["allowed"] == 36  # the last mask stays
    field.fill("(key <= query) & (query - key < 4)")
    assert field.get_attribute("aria-invalid") == "false"
    assert tab.inner_text(".mask-error") == ""
    assert view.numbers()["allowed"] == 26


def test_presets_and_sliders(shown):
    """Each changes what it names."""
    view = shown("mask", expression="key <= query", n=6, presets={"causal": "key <= query", "all": "True"})
    view.controls("button", "all").click()
    assert view.tab.get_by_role("textbox").input_value() == "True" and view.numbers()["allowed"] == 36
    view.controls("slider", "tokens").first.press("ArrowRight")
    assert view.numbers()["allowed"] == 49
    view.controls("slider", "rows, the last tokens").press("ArrowLeft")
    assert view.numbers()["total"] == 42
    assert view.numbers()["query"] == 1  # bottom-right alignment: the first row is token 1


def test_rows_that_see_nothing_are_called_out(shown):
    """By their numbers."""
    view = shown("mask", expression="key <= query", n=5)
    assert not view.tab.is_visible(".mask-empty")
    for expression, said in (("key < query", "row 0"), ("key < query - 2", "rows 0, 1, 2")):
        view.change(expression=expression)
        assert said in view.tab.inner_text(".mask-empty")
