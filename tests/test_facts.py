"""Facts about attention that its sources state, in every engine."""

import numpy as np
import pytest

import regard as rg
from tests.support.engines import TOLERANCE, engines, normal, qkv, same_bits


def test_fact_weights_are_non_negative_and_sum_to_one():
    """Every row of the weights is a probability distribution."""
    q, k, _ = qkv()
    weights = rg.attention_weights(q, k, mask=rg.causal(), score=rg.softcap(3.0))
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)


@engines
def test_fact_the_output_is_a_convex_combination_of_the_values(engine):
    """No output leaves the range of the values that its row attends."""
    q, k, v = qkv(Q=37)
    out = rg.attention(4 * q, k, v, mask=rg.causal(), engine=engine)
    low, high = np.minimum.accumulate(v, 2), np.maximum.accumulate(v, 2)
    assert (low - 1e-5 <= out).all()
    assert (out <= high + 1e-5).all()


@engines
def test_fact_self_attention_is_permutation_equivariant(engine):
    """Without positions, shuffling the rows shuffles the output and does nothing else."""
    q, k, v = qkv(Q=37)
    shuffle = np.random.default_rng(5).permutation(37)
    shuffled = rg.attention(*(part[:, :, shuffle] for part in (q, k, v)), engine=engine)
    np.testing.assert_allclose(shuffled, rg.attention(q, k, v, engine=engine)[:, :, shuffle], **TOLERANCE)


@engines
@pytest.mark.parametrize("D", [4, 64, 256])
def test_fact_scaling_keeps_the_variance_of_scores_near_one(engine, D):
    """Scores q·k/√D of unit normal rows have variance near 1 at any depth; unscaled it is D."""
    q, k = normal(3600, 1, 1, D, seed=1), normal(3600, 1, 1, D, seed=2)
    _, lse = rg.attention_with_lse(q, k, k, engine=engine)  # one key per row, so lse is its score
    assert lse.var() == pytest.approx(1, abs=0.15)


@engines
@pytest.mark.parametrize("position", [0, 17, 36])
def test_fact_a_future_token_changes_nothing_before_it(engine, position):
    """Under a causal mask, a change of token t changes no bit of the outputs before t, and does change those from t
    on.
    """
    q, k, v = qkv(Q=37)
    before = rg.attention(q, k, v, mask=rg.causal(), engine=engine)
    k, v = k.copy(), v.copy()
    k[:, :, position], v[:, :, position] = 9, -9
    after = rg.attention(q, k, v, mask=rg.causal(), engine=engine)
    same_bits(before[:, :, :position], after[:, :, :position])
    assert (before[:, :, position:] != after[:, :, position:]).any(-1).all()


def test_fact_the_matrix_of_2048_rows_is_16_megabytes():
    """n = 2048 in float32 is 16 MB of weights per head; 100,000 would be 40 GB, of which one row can be had."""
    x = normal(2048, 4)
    assert rg.attention_weights(x, x).nbytes == 16 * 2**20
    x = normal(100_000, 4)
    assert rg.attention_weights(x, x, rows=0).nbytes * 100_000 == 40e9
