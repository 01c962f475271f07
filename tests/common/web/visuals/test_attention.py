"""The visual of attention: every weight, sum and output is NumPy's, with each scale, temperature and mask."""

import math

import numpy as np
import pytest

pytestmark = pytest.mark.browser


def arrays(queries, keys, depth=4, width=3, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((size, each)) for size, each in ((queries, depth), (keys, depth), (keys, width)))


def expected(q, k, v, scale, temperature, allowed):
    """Weights and output; a row that may attend to nothing is 0."""
    scores = np.where(allowed, q @ k.T * scale / temperature, -np.inf)
    largest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    sums = powers.sum(-1, keepdims=True)
    weights = np.divide(powers, sums, out=np.zeros_like(powers), where=sums > 0)
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
    q, k, v = arrays(queries, keys)
    view = shown("attention", q=q, k=k, v=v)
    row, column = queries - 1, min(1, keys - 1)
    for at, (name, window, length, temperature) in enumerate(MASKS):
        scale = SCALES[(at + turn) % 5]
        allowed = rules(queries, keys, window, length)[name]
        scores, weights, out = expected(q, k, v, scale, temperature, allowed)
        view.change(
            scale=scale, temperature=temperature, mask=name, window=window, length=length, row=row, column=column
        )
        numbers = view.numbers()
        near(view.cells("picked-weight", queries, keys), weights)
        near(view.cells("picked-out", queries, 3, "outColumn"), out)
        near([numbers[f"sum-{i}"] for i in range(queries)], weights.sum(-1))
        if queries <= 10:
            near([[numbers[f"weight-{i}-{j}"] for j in range(keys)] for i in range(queries)], weights)
        near(numbers["picked-weight"], weights[row, column])
        near(numbers["picked-score"], scores[row, column])
        if allowed[row, column]:
            near(numbers["picked-dot"], (q @ k.T)[row, column])
        near(numbers["largest"], weights.max(-1).mean())
        logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
        near(numbers["entropy"], -(weights * logs).sum(-1).mean())


def near(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-14)


def test_masked_cells_are_hatched_and_only_they(shown):
    """Read from the pixels: a cell of one colour is not hatched."""
    q, k, v = arrays(5, 5)
    view = shown("attention", q=q, k=k, v=v, mask="causal")
    script = """canvas => {
        const copy = new OffscreenCanvas(canvas.width, canvas.height);
        const [pen, side] = [copy.getContext("2d", { willReadFrequently: true }), canvas.width / 5];
        pen.drawImage(canvas, 0, 0);
        return [...Array(25).keys()].map((at) => {
            const { data } = pen.getImageData((at % 5) * side + 4, Math.floor(at / 5) * side + 4, side - 8, side - 8);
            return new Set(data.filter((_, byte) => byte % 4 === 3)).size > 1; }); }"""

    def hatched():
        return np.array(view.tab.locator(".attention-maps canvas").first.evaluate(script)).reshape(5, 5)

    assert np.array_equal(hatched(), ~np.tri(5, dtype=bool))
    view.change(mask="none")
    assert not hatched().any()


def test_switches_act_at_once_by_keyboard(shown):
    """Scale, temperature and mask; a factor that is typed switches 1/√d off."""
    q, k, v = arrays(4, 4, depth=16)
    view = shown("attention", q=q, k=k, v=v)
    tab = view.tab
    assert view.numbers()["scale"] == 0.25
    tab.get_by_label("scale 1/√d").press("Space")
    assert view.numbers()["scale"] == 1
    assert tab.get_by_label("any factor").input_value() == "1"
    tab.get_by_label("any factor").fill("0.5")
    assert view.numbers()["scale"] == 0.5
    assert not tab.get_by_label("scale 1/√d").is_checked()
    before = view.numbers()["entropy"]
    tab.get_by_label("temperature").press("End")
    assert before < view.numbers()["entropy"] == pytest.approx(math.log(4), rel=0.03)
    assert not tab.get_by_role("slider", name="window").is_visible()
    tab.get_by_role("combobox", name="mask").select_option("causal window")
    tab.get_by_role("slider", name="window").press("Home")
    assert [view.numbers()[f"weight-{i}-{i}"] for i in range(4)] == [1] * 4


def test_cells_are_read_by_pointer_and_arrow_keys(shown):
    """The pointer chooses a cell, and arrow keys go on from it."""
    q, k, v = arrays(4, 4)
    view = shown("attention", q=q, k=k, v=v, labels=["a", "b", "c", "d"])
    _, weights, _ = expected(q, k, v, 0.5, 1, np.ones((4, 4), bool))
    matrix = view.tab.locator(".heatmap").first
    matrix.locator("rect.ground").hover(position={"x": 100, "y": 60})
    assert view.numbers()["picked-weight"] == pytest.approx(weights[1, 2], rel=1e-12)
    matrix.press("ArrowLeft")
    matrix.press("ArrowDown")
    assert view.numbers()["picked-weight"] == pytest.approx(weights[2, 1], rel=1e-12)
    assert view.tab.inner_text(".readout").startswith("c attends to b")
