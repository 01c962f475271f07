"""The whole building in one breath: a mask and a score as expressions, the plan, both engines, NumPy and torch."""

import numpy as np
import torch

import regard as rg

q, k, v = np.random.default_rng(0).standard_normal((3, 2, 100, 16)).astype(np.float32)
document = rg.table(np.arange(100) // 40, "document")


def test_tiny():
    """An attention is a small expression; everything else is a reading of it."""
    mask = rg.causal() & (document[rg.query] == document[rg.key])
    score = rg.softcap(20.0) - abs(rg.query - rg.key) / 8
    assert repr(mask) == "(key <= query) & (document[query] == document[key])"

    explained = rg.explain(q, k, v, mask=mask, score=score)
    out = rg.attention(q, k, v, mask=mask, score=score, engine="jit")
    assert explained.engine == "jit" and explained.cost.allowed == 2 * (
        820 + 820 + 210
    )  # pairs in documents of 40, 40 and 20 rows

    row, column = np.arange(100)[:, None], np.arange(100)
    logits = 20 * np.tanh(q.astype(np.float64) @ k.swapaxes(1, 2) / 4 / 20) - abs(row - column) / 8
    weights = np.exp(np.where((column <= row) & (row // 40 == column // 40), logits, -np.inf))
    by_hand = (weights / weights.sum(-1, keepdims=True)) @ v
    assert np.allclose(out, by_hand, atol=1e-5)

    same = {"mask": lambda b, h, q, kv: (kv <= q) & (q // 40 == kv // 40), "score": score}
    assert np.allclose(out, rg.attention(q, k, v, **same, engine="reference"), atol=1e-5)
    assert np.array_equal(out, rg.attention(*map(torch.from_numpy, (q, k, v)), mask=mask, score=score))
    last = rg.attention_weights(q, k, mask=mask, score=score, rows=[99])
    assert np.allclose(last @ v, out[:, 99:], atol=1e-5)
