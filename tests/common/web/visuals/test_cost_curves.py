"""The visual of cost curves: its numbers are those of the course's formulas, and of Table 1 as regard counts it."""

import itertools
import math

import pytest

from tests.support.visual_pages import fits_and_is_accessible

pytestmark = pytest.mark.browser


SIZES = [(8, 64), (1536, 768), (4095, 1024), (1_048_576, 16_384)]


def test_operations_of_a_layer(shown):
    view = shown("cost-curves", width=64, heads=4)
    for (n, d), projected, causal in itertools.product(SIZES, (True, False), (True, False)):
        view.change(n=n, d=d, projected=projected, causal=causal)
        matrices = 4 if projected else 3
        attention = 4 * d * _pairs(n, causal)
        numbers = view.numbers()
        assert numbers["value-0"] == pytest.approx(matrices * 2 * n * d * d, rel=1e-15)
        assert numbers["value-1"] == pytest.approx(attention, rel=1e-15)
        assert numbers["share-1"] == pytest.approx(attention / (matrices * 2 * n * d * d + attention), rel=1e-12)
        crossing = int(numbers["crossover"])
        overtaken = [4 * d * _pairs(each, causal) >= matrices * 2 * each * d * d for each in (crossing - 1, crossing)]
        assert overtaken == [False, True]


def _pairs(n, causal):
    return n * (n + 1) // 2 if causal else n * n


def test_the_crossover_is_that_which_regard_counts(shown):
    counting = pytest.importorskip("regard.ledger.table1.crossover")
    view = shown("cost-curves", width=64, heads=4)
    for found in counting.crossover([64, 768]):
        view.change(d=found.width, n=found.counted)
        numbers = view.numbers()
        assert numbers["crossover"] == found.counted == found.formula
        assert numbers["value-1"] == found.operations


def test_other_layers_are_those_of_table_1(shown):
    table = pytest.importorskip("regard.ledger.table1.rows")
    view = shown("cost-curves", width=64, heads=4, quantity="layers", taps=table.TAPS, window=table.WINDOW)
    for n, d in ((8, 64), (100, 48), (1024, 512)):
        view.change(n=n, d=d)
        numbers = view.numbers()
        for at, kind in enumerate(table.KINDS):
            found = [numbers[f"{column}-{at}"] for column in ("value", "steps", "path")]
            assert found == [kind.operations(n, d), kind.steps(n), kind.path(n)], kind.name
        assert numbers["crossover"] == d  # 4·n²·d = 4·n·d²


def test_bytes_of_the_weights(shown):
    view = shown("cost-curves", width=64, heads=4, quantity="memory")
    for n, d, heads in ((8, 64, 1), (2048, 768, 12), (131_072, 4096, 32)):
        view.change(n=n, d=d, heads=heads)
        numbers = view.numbers()
        whole, rows = 4 * heads * n * n, 4 * 4 * n * d
        assert [numbers[f"value-{at}"] for at in range(3)] == [whole, 4 * heads * min(64, n) * n, rows]
        assert numbers["crossover"] == math.ceil(4 * d / heads)
        assert numbers["against-0"] == 4


def test_a_curve_passes_through_its_points(shown):
    """The heights of the drawn line, read back through the ticks of the axis, are the numbers of the formula."""
    view = shown("cost-curves", width=768, heads=12)
    for log in (True, False):
        view.change(log=log, n=1000)
        heights = view.tab.evaluate("""() => [...document.querySelectorAll(".chart-dot")].slice(0, 2)
            .map((dot) => Number(dot.getAttribute("cy")))""")
        assert heights[0] < heights[1]  # below the crossover the projections are above
        view.change(n=1600)
        heights = view.tab.evaluate("""() => [...document.querySelectorAll(".chart-dot")].slice(0, 2)
            .map((dot) => Number(dot.getAttribute("cy")))""")
        assert heights[0] > heights[1]


def test_the_controls_by_keyboard_and_pointer(shown):
    view = shown("cost-curves", width=768, heads=8)
    state = "(name) => drawn.state[name]"
    before = view.tab.evaluate(state, "n")
    view.tab.get_by_label("tokens n").press("ArrowRight")
    assert view.tab.evaluate(state, "n") > before
    view.tab.get_by_label("width d").press("ArrowRight")
    assert view.tab.evaluate(state, "d") == 1024
    view.tab.get_by_label("with W_o").press("Space")
    assert view.numbers()["crossover"] == 1536  # 1.5·d
    view.tab.get_by_role("button", name="go to the crossover").press("Enter")
    assert view.tab.evaluate(state, "n") == 1536
    view.tab.get_by_label("shown").select_option("bytes of the weights")
    assert not view.tab.get_by_label("with W_o").is_visible()
    view.tab.get_by_label("heads h").press("ArrowLeft")
    assert view.tab.evaluate(state, "heads") == 4
    box = view.tab.locator(".drawing").bounding_box()
    view.tab.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + 100)
    assert view.tab.evaluate(state, "n") > 100_000


@pytest.mark.parametrize("quantity", ["operations", "layers", "memory"])
def test_its_page(shown, quantity):
    fits_and_is_accessible(shown, "cost-curves", width=768, heads=8, quantity=quantity)
