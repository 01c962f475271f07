"""Every visual keeps within its page at any width, in light and dark, and axe-core finds nothing."""

import numpy as np
import pytest

from regard.common.web import visuals
from tests.support.axe import violations
from tests.support.lanes import sweep

RANDOM = np.random.default_rng(0)
WORDS = [f"word{number}" for number in range(16)]
LLAMA = {
    "heads": 32,
    "key_heads": 8,
    "depth": 128,
    "layers": 32,
    "tokens": 131_072,
    "bytes": 2,
    "rank": 512,
    "rope": 64,
}


def weights(*shape):
    """Random rows whose sum is 1."""
    powers = np.exp(2 * RANDOM.standard_normal(shape))
    return powers / powers.sum(-1, keepdims=True)


def rows(**shapes):
    """Random numbers for each name."""
    return {name: RANDOM.standard_normal(shape) for name, shape in shapes.items()}


# For each kind: its data, and what is changed in it one after another before it is judged again.
VISUALS = {
    "alibi": ({"scores": RANDOM.standard_normal((9, 9)), "heads": 12, "tokens": WORDS[:9]}, []),
    "attention": (rows(q=(15, 4), k=(15, 4), v=(15, 32)) | {"mask": "padding"}, []),
    "cost-curves": ({"width": 768, "heads": 8}, [{"quantity": "layers"}, {"quantity": "memory"}]),
    "dot-product": ({"a": [2.0, 1.0], "b": [1.0, 3.0]}, []),
    "groups": ({"models": {"Llama 3.1 8B": LLAMA}}, [{"kind": "MLA"}]),
    "heads": ({"tokens": WORDS, "weights": weights(12, 16, 16)}, []),
    "hull": (rows(values=(5, 2), scores=5, second=5), [{"mode": "dropout"}, {"mode": "difference"}]),
    "layer": ({"n": 131072, "width": 8192, "heads": 64, "groups": 8}, []),
    "mask": (
        {"expression": "key <= query", "n": 32, "presets": {"none": "True"}},
        [{"expression": "key < query"}, {"expression": "key <= querry & key"}],
    ),
    "overflow": ({"scores": [90.0, 1.0, -30.0]}, []),
    "projections": (
        rows(x=12, W_q=(12, 32), W_k=(12, 32), W_v=(12, 32), rest_q=32, rest_k=32, rest_v=32) | {"width": 384},
        [],
    ),
    "ring": ({"ranks": 8, "tokens": 128, "layout": "striped"}, []),
    "rotary": (rows(q=8, k=8), []),
    "sinusoids": ({"positions": 48, "width": 32, "step": 3}, []),
    "softmax": ({"scores": [90.0, 1.0, -30.0]}, []),
    "streaming": (rows(scores=12, values=(12, 2)) | {"block": 4}, [{"step": 4}]),
    "tokens": ({"tokens": WORDS, "weights": weights(3, 16, 16)}, []),
    "training": (
        {"recorded": [0, 3, 10], "losses": [2.0, 1.5, 0.7], "weights": weights(3, 6, 6), "right": [0, 1, 2, 3, 5, 4]},
        [],
    ),
    "worked-example": (rows(x=(3, 2), W_q=(2, 2), W_k=(2, 2), W_v=(2, 2)) | {"causal": True}, []),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("width, scheme", [(360, "light"), *sweep((1000, "dark"), (760, "light"))])
@pytest.mark.parametrize("kind", visuals.KINDS)
def test_it_fits_and_axe_finds_nothing(shown, kind, width, scheme):
    """As it is opened, after each change, and after the window has become as wide as a desk's."""
    context = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "bypass_csp": True}
    data, changes = VISUALS[kind]
    view = shown(kind, context, **data)
    for more in view.tab.locator("summary").all():
        more.click()
    for change in [{}, *changes]:
        view.change(**change)
        judge(view, width)
    view.tab.emulate_media(color_scheme="dark")
    view.tab.set_viewport_size({"width": 1000, "height": 900})
    judge(view, 1000)


def judge(view, width):
    assert view.tab.evaluate("document.documentElement.scrollWidth") <= width
    assert view.tab.evaluate(
        "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector('.visual'))"
    )
    assert violations(view.tab) == []
