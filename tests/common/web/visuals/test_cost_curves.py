"""The visual of cost curves: its numbers are those of the course's formulas, and of Table 1 of the paper."""

import math


def projections(n, d, projected):
    """Operations of the products with W_q, W_k and W_v, and with W_o if the layer has it."""
    return (8 if projected else 6) * n * d * d


def attention(n, d, causal):
    """Operations of q·k and of the weighted sum of the values, over the pairs that the mask allows."""
    return 4 * d * (n * (n + 1) // 2 if causal else n * n)


def test_operations_of_a_layer(shown):
    """With and without W_o, causal and not; attention overtakes the projections where the crossover is."""
    view = shown("cost-curves", width=64, heads=4)
    for (n, d), projected, causal in (
        ((8, 64), True, True),
        ((1536, 768), False, False),
        ((4095, 1024), True, False),
        ((1_048_576, 16_384), False, True),
    ):
        view.change(n=n, d=d, projected=projected, causal=causal)
        linear, pairs = projections(n, d, projected), attention(n, d, causal)
        view.near({"value": [linear, pairs]}, rel=1e-15)
        view.near({"share-1": pairs / (linear + pairs)}, rel=1e-12)
        crossing = int(view.numbers()["crossover"])
        assert attention(crossing - 1, d, causal) < projections(crossing - 1, d, projected)
        assert attention(crossing, d, causal) >= projections(crossing, d, projected)


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
