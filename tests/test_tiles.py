"""Tiles: whatever part of a matrix is asked, at whatever level, it is the matrix pooled by hand."""

import numpy as np

import regard as rg
from regard.lens import tiles
from regard.lens.look import of_arrays


def test_a_tile_of_single_pairs_is_the_matrix():
    """At level 0 a tile shows the weights themselves, and what the mask allows."""
    q, k = np.random.default_rng(0).standard_normal((2, 2, 40, 8), dtype=np.float32)
    call = of_arrays(q, k, mask=rg.causal()).calls[0]
    found = tiles.tile(call, 1, 0, 0, 0)
    np.testing.assert_allclose(found.share, rg.attention_weights(q, k, mask=rg.causal())[1], rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(found.allowed, np.tri(40, dtype=bool))
    assert found.exact == "exact"
