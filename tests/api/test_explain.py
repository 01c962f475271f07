"""Explain: what it says is what `attention` would do, and it computes nothing."""

import numpy as np
import torch

import regard as rg
from regard.api.explain import explain
from regard.engines.dispatch import choose
from tests.support.refusals import refusing

CAUSAL = rg.causal()


def test_parts_and_text():
    """The parts are those of the call, and the text names sizes, rules, engine, tiles, work and bytes, with a
    picture.
    """
    q, k = np.zeros((2, 4, 128, 8), np.float32), np.zeros((2, 2, 128, 8), np.float32)
    found = explain(q, k, k, mask=CAUSAL & rg.window(40), score=rg.softcap(30.0), scale=0.5, sinks=np.zeros((4, 2)))
    assert (found.engine, found.why) == choose(found.problem)
    assert found.cost.allowed == 2 * 4 * (40 * 41 // 2 + 88 * 40)
    text = str(found)
    for part in (
        "q (2, 4, 128, 8) · k (2, 2, 128, 8)",
        "float32",
        "(key <= query)",
        "query - key < 40",
        "tanh",
        "0.5 · q·k",
        "2 in the denominator",
        found.engine,
        found.why[0],
        str(found.plan),
        str(found.cost),
        found.plan.diagram(),
    ):
        assert part in text


def test_the_engine_is_the_one_that_would_run():
    """A named engine is explained or refused as `attention` would, also of tensors that are trained; one without tiles
    says that it visits everything.
    """
    q = torch.zeros(8, 4, requires_grad=True)
    found = explain(q, q, q, mask=CAUSAL, engine="reference")
    assert found.engine == "reference" and "visits the whole matrix" in str(found)
    with refusing("no such engine"):
        explain(q, q, q, engine="fastest")
    with refusing("explain: q and k differ in depth"):
        explain(q, q[..., :2], q)


def test_positions():
    """The text has the positions of the rows, per batch entry too."""
    q, k = np.zeros((2, 1, 3, 4)), np.zeros((2, 1, 10, 4))
    assert "row 0 at position 7" in str(explain(q, k, k))
    text = str(explain(q, k, k, mask=CAUSAL, query_start=[5, 2]))
    assert "row 0 at position 2 … 5, by batch entry" in text and "batch entry 0, head 0" in text


def test_nothing_to_do():
    """A call without rows is explained too, where heads share keys and so a tile."""
    q, k = np.zeros((2, 0, 4)), np.zeros((1, 5, 4))
    text = str(explain(q, k, k, mask=CAUSAL))
    assert "0 allowed" in text and "█" not in text


def test_a_long_row_is_explained_without_its_matrix():
    """A hundred thousand rows are explained at once: the matrix would take 40 GB."""
    q = np.broadcast_to(np.zeros((), np.float32), (1, 1, 100_000, 64))
    found = explain(q, q, q, mask=CAUSAL)
    assert found.cost.weights == 40_000_000_000 and "40 GB" in str(found)
    assert found.cost.allowed == 100_000 * 100_001 // 2 and found.cost.extra < 2_000_000
