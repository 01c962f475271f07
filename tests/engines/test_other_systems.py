"""Systems on which compiled kernels cannot run: every call is computed by the reference, and says why."""

import pytest

from tests.support.kernels import fresh

# Windows has no library of the process itself, and this is the error that it raises.
WITHOUT = """
import ctypes
real = ctypes.CDLL

class CDLL(real):
    def __init__(self, name, *args, **kwargs):
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        super().__init__(name, *args, **kwargs)

ctypes.CDLL = CDLL
"""

CALLS = """
import numpy as np, regard as rg

rng = np.random.default_rng(0)
for dtype in (np.float32, np.float16, np.float64):
    q, k, v = (rng.standard_normal((1, 4, rows, 8)).astype(dtype) for rows in (5, 7, 7))
    for rules in ({}, {"mask": rg.causal()}, {"score": rg.softcap(3.0), "mask": rg.window(3)}, {"sinks": np.zeros(4)}):
        same = {"rtol": 1e-3, "atol": 1e-3}
        for _ in range(3):
            out, lse = rg.attention_with_lse(q, k, v, **rules)
            np.testing.assert_array_equal(rg.attention(q, k, v, **rules), out)
            np.testing.assert_array_equal(rg.attention(q, k, v, engine="reference", **rules), out)
        np.testing.assert_allclose(rg.attention_weights(q, k, **rules) @ v, out, **same)
        assert rg.attention_backward(out, q, k, v, **rules)[0].shape == q.shape
        assert rg.attention_stats(q, k, of=["entropy"], **rules).entropy.shape == q.shape[:3]
        parts = [rg.attention_with_lse(q, k[:, :, some], v[:, :, some]) for some in (slice(0, 3), slice(3, 7))]
        np.testing.assert_allclose(rg.merge(parts)[0], rg.attention(q, k, v), **same)
        explained = str(rg.explain(q, k, v, **rules))
        assert "reference" in explained and "functions of POSIX" in explained, explained
    cache = rg.KVCache(batch=1, heads=4, depth=8, dtype=dtype)
    cache.append(k[:, :, :2], v[:, :, :2])
    cache.append(k[:, :, 2:], v[:, :, 2:])
    np.testing.assert_allclose(cache.attend(q), rg.attention(q, k, v), **same)
for call in (lambda: rg.attention(q, k, v, engine="jit"), lambda: rg.attention_part(q, k, v)):
    try:
        call()
    except rg.Refused as error:
        assert "functions of POSIX" in str(error), error
    else:
        raise AssertionError
"""

WITH_TORCH = """
import torch, regard.torch
x = torch.randn(1, 2, 5, 8, requires_grad=True)
for _ in range(3):
    out = regard.torch.attention(x, x, x, mask=rg.causal())
    out.sum().backward()
np.testing.assert_allclose(out.detach(), rg.attention(*[x.detach().numpy()] * 3, mask=rg.causal()), rtol=1e-5)
with torch.no_grad():
    torch.testing.assert_close(rg.attention(x, x, x, mask=rg.causal()), out.detach())
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("more", ["", WITH_TORCH], ids=["arrays", "torch"])
def test_without_the_functions_of_posix_the_reference_computes(more):
    """Every public call of the CPU, where the process has no C library; an explicit request says why it cannot be."""
    assert fresh(WITHOUT + CALLS + more + "\nprint('done')") == "done"
