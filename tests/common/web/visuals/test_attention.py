"""The visual of attention: every weight, sum and output is NumPy's, with each scale, temperature and mask."""

import math

import numpy as np
import pytest


def arrays(queries, keys, depth=4):
    draw = np.random.default_rng(0).standard_normal
    return {name: draw(shape) for name, shape in {"q": (queries, depth), "k": (keys, depth), "v": (keys, 3)}.items()}


def expected(q, k, v, scale, temperature, allowed):
    """Scores, weights and output; a row that may attend to nothing is 0."""
    scores = np.where(allowed, q @ k.T * scale / temperature, -np.inf)
    powers = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    weights = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)
    return scores, weights, weights @ v


def rules(queries, keys, window, length):
    i, j = np.arange(queries)[:, None] + keys - queries, np.arange(keys)
    return {
        "none": np.ones((queries, keys), bool),
        "causal": j <= i,
        "padding": np.broadcast_to(j < length, (queries, keys)),
        "causal window": (j <= i) & (i - j < window),
    }


SCALES = (0.5, 1.0, -0.7, 0.0, 90.0)
MASKS = (  # with the size of the window, the number of keys that are not padding, and a temperature
    ("none", 1, 0, 1.0),
    ("causal", 1, 0, 0.1),
    ("padding", 1, 0, 1.0),
    ("padding", 1, 2, 3.0),
    ("causal window", 2, 0, 10.0),
)


@pytest.mark.one_in(2)
@pytest.mark.spread
@pytest.mark.parametrize("queries, keys", [(1, 1), (2, 5), (12, 12)])
@pytest.mark.parametrize("turn", range(5))
def test_every_number_is_that_of_numpy(shown, queries, keys, turn):
    """Each mask with each scale, which take turns."""
    data = arrays(queries, keys)
    view = shown("attention", **data)
    row, column = queries - 1, min(1, keys - 1)
    for at, (name, window, length, temperature) in enumerate(MASKS):
        scale = SCALES[(at + turn) % 5]
        allowed = rules(queries, keys, window, length)[name]
        scores, weights, out = expected(**data, scale=scale, temperature=temperature, allowed=allowed)
        rule = {"mask": name, "window": window, "length": length}
        view.change(scale=scale, temperature=temperature, row=row, column=column, **rule)
        numbers = view.numbers()
        near(view.cells("picked-weight", queries, keys), weights)
        near(view.cells("picked-out", queries, 3, "outColumn"), out)
        near([numbers[f"sum-{i}"] for i in range(queries)], weights.sum(-1))
        if queries <= 10:
            near([[numbers[f"weight-{i}-{j}"] for j in range(keys)] for i in range(queries)], weights)
        near([numbers[f"picked-{part}"] for part in ("weight", "score")], [weights[row, column], scores[row, column]])
        if allowed[row, column]:
            near(numbers["picked-dot"], (data["q"] @ data["k"].T)[row, column])
        logs = np.log(np.where(weights > 0, weights, 1))
        near([numbers["largest"], numbers["entropy"]], [weights.max(-1).mean(), -(weights * logs).sum(-1).mean()])


def near(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-14)


def test_switches_act_at_once_by_keyboard(shown):
    """Scale, temperature and mask; a factor that is typed switches 1/√d off."""
    view = shown("attention", **arrays(4, 4, depth=16))
    label = view.tab.get_by_label
    assert view.numbers()["scale"] == 0.25
    label("scale 1/√d").press("Space")
    assert view.numbers()["scale"] == 1 and label("any factor").input_value() == "1"
    label("any factor").fill("0.5")
    assert view.numbers()["scale"] == 0.5 and not label("scale 1/√d").is_checked()
    before = view.numbers()["entropy"]
    label("temperature").press("End")
    assert before < view.numbers()["entropy"] == pytest.approx(math.log(4), rel=0.03)
    window = view.controls("slider", "window")
    assert not window.is_visible()
    view.controls("combobox", "mask").select_option("causal window")
    window.press("Home")
    assert [view.numbers()[f"weight-{i}-{i}"] for i in range(4)] == [1] * 4


def test_cells_are_read_by_pointer_and_arrow_keys(shown):
    """The pointer chooses a cell, and arrow keys go on from it."""
    data = arrays(4, 4)
    view = shown("attention", **data, labels=["a", "b", "c", "d"])
    _, weights, _ = expected(**data, scale=0.5, temperature=1, allowed=True)
    matrix = view.tab.locator(".heatmap").first
    matrix.locator("rect.ground").hover(position={"x": 100, "y": 60})
    view.near({"picked-weight": weights[1, 2]}, rel=1e-12)
    matrix.press("ArrowLeft")
    matrix.press("ArrowDown")
    view.near({"picked-weight": weights[2, 1]}, rel=1e-12)
    assert view.tab.inner_text(".readout").startswith("c attends to b")
