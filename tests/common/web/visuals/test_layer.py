"""The visual of one layer: its parameters and operations are those that regard counts, its shapes those of NumPy."""

import re

import numpy as np
import pytest

import regard as rg
from tests.support.lanes import sweep

SIZES = [
    {"n": 16, "width": 64, "heads": 4, "groups": 2, "hidden": 192},
    {"n": 1, "width": 64, "heads": 1, "groups": 1, "hidden": 64},
    {"n": 128, "width": 384, "heads": 12, "groups": 12, "hidden": 1536},
    {"n": 32, "width": 128, "heads": 8, "groups": 1, "hidden": 512},
]


@pytest.mark.parametrize("sizes", [SIZES[0], *sweep(*SIZES[1:])])
def test_numbers_are_those_of_a_llama_layer_as_regard_counts_it(shown, sizes):
    """Parameters and operations of each part, and their shares."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.LlamaConfig(
        hidden_size=sizes["width"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["groups"],
        intermediate_size=sizes["hidden"],
        num_hidden_layers=1,
        vocab_size=10,
    )
    lines = {line.part: line for line in rg.cost(config, tokens=sizes["n"]).layers[0].lines}
    numbers = shown("layer", **sizes, gated=True, first=True, rms=True, causal=True).numbers()
    whole = sum(line.forward.counted for line in lines.values())
    for part, name, boxes in (
        ("projections", "projections", ("query", "key", "value", "output")),
        ("attention", "pairs", ("scores", "values")),
        ("feed-forward", "feed", ("expand", "contract")),
    ):
        parameters, flops = (sum(numbers.get(f"{box}-{kind}", 0) for box in boxes) for kind in ("parameters", "flops"))
        assert parameters == lines[part].parameters.counted
        assert numbers[name] == flops == lines[part].forward.counted
        assert numbers[f"{name}-share"] == pytest.approx(100 * flops / whole, rel=1e-12)
    assert numbers["exponentials"] == lines["attention"].exponentials
    assert numbers["norm-1-parameters"] + numbers["norm-2-parameters"] == lines["norms"].parameters.counted
    assert numbers["parameters"] == sum(line.parameters.counted for line in lines.values())
    assert numbers["flops"] == whole


@pytest.mark.spread
@pytest.mark.one_in(3)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("first", [False, True])
def test_shapes_and_sizes_are_those_of_numpy(shown, sizes, first):
    """A layer without gate, computed: the shapes at the arrows, and the operations as 2 × the sizes that meet."""
    n, d, h, g, f = (sizes[name] for name in ("n", "width", "heads", "groups", "hidden"))
    view = shown("layer", **sizes, first=first)
    numbers = view.numbers()

    def product(name, a, b):
        assert numbers[f"{name}-flops"] == 2 * a.size * b.shape[-1], name
        return a @ b

    def projected(name, a, width):
        W = np.ones((a.shape[-1], width))
        assert numbers[f"{name}-parameters"] == W.size
        return product(name, a, W)

    x = np.ones((n, d))
    q, k, v = (
        projected(name, x, d // h * heads).reshape(n, -1, d // h).swapaxes(0, 1)
        for name, heads in (("query", h), ("key", g), ("value", g))
    )
    scores = product("scores", q, np.repeat(k, h // g, 0).swapaxes(1, 2))
    joined = product("values", scores, np.repeat(v, h // g, 0)).swapaxes(0, 1).reshape(n, d)
    y = projected("output", joined, d)
    inner = projected("expand", y, f)
    z = projected("contract", inner, d)
    attention = [q.shape, k.shape, v.shape, scores.shape, scores.shape, joined.shape]
    before, after = ([x.shape], []) if first else ([], [z.shape])
    shapes = [x.shape, *before, *attention, *[y.shape] * 3, inner.shape, z.shape, z.shape, *after]
    assert numbers["norm-1-parameters"] == numbers["norm-2-parameters"] == 2 * d
    assert numbers["exponentials"] == scores.size
    read = view.tab.locator(".layer-flow .layer-shape").all_inner_texts()
    assert [re.sub(r"[\u202f ]", "", text) for text in read] == [str(shape).replace(" ", "") for shape in shapes]


def test_the_order_of_norm_and_sum(shown):
    """A norm after the sum, or first."""
    view = shown("layer")
    parts = view.tab.locator(".layer-flow :is(.layer-title, .layer-add b)")
    inner = ["W_q", "W_k", "W_v", "scores q·kᵀ / √D", "softmax of each row", "weights · v", "W_o"]
    assert parts.all_text_contents() == [*inner, "+", "norm", "W_1", "W_2", "+", "norm"]
    view.tab.get_by_label("norm first").press("Space")
    assert parts.all_text_contents() == ["norm", *inner, "+", "norm", "W_1", "W_2", "+"]


def test_controls_keep_the_sizes_possible(shown):
    """Heads divide the width, and the hidden width keeps its proportion."""
    presets = {"small": {"n": 64, "width": 256, "heads": 4, "hidden": 1024}}
    view = shown("layer", n=128, width=384, heads=12, presets=presets)
    label, number = view.tab.get_by_label, lambda name: view.numbers()[name]
    label("d_model").select_option("512")  # 12 heads do not divide it
    assert view.controls("combobox", "heads").first.input_value() in ("8", "16")
    assert label("d_ff").input_value() == "2048"  # still four times as wide
    label("key heads").select_option("2")
    assert number("key-parameters") * 4 == number("query-parameters")
    label("tokens n").press("ArrowRight")
    assert number("exponentials") == 8 * 256**2
    label("causal").press("Space")
    assert number("exponentials") == 8 * 256 * 257 / 2
    small = view.controls("button", "small")
    small.click()
    assert number("query-parameters") == 256**2 and not label("causal").is_checked()
    assert small.get_attribute("aria-pressed") == "true"
