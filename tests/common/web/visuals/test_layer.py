"""The visual of one layer: parameters and operations are those that regard counts, shapes those of the arrays."""

import re

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
    import transformers

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
def test_shapes_and_sizes_without_a_gate(shown, sizes, first):
    """The shapes at the arrows, parameters, and operations as 2 × the sizes that meet."""
    n, d, h, g, f = (sizes[name] for name in ("n", "width", "heads", "groups", "hidden"))
    x, keys, pairs = (n, d), (g, n, d // h), (h, n, n)
    matrices = {"query": d * d, "key": d * g * d // h, "output": d * d, "expand": d * f, "contract": f * d}
    matrices["value"] = matrices["key"]
    wanted = {f"{name}-parameters": size for name, size in matrices.items()}
    wanted |= {f"{name}-flops": 2 * n * size for name, size in matrices.items()}
    wanted |= dict.fromkeys(("scores-flops", "values-flops"), 2 * n * n * d) | {"exponentials": h * n * n}
    wanted |= dict.fromkeys(("norm-1-parameters", "norm-2-parameters"), 2 * d)
    view = shown("layer", **sizes, first=first)
    numbers = view.numbers()
    assert {name: numbers[name] for name in wanted} == wanted
    shapes = [x, (h, n, d // h), keys, keys, pairs, pairs, *[x] * 4, (n, f), *[x] * 3]
    if first:
        shapes = [x, *shapes[:-1]]
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
    view.controls("button", "small").click()
    assert number("query-parameters") == 256**2 and not label("causal").is_checked()
