"""Engine "sdpa": torch's own attention answers as the law does, or says why it cannot."""

import functools

import numpy as np
import pytest

import regard as rg
from tests.support.engines import normal, qkv
from tests.support.lanes import by_name
from tests.support.refusals import refusing

pytest.importorskip("torch", reason='engine "sdpa" is torch')

draw = functools.partial(qkv, H=4, G=2, Q=5, K=9, D=8, E=6)
RULES = {
    "plain": {},
    "causal, grouped heads": {"mask": rg.causal()},
    "lengths per batch entry": {"mask": rg.lengths(np.array([4, 9]))},
    "rows that see nothing": {"mask": rg.causal() & (rg.query > 5)},
    "bias": {"score": normal(4, 5, 9)},
    "alibi and window": {"score": rg.alibi(4), "mask": rg.window(3)},
    "minus infinity removes": {"score": rg.score + rg.where(rg.key < 7, 0.0, float("-inf"))},
    "scale and start": {"scale": 0.3, "query_start": np.array([0, 2]), "mask": rg.causal()},
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@by_name("rule", RULES)
def test_the_law(rule, dtype):
    """Output and lse equal the reference's, to the precision of the dtype."""
    q, k, v = draw(dtype=dtype)
    want, want_lse = rg.attention_with_lse(q, k, v, engine="reference", **rule)
    out, lse = rg.attention_with_lse(q, k, v, engine="sdpa", **rule)
    assert out.dtype == lse.dtype == dtype
    np.testing.assert_allclose(out, want, rtol=0, atol=30 * np.finfo(dtype).eps)
    np.testing.assert_allclose(lse, want_lse, rtol=0, atol=30 * np.finfo(dtype).eps)


def test_strides_that_torch_does_not_take():
    """Reversed and read-only arrays give the same result as their copies."""
    q, k, v = draw()
    backwards = k[:, :, ::-1]
    v.flags.writeable = False
    np.testing.assert_array_equal(
        rg.attention(q, backwards, v, engine="sdpa"), rg.attention(q, backwards.copy(), v, engine="sdpa")
    )


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"score": rg.softcap(5.0)}, "only an additive bias"),
        ({"score": 1.0 - rg.score}, "only an additive bias"),
        ({"score": rg.score + rg.floor(rg.score)}, "only an additive bias"),
        ({"sinks": np.zeros(4, np.float32)}, "does not support sinks"),
        ({"dropout": 0.1, "seed": 1}, "SDPA draws dropout from its own generator"),
    ],
)
def test_what_sdpa_cannot_say_is_refused(rule, reason):
    """A requested engine runs or raises `Refused` with its reasons; it never silently computes something else."""
    with refusing(reason):
        rg.attention(*draw(), engine="sdpa", **rule)


def test_nan_behind_a_mask_is_refused():
    """NaN passes through the mask of SDPA, so with a mask such values are rejected; without one they propagate."""
    q, k, v = draw()
    v[0, 0, 8] = np.nan
    with refusing("NaN"):
        rg.attention(q, k, v, mask=rg.key < 8, engine="sdpa")
    assert np.isnan(rg.attention(q, k, v, engine="sdpa")[0, :2]).all()
