"""What moves: the lengths of values, and the share of special tokens in Σ p · length."""

import numpy as np
import pytest

import regard as rg
from regard.engines.choice import ONE_CALL
from regard.lens.look import of_arrays
from regard.lens.runs.figures import lengths
from tests.lens.minilm import SENTENCE, with_minilm
from tests.support.engines import normal


@pytest.mark.parametrize("groups", [1, 3])
def test_lengths_of_values(groups):
    """‖v‖ of the key head of each head; with an output projection, ‖W_o v‖ by its columns of the head."""
    v, w_o = normal(groups, 5, 4), normal(16, 3, 4, seed=1)
    own = np.repeat(v, 3 // groups, 0)
    for matrix, exact in ((None, own), (w_o.reshape(16, 12), np.einsum("hke,mhe->hkm", own, w_o))):
        np.testing.assert_allclose(lengths(v, 3, matrix), np.linalg.norm(exact, axis=-1), rtol=1e-6)


@pytest.mark.parametrize("n", [9, int((ONE_CALL / 2) ** 0.5) + 30])
def test_what_moves(n):
    """Σ p ‖v‖ of each row, and the share of special tokens in it, by brute force; in NumPy and compiled."""
    q, k, v = normal(3, 2, n, 8)
    special, sinks = np.arange(n) % 4 == 0, np.array([0.5, -1.0], np.float32)
    call = of_arrays(q, k[:1], v[:1], special=special, mask=rg.causal(), sinks=sinks).calls[0]
    parts = call.weights() * np.linalg.norm(v[0].astype(float), axis=-1)
    np.testing.assert_allclose(call.rows["moved"], parts.sum(-1), rtol=2e-5)
    np.testing.assert_allclose(call.rows["moved_special"], parts[:, :, special].sum(-1) / parts.sum(-1), atol=2e-6)
    np.testing.assert_allclose(call.figures["moved_special"], call.rows["moved_special"].mean(-1), rtol=1e-5)
    assert call.notes["lengths"] == "‖v‖" and call.lengths.shape == (2, n)


@with_minilm
def test_special_tokens_of_minilm_hold_half_of_the_weight_and_move_little(tmp_path):
    """Its output projection is known; the figures come back from a folder, also where values are not kept."""
    rg.look(text=SENTENCE, values=False, into=tmp_path / "run")
    run = rg.look(tmp_path / "run")
    held, moved = (np.mean([call.figures[name] for call in run.calls]) for name in ("special", "moved_special"))
    assert held == pytest.approx(0.498, abs=0.002) and moved == pytest.approx(0.137, abs=0.003)
    assert {call.notes["lengths"] for call in run.calls} == {"‖v W_o‖"} and run.calls[0].v is None


def test_values_without_a_length():
    """A value that is not finite makes the rows that attend to it no numbers, and no others. Without values nothing is
    said to move.
    """
    q, v = np.ones((2, 1, 4, 4), np.float32)
    v[0, 2, 1] = np.nan
    call = of_arrays(q, q, v, mask=rg.causal()).calls[0]
    assert np.isnan(call.rows["moved"]).tolist() == [[False, False, True, True]]
    bare = of_arrays(q, q).calls[0]
    assert bare.lengths is None and "moved" not in bare.rows and "lengths" not in bare.notes
