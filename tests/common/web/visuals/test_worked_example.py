"""The worked example: every number is NumPy's, and so are those of the program and the expressions that it copies."""

import contextlib
import io

import numpy as np
import pytest

DATA = {
    "x": [[1.0, 0.0], [0.5, 1.0], [1.0, 2.0]],
    "W_q": [[1.0, 0.0], [0.0, 1.0]],
    "W_k": [[1.0, 0.0], [-0.5, 1.0]],
    "W_v": [[2.0, 0.0], [0.0, 1.0]],
}
RANDOM = np.random.default_rng(0)
CHANGES = [
    {},
    {"x": [[0.0, 0.0]] * 3},
    {name: RANDOM.standard_normal(np.shape(rows)).tolist() for name, rows in DATA.items()},
    {"x": [[90.0, -40.0], [0.5, 1.0], [3.0, 60.0]]},  # exp of these scores is infinite in float64
]


def by_hand(causal, x, W_q, W_k, W_v):
    """All tables, computed by NumPy."""
    given = dict(zip(("x", "W_q", "W_k", "W_v"), map(np.array, (x, W_q, W_k, W_v))))
    q, k, v = (given["x"] @ given[name] for name in ("W_q", "W_k", "W_v"))
    scores = q @ k.T / np.sqrt(2)
    masked = {"masked": np.where(np.tri(3, dtype=bool), scores, -np.inf)} if causal else {}
    powers = np.exp(masked.get("masked", scores) - masked.get("masked", scores).max(1, keepdims=True))
    weights = powers / powers.sum(1, keepdims=True)
    tables = given | {"q": q, "k": k, "v": v, "products": q @ k.T, "scores": scores} | masked
    return tables | {"weights": weights, "out": weights @ v}


def cells(tables):
    return {f"{name}-{i}-{j}": value for name, table in tables.items() for (i, j), value in np.ndenumerate(table)}


def shown_cells(view):
    """The numbers of the tables."""
    return {name: value for name, value in view.numbers().items() if name != "cell"}


def ran(program):
    """The names that a program leaves, and what it prints."""
    names = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "copied", "exec"), names)
    return names, printed.getvalue()


@pytest.mark.spread
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_every_number_is_that_of_numpy_and_of_its_formula(shown, change, causal):
    """In the tables, in the program that is copied, and by the expression and the numbers of each cell."""
    view = shown("worked-example", **DATA)
    view.change(causal=causal, **change)
    tables = by_hand(causal, **{**DATA, **change})
    assert shown_cells(view) == pytest.approx(cells(tables), rel=1e-12, abs=1e-12)

    view.tab.get_by_text("The whole computation").click()
    names, printed = ran(view.tab.inner_text("pre"))
    for name, table in tables.items():
        np.testing.assert_allclose(names[name], table, rtol=1e-12)
    assert "weights" in printed

    said = view.tab.evaluate(SAID, [cell.split("-") for cell in cells(tables)])
    for (cell, value), (shown_value, code, written) in zip(cells(tables).items(), said, strict=True):
        with np.errstate(over="ignore"):
            found = float(shown_value.replace("Infinity", "inf")), eval(code, names)
        assert found == pytest.approx((value, value), rel=1e-12, abs=1e-12), cell
        if not written.startswith(("given", "allowed", "−∞", "-∞")):
            assert eval(written.replace("·", "*").replace("−", "-")) == pytest.approx(value, rel=0.02, abs=0.02), cell


SAID = """(cells) => cells.map(([name, i, j]) => {
    drawn.change({ cell: [name, Number(i), Number(j)] });
    return [document.querySelector("[data-name=cell]").getAttribute("value"),
        ...[".worked-code", ".worked-numbers"].map((each) => document.querySelector(each).innerText)];
})"""


def test_a_cell_under_the_pointer_or_with_the_focus_is_explained_with_its_sources(shown):
    """Arrow keys go from cell to cell."""
    view = shown("worked-example", **DATA)
    view.tab.hover("[data-name='out-2-1']")
    assert view.tab.inner_text(".worked-formula") == "out[2, 1] = weight[2] · v[:, 1]"
    named = "(found) => found.map((cell) => cell.firstChild.dataset.name)"
    sources = view.tab.eval_on_selector_all(".worked-source", named)
    assert sources == ["v-0-1", "v-1-1", "v-2-1", "weights-2-0", "weights-2-1", "weights-2-2"]
    view.tab.focus(".worked-q td[tabindex='0']")
    view.tab.keyboard.press("ArrowDown")
    view.tab.keyboard.press("ArrowRight")
    assert view.tab.inner_text(".worked-formula") == "q[1, 1] = x[1] · W_q[:, 1]"


def test_given_numbers_are_typed(shown):
    """And one button brings the first numbers back. (Moved with arrow keys: test_dot_product.)"""
    view = shown("worked-example", **DATA)
    view.tab.get_by_label("x[1, 0]").fill("-1.25")
    changed = {**DATA, "x": [[1, 0], [-1.25, 1], [1, 2]]}
    assert shown_cells(view) == pytest.approx(cells(by_hand(False, **changed)), rel=1e-12)
    view.tab.get_by_role("button", name="Numbers as at first").click()
    assert view.numbers()["x-1-0"] == 0.5


def test_the_program_is_copied_or_else_selected(shown):
    """Where the page may not write to the clipboard."""
    view = shown("worked-example", **DATA)
    view.change(x=[[1, 2], [3, 4], [5, 6]])
    for clipboard, said, taken in (
        ("async (text) => { window.copied = text; }", "Copied.", "window.copied"),
        ("() => Promise.reject(new Error('not allowed'))", "Selected", "getSelection().toString()"),
    ):
        view.tab.evaluate(f"document.execCommand = () => false; navigator.clipboard.writeText = {clipboard}; null")
        view.tab.get_by_role("button", name="Copy as a NumPy program").click()
        view.tab.locator(".worked-copied", has_text=said).wait_for()
        assert ran(view.tab.evaluate(taken))[0]["x"].tolist() == [[1, 2], [3, 4], [5, 6]]
