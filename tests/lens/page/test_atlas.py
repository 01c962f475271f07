"""The atlas of heads in a real browser: its pictures and metrics, and the table beside it; figures of
few rows and of no tokens: means of one row, rows with one key, runs without special tokens.
"""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.language.measures import edges
from regard.lens.runs.effects import Effects
from regard.lens.viewer import embed
from tests.lens.page.colors import distance, logarithmic
from tests.support.browser import example, share
from tests.support.engines import normal


def test_every_head_of_the_atlas_opens(home):
    """A click on a cell chooses its head; the figures beneath are those of the run."""
    view, run, _ = home
    view.click("#grid button[data-call='1'][data-head='2']")
    assert view.state("call", "head") == (1, 2)
    told = listed(view)
    figures = {name: values[2] for name, values in run.calls[1].figures.items()}
    assert float(told["entropy"].split()[0]) == pytest.approx(figures["entropy"], abs=0.0051)
    for name, figure in (
        ("weight on special tokens", "special"),
        ("weight on the first key", "first"),
        ("largest weight", "maximum"),
        ("weight on the previous token", "previous"),
    ):
        assert share(told[name]) == pytest.approx(figures[figure], rel=0.006)
    assert told["key/value head"] == "0 · shared by 3"


def test_pictures_of_the_atlas_are_the_matrices(opened):
    """Every cell of a picture has the colour of the mean over its rows of the sum over its keys; masked ones let the
    ground through. (Their codes: test_tiles.)
    """
    run, exact = example(n=60, layers=1, heads=2, mask=rg.causal())
    view = opened(run, "#scale=log")
    side = embed.THUMBNAIL
    cuts = edges(60, side)
    pooled = np.add.reduceat(np.add.reduceat(exact[0], cuts[:-1], 1), cuts[:-1], 2) / np.diff(cuts)[:, None]
    picture = "#grid button[data-head='1'] canvas"
    for row, column in ((0, 0), (43, 0), (43, 43)):
        assert distance(view.pixel(picture, column, row), logarithmic(pooled[1][row, column])) <= 1, (row, column)
    assert view.pixel(picture, side - 4, 3)[3] == 0


def test_metrics_take_the_place_of_pictures(home):
    """Each cell has the colour of its figure on a fixed linear domain, and a name with the same number."""
    view, run, _ = home
    view.choose(metric="maximum")
    answer = "[node.ariaLabel, node.style.background.match(/\\d+/g).map(Number), Number(node.textContent)]"
    for (call, head), (name, color, said) in zip(np.ndindex(2, 3), view.each("#grid button", answer), strict=True):
        figure = run.calls[call].figures["maximum"][head]
        assert distance(color, figure, slack=1) == 0 and said == round(100 * figure)
        assert share(name) == pytest.approx(figure, rel=0.006)


def test_figures_that_a_call_has_not_are_dashes(opened):
    """Between two axes nothing counts from a token's own place: list, table and cells go on without those
    figures.
    """
    crossed, _ = example(layers=1, keys=5)
    plain, _ = example(layers=1, seed=1)
    view = opened(dataclasses.replace(crossed, calls=plain.calls + crossed.calls), "#call=1&head=1")
    told = listed(view)
    view.click("#atlas-as-table")
    for name in ("itself", "previous", "distant", "distance"):
        title = view.tab.evaluate("(name) => METRICS[name].title", name)
        view.tab.evaluate("(name) => headTable.sort(name)", name)
        names, *lines = view.each("#atlas-table tr", "[...node.children].map((cell) => cell.innerText)")
        dashes = [line[names.index(title)] == "—" for line in lines]
        assert dashes == [False] * 3 + [True] * 3 and told[title] == "—"  # what is not there comes last
        view.choose(metric=name)
        assert f"{title} —" in view.tab.get_attribute("#grid button[data-call='1']", "aria-label")


def test_the_table_has_all_numbers(home):
    """Every figure of every head stands in the table, it sorts by any column, and the copy has the same numbers in
    full.
    """
    view, run, _ = home
    figures = np.concatenate([call.figures["distant"] for call in run.calls])
    view.click("#atlas-as-table")
    column = 1 + view.tab.evaluate("headTable.names()").index("distant")

    def shown(at):
        return view.each(f"#atlas-table tbody tr > :nth-child({at + 1})")

    assert shown(0) == [f"layer {call}, head {head}" for call in range(2) for head in range(3)]
    assert [share(cell) for cell in shown(column)] == pytest.approx(figures, rel=0.006)
    view.click(f"#atlas-table th:nth-child({1 + column}) button")
    falling = np.sort(figures)[::-1]
    assert [share(cell) for cell in shown(column)] == pytest.approx(falling, rel=0.006)
    heading, *copied = (line.split("\t") for line in view.tab.evaluate("headTable.text()").splitlines())
    values = [float(line[heading.index("distant")]) for line in copied]
    assert sorted(values, reverse=True) == pytest.approx(falling, rel=1e-4)
    view.click("#atlas-as-table")


@pytest.fixture(scope="module")
def plain(kept_open):
    """A page of a causal run of two heads over the words a b a c: one row has a duplicate and an induction key."""
    q, k = normal(2, 2, 4, 8)
    run = rg.look(q, k=k, mask=rg.causal(), tokens=list("abac"), measures={"late": rg.key > 1})
    return kept_open(run), run


def listed(view):
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


def test_heads_have_the_color_of_their_effect(opened):
    """The page of a run with effects opens on them: the sentence says what the head changes, each cell how much."""
    run, _ = example(n=12)
    names = tuple(call.name for call in run.calls)
    values = np.array([[0.25, np.nan, -1.0], [0, 0.5, 0.125]])
    effects = Effects("heads", "loss", values, 3.0, names, run.axes["text"].tokens)
    view = opened(dataclasses.replace(run, facts={**run.facts, "effects": effects.fact}))
    assert view.state("metric", "call", "head") == ("effect", 0, 2)
    assert "which matters most here (without it, loss changes by −1.00)" in view.text("#sentence")
    shares = view.tab.evaluate(
        "atlas.cells.map(({ call, head }) => metrics.short('effect', metrics.value('effect', call, head)))"
    )
    assert shares == ["25", "—", "100", "0", "50", "13"]
    view.click("#grid button[data-call='1'][data-head='1']")
    assert "(without it, loss changes by +0.500)" in view.text("#sentence") and "effects" not in view.text("#facts")


def test_the_grid_of_patches(opened):
    """A run with effects of the stream has a table of tokens and blocks, colored by the change; others have none."""
    run, _ = example(n=12)
    values = np.zeros((2, 12))
    values[0, 2], values[1, 3], values[1, 4] = -2, 1, np.nan
    effects = Effects("stream", "logit", values, 3.0, ("h.0", "h.1"), run.axes["text"].tokens)
    view = opened(dataclasses.replace(run, facts={**run.facts, "effects": effects.fact}))
    cells = view.tab.locator("#stream tbody tr")
    assert cells.nth(2).locator("td").all_inner_texts() == ["-2.0", "0"]
    assert cells.nth(4).locator("td").all_inner_texts() == ["0", ""]
    colors = [cells.nth(at).locator("td").nth(at - 2).evaluate("cell => cell.style.background") for at in (2, 3)]
    assert colors[0] != colors[1] and not opened(run).tab.locator("#stream").is_visible()
