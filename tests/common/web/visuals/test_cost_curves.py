"""The visual of cost curves: its numbers are those of the course's formulas, and of Table 1 of the paper."""

import itertools
import math

import pytest

pytestmark = pytest.mark.browser


SIZES = [(8, 64), (1536, 768), (4095, 1024), (1_048_576, 16_384)]


def test_operations_of_a_layer(shown):
    """With and without W_o, causal and not; attention overtakes the projections where the crossover is."""
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


def test_other_layers_are_those_of_table_1(shown):
    """Operations with their constant factors, steps in sequence and the longest path of each kind of layer."""
    taps, keys = 3, 8
    view = shown("cost-curves", width=64, heads=4, quantity="layers", taps=taps, window=keys)
    for n, d, dilated in ((8, 64, 2), (100, 48, 5), (1024, 512, 7)):  # dilated: the least L with 3ᴸ ≥ n
        view.change(n=n, d=d)
        numbers = view.numbers()
        convolution = 2 * taps * n * d * d
        kinds = [
            [4 * n * n * d, 2, 1],
            [4 * n * d * d, n, n],
            [convolution, 1, math.ceil((n - 1) / (taps - 1))],
            [convolution, 1, dilated],
            [4 * keys * n * d, 2, math.ceil((n - 1) / (keys - 1))],
        ]
        found = [[numbers[f"{column}-{at}"] for column in ("value", "steps", "path")] for at in range(len(kinds))]
        assert found == kinds
        assert numbers["crossover"] == d  # 4·n²·d = 4·n·d²


def test_bytes_of_the_weights(shown):
    """Of all of them, of a block of them, and of q, k, v and the output."""
    view = shown("cost-curves", width=64, heads=4, quantity="memory")
    for n, d, heads in ((8, 64, 1), (2048, 768, 12), (131_072, 4096, 32)):
        view.change(n=n, d=d, heads=heads)
        whole, rows = 4 * heads * n * n, 4 * 4 * n * d
        assert view.row("value", 3) == [whole, 4 * heads * min(64, n) * n, rows]
        numbers = view.numbers()
        assert (numbers["crossover"], numbers["against-0"]) == (math.ceil(4 * d / heads), 4)


def test_curves_cross_where_the_formula_says(shown):
    """Below the crossover the line of the projections is above, beyond it below, with both kinds of axes."""
    view = shown("cost-curves", width=768, heads=12)
    heights = """() => [...document.querySelectorAll(".chart-dot")].slice(0, 2)
        .map((dot) => Number(dot.getAttribute("cy")))"""
    for log in (True, False):
        for n, above in ((1000, True), (1600, False)):
            view.change(log=log, n=n)
            projections, attention = view.tab.evaluate(heights)
            assert (projections < attention) == above
