"""The visual of one layer: its parameters and operations are those that regard counts, its shapes those of NumPy."""

import numpy as np
import pytest

import regard as rg
from tests.support.lanes import sweep

pytestmark = pytest.mark.browser

SIZES = [
    {"n": 16, "width": 64, "heads": 4, "groups": 2, "hidden": 192},
    {"n": 1, "width": 64, "heads": 1, "groups": 1, "hidden": 64},
    {"n": 128, "width": 384, "heads": 12, "groups": 12, "hidden": 1536},
    {"n": 32, "width": 128, "heads": 8, "groups": 1, "hidden": 512},
]
PROJECTIONS = ("query", "key", "value", "output")


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

    def total(kind, *boxes):
        return sum(numbers.get(f"{box}-{kind}", 0) for box in boxes)

    assert total("parameters", *PROJECTIONS) == lines["projections"].parameters.counted
    assert numbers["projections"] == total("flops", *PROJECTIONS) == lines["projections"].forward.counted
    assert numbers["pairs"] == total("flops", "scores", "values") == lines["attention"].forward.counted
    assert numbers["exponentials"] == lines["attention"].exponentials
    assert total("parameters", "expand", "contract") == lines["feed-forward"].parameters.counted
    assert numbers["feed"] == total("flops", "expand", "contract") == lines["feed-forward"].forward.counted
    assert total("parameters", "norm-1", "norm-2") == lines["norms"].parameters.counted
    assert numbers["parameters"] == sum(line.parameters.counted for line in lines.values())
    assert numbers["flops"] == sum(line.forward.counted for line in lines.values())
    for name, part in (("projections", "projections"), ("pairs", "attention"), ("feed", "feed-forward")):
        assert numbers[f"{name}-share"] == pytest.approx(
            100 * lines[part].forward.counted / numbers["flops"], rel=1e-12
        )


@pytest.mark.spread
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("first", [False, True])
def test_shapes_and_sizes_are_those_of_numpy(shown, sizes, first):
    """A layer without gate, computed: the shapes at the arrows, and the operations as 2 × the sizes that meet."""
    n, d, h, g, f = (sizes[name] for name in ("n", "width", "heads", "groups", "hidden"))
    view = shown("layer", **sizes, first=first)
    counted = {}

    def product(name, a, b):
        counted[name] = 2 * a.size * b.shape[-1]
        return a @ b

    x = np.ones((n, d))
    W = {"query": (d, d), "key": (d, d // h * g), "value": (d, d // h * g), "output": (d, d)}
    W = {name: np.ones(shape) for name, shape in (W | {"expand": (d, f), "contract": (f, d)}).items()}
    q, k, v = (product(name, x, W[name]).reshape(n, -1, d // h).swapaxes(0, 1) for name in ("query", "key", "value"))
    scores = product("scores", q, np.repeat(k, h // g, 0).swapaxes(1, 2))
    out = product("values", scores, np.repeat(v, h // g, 0))
    joined = out.swapaxes(0, 1).reshape(n, d)
    y = product("output", joined, W["output"])
    inner = product("expand", y, W["expand"])
    z = product("contract", inner, W["contract"])
    attention = [q.shape, k.shape, v.shape, scores.shape, scores.shape, joined.shape]
    before, after = ([x.shape], []) if first else ([], [z.shape])
    shapes = [x.shape, *before, *attention, *[y.shape] * 3, inner.shape, z.shape, z.shape, *after]

    numbers = view.numbers()
    for name, operations in counted.items():
        assert numbers[f"{name}-flops"] == operations, name
    for name, weights in W.items():
        assert numbers[f"{name}-parameters"] == weights.size
    assert numbers["norm-1-parameters"] == numbers["norm-2-parameters"] == 2 * d
    assert numbers["exponentials"] == scores.size
    read = view.tab.locator(".layer-flow .layer-shape").all_inner_texts()
    found = [
        tuple(int(size.replace("\u202f", "").replace(" ", "")) for size in text[1:-1].split(", ")) for text in read
    ]
    assert found == shapes


def test_the_order_of_norm_and_sum(shown):
    """A norm after the sum, or first."""
    view = shown("layer")
    script = """() => [...document.querySelectorAll(".layer-flow .layer-title, .layer-flow .layer-add b")]
        .map((node) => node.textContent)"""
    inner = ["W_q", "W_k", "W_v", "scores q·kᵀ / √D", "softmax of each row", "weights · v", "W_o"]
    assert view.tab.evaluate(script) == [*inner, "+", "norm", "W_1", "W_2", "+", "norm"]
    view.tab.get_by_label("norm first").press("Space")
    assert view.tab.evaluate(script) == ["norm", *inner, "+", "norm", "W_1", "W_2", "+"]


def test_controls_keep_the_sizes_possible(shown):
    """Heads divide the width, and the hidden width keeps its proportion."""
    presets = {"small": {"n": 64, "width": 256, "heads": 4, "hidden": 1024}}
    view = shown("layer", n=128, width=384, heads=12, presets=presets)
    tab = view.tab
    tab.get_by_label("d_model").select_option("512")  # 12 heads do not divide it
    assert tab.get_by_role("combobox", name="heads").first.input_value() in ("8", "16")
    assert tab.get_by_label("d_ff").input_value() == "2048"  # still four times as wide
    tab.get_by_label("key heads").select_option("2")
    assert view.numbers()["key-parameters"] * 4 == view.numbers()["query-parameters"]
    tab.get_by_label("tokens n").press("ArrowRight")
    assert view.numbers()["exponentials"] == 8 * 256**2
    tab.get_by_label("causal").press("Space")
    assert view.numbers()["exponentials"] == 8 * 256 * 257 / 2
    tab.get_by_role("button", name="small").click()
    assert view.numbers()["query-parameters"] == 256**2
    assert not tab.get_by_label("causal").is_checked()
    assert tab.get_by_role("button", name="small").get_attribute("aria-pressed") == "true"
