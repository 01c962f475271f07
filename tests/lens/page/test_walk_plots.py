"""Pictures of the step-by-step view: q and k as arrows and the softmax of the row, in a real browser, against NumPy."""

import numpy as np
import pytest

import regard as rg
from regard.lens.viewer import page
from tests.support.axe import violations
from tests.support.browser import example

ROW, HEAD = 9, 1
STORED = 2.0**-10  # the relative error of a product of two stored numbers


@pytest.fixture
def walked(opened):
    """A causal run at one row, and that run and its weights."""
    run, exact = example(n=12, mask=rg.causal(), groups=1)
    view = opened(page(run, start={"call": 0, "head": HEAD, "query": ROW}), bypass_csp=True)
    view.reach("walk")
    return view, run.calls[0], exact[0][HEAD, ROW]


def numbers(view, step):
    found = view.each(f"#walk-{step} .visual [data-name]", "[node.dataset.name, Number(node.getAttribute('value'))]")
    return dict(found)


def opens(view, step):
    """Opens the picture of a step."""
    view.tab.evaluate("(step) => walk.go(0, WALK.findIndex(({ id }) => id === step))", step)
    view.click(f"#walk-{step} .walk-plot summary")
    view.tab.wait_for_selector(f"#walk-{step} .visual .number")


def test_q_and_k_are_arrows(walked):
    """Those of the chosen key. (Their lengths and angle: tests/common/web/visuals.)"""
    view, call, _ = walked
    opens(view, "products")
    view.tab.select_option("#walk-dot-key", "5")
    view.settled()
    q, k = call.q[HEAD, ROW].astype(float), call.k[0, 5].astype(float)
    assert numbers(view, "products")["product"] == pytest.approx(q @ k, abs=STORED * np.abs(q * k).sum())


def test_the_softmax_of_the_row_is_its_weights(walked):
    """And it stays open at the next row, and breaks no rule."""
    view, _, exact = walked
    opens(view, "p")
    found = numbers(view, "p")
    assert [found[f"weight-{key}"] for key in range(ROW + 1)] == pytest.approx(exact[: ROW + 1], rel=1e-2, abs=1e-9)
    view.choose(query=4)
    view.tab.wait_for_selector("#walk-p .visual [data-name='weight-4']")
    assert "weight-5" not in numbers(view, "p")
    assert violations(view.tab) == [] and view.cut_off() == []
