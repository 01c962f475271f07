"""Figures of few rows and of no tokens in a real browser: means of one row, rows with one key, runs without special
tokens.
"""

import numpy as np
import pytest

import regard as rg
from regard.lens.viewer.queries import about
from tests.support.browser import example
from tests.support.page_map import Map


@pytest.fixture(scope="module")
def plain(kept_open):
    """A page of a causal run of two heads over the words a b a c: one row has a duplicate and an induction key."""
    q, k = np.random.default_rng(0).standard_normal((2, 2, 4, 8), dtype=np.float32)
    run = rg.look(q, k=k, mask=rg.causal(), tokens=list("abac"), measures={"late": rg.key > 1})
    return kept_open(run), run


def listed(view) -> dict[str, str]:
    """The metrics of the chosen head."""
    return dict(zip(view.each("#figures dt"), view.each("#figures dd"), strict=True))


def test_detectors_say_of_how_many_rows_they_are_the_mean(plain):
    """In the list, note, table, name and tooltip of a head, and of a mean of heads; other figures do not."""
    view, run = plain
    view.choose(head=1, metric="induction")
    found = listed(view)
    value = f"{100 * run.calls[0].figures['induction'][1]:.3g} % (1 row)"
    assert found["weight on induction keys"] == value and not found["largest weight"].endswith(")")
    assert found["weight on duplicates"].endswith(" % (1 row)") and found["weight on late"].endswith(" % (2 rows)")
    names = view.each("#grid button[data-head='1']", "node.ariaLabel + node.title")
    assert names[0].count(f"weight on induction keys {value}") == 2
    assert "Here: 1 row." in view.text("#atlas-note")
    view.click("#atlas-as-table")
    assert value in view.text("#atlas-table tbody tr:nth-child(2)")
    view.click("#atlas-as-table")
    view.choose(head="mean")
    assert listed(view)["weight on induction keys"].endswith(" % (1 row)")


def test_without_special_tokens_nothing_is_said_of_them(plain):
    """Neither in the list and the choice of metrics, nor beside the rows of the map."""
    view, run = plain
    view.choose(head=0)
    said = " ".join([*listed(view), view.tab.text_content("#metric"), view.tab.text_content("#filter")])
    assert "special tokens" not in said and "weight on the first key" in said
    told = Map(view).hover(3, 1)
    assert "entropy" in told and "special" not in told
    marked, _ = example(4, 1, 2, mask=rg.causal())
    assert "special" in about(marked)["calls"][0]["figures"] and "special" not in about(run)["calls"][0]["figures"]


def test_a_row_with_one_key_has_nothing_to_spread(plain):
    """The first row of a causal run; the mean of pooled rows leaves it out."""
    view, run = plain
    said = Map(view).hover(0, 0)
    assert "one key: nothing to spread" in said and "entropy" not in said
    spread = run.calls[0].rows["spread"][0]
    several = view.tab.evaluate("tracksOf(0).then((tracks) => rowWords(tracks, 0, 4))")
    assert several == f"entropy {100 * spread[1:].mean():.2g} % of the maximum possible"
