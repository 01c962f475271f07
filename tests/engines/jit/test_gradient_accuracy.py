"""The error of gradients next to what the usual computation makes in the same dtype, on random problems."""

import functools

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.engines.jit.code.target import ISAS, host, limited
from regard.engines.reference import attention as reference
from regard.language.problem import Problem
from tests.support.machine import each_isa

pytestmark = pytest.mark.slow

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
H, CAP = 4, 1.5
SLOPES = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
FLAT = "saturated", "sigmoid"  # rules that are used where they are nearly flat, so that derivatives nearly vanish
SINKS = np.linspace(-1, 2, H, dtype=np.float32)
# A name: regard's rule; whether rows see no later keys; a function of the scores and of how each step is rounded.
RULES = {
    "dense": ({}, False),
    "causal": ({"mask": rg.causal()}, True),
    "window": ({"mask": rg.causal() & rg.window(9)}, True),
    "alibi": ({"mask": rg.causal(), "score": rg.alibi(SLOPES)}, True),
    "softcap": ({"score": rg.softcap(20.0)}, False),
    "saturated": ({"score": rg.softcap(CAP)}, False),
    "sigmoid": ({"score": 4 * rg.sigmoid(rg.score)}, False),
    "sinks": ({"sinks": SINKS}, False),
}


@functools.cache
def problem_of(name: str, seed: int, dtype):
    """(rule, q, k, v, dout) of random sizes and sharpness; keys with a common mean, as projections with a bias have."""
    rng = np.random.default_rng(seed)
    Q, K, D = int(rng.integers(1, 200)), int(rng.integers(2, 300)), int(rng.choice([24, 64]))
    K = max(Q, K) if RULES[name][1] else K
    G = int(rng.choice([1, 2, 4]))
    E = D
    if name in FLAT:
        D, E = 1, 8
    sharp, mean = rng.uniform(0.3, 3.0), rng.choice([0.0, 1.0])
    q, k, v, dout = (rng.standard_normal((1, *shape)) for shape in ((H, Q, D), (G, K, D), (G, K, E), (H, Q, E)))
    if name in FLAT:  # every score is between 5 and 9
        q, k = rng.uniform(2.3, 3.0, q.shape), rng.uniform(2.3, 3.0, k.shape)
        sharp, mean = 1.0, 0.0
    return RULES[name][0], *(part.astype(dtype) for part in (sharp * q, sharp * k + mean, v, dout))


def errors(found, exact) -> np.ndarray:
    """The root mean square of the errors of dq, dk, dv, relative to that of the law; NaN where the law is 0."""
    apart = [np.asarray(x, np.float64) - y for x, y in zip(found[:3], exact[:3], strict=True)]
    sizes = [np.sqrt((y**2).mean()) for y in exact[:3]]
    return np.array([np.sqrt((x**2).mean()) / size if size else np.nan for x, size in zip(apart, sizes, strict=True)])


@functools.cache
def law(name: str, seed: int, dtype):
    rule, q, k, v, dout = problem_of(name, seed, dtype)
    return reference.backward(Problem.of(*(part.astype(np.float64) for part in (q, k, v)), **rule), dout)


def apart(name: str, Q: int, K: int):
    """(Q, K) which keys a rule hides from a row, and how far they are from it."""
    distance = np.arange(K) - (np.arange(Q)[:, None] + K - Q)
    return RULES[name][1] & (distance > 0) | (name == "window") & (distance <= -9), distance


def eager(name: str, q, k, v, dout, exact_until: str = ""):
    """The gradients of the usual formula with each matrix rounded to the dtype, as models compute them without a fused
    kernel: products, the softmax and its derivative are computed in float32.

    exact_until: "weights" computes everything in float64, except that P and dS are rounded to bfloat16 before their
    products, and the gradients at the end: what no kernel can avoid whose products take pairs of bfloat16. "end" rounds
    only the gradients.
    """
    dtype, real = q.dtype, np.dtype(np.float64 if exact_until else np.float32)

    def rounded(x):
        return x if exact_until else x.astype(dtype).astype(real)

    factor = H // k.shape[1]
    scale = real.type(q.shape[-1] ** -0.5)
    q, k, v, dout = (part.astype(real) for part in (q, k, v, dout))
    k, v = (part.repeat(factor, 1) for part in (k, v))
    s, slope = rounded(rounded(q @ k.swapaxes(-1, -2)) * scale), 1.0
    if name in ("softcap", "saturated"):
        cap = real.type(CAP if name == "saturated" else 20.0)
        t = rounded(np.tanh(rounded(s / cap).astype(np.float64)).astype(real))  # torch's tanh is rounded correctly
        s, slope = rounded(t * cap), 1 - rounded(t * t)
    if name == "sigmoid":
        t = rounded(1 / (1 + np.exp(-s)))
        s, slope = rounded(4 * t), 4 * t * (1 - t)
    hidden, distance = apart(name, q.shape[2], k.shape[2])
    if name == "alibi":
        s = rounded(s + rounded(SLOPES[:, None, None] * distance.astype(real)))
    s = np.where(hidden, real.type(-np.inf), s)
    sinks = SINKS[:, None, None].astype(real) if name == "sinks" else np.full((1, 1, 1), -np.inf, real)
    top = np.maximum(s.max(-1, keepdims=True), sinks)
    e = np.exp(s - top)
    p = e / (e.sum(-1, keepdims=True) + np.exp(sinks - top))
    weights = rounded(p)
    dp = rounded(dout @ v.swapaxes(-1, -2))
    ds = rounded(p * (dp - (p * dp).sum(-1, keepdims=True))) * slope
    ds = rounded(rounded(ds) * scale)
    if exact_until == "weights":
        weights, ds = (part.astype(ml_dtypes.bfloat16).astype(np.float64) for part in (weights, ds))
    turned = ((ds.swapaxes(-1, -2) @ q), weights.swapaxes(-1, -2) @ dout)
    dk, dv = (part.reshape(1, H // factor, factor, *part.shape[2:]).sum(2) for part in turned)
    return [part.astype(dtype) for part in (ds @ k, dk, dv)]


def ratios(name: str, dtype, others, seeds: int = 4) -> np.ndarray:
    """By how much regard's errors of dq, dk, dv exceed those of another computation, a geometric mean over problems."""
    found = []
    for seed in range(seeds):
        rule, q, k, v, dout = problem_of(name, seed, dtype)
        exact = law(name, seed, dtype)
        ours = rg.attention_backward(dout, q, k, v, engine="jit", **rule)
        with np.errstate(divide="ignore", invalid="ignore"):
            found.append(np.log(errors(ours, exact) / errors(others(name, q, k, v, dout), exact)))
    kept = np.ma.masked_invalid(found)
    assert kept.count() > seeds
    return np.exp(kept.mean(0).filled(0))


@pytest.mark.spread
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RULES)
def test_no_larger_than_eager(name, dtype):
    """The error is at most that of the usual formula in the same dtype, on the same numbers. In float32 a row of few
    keys may lose a little more: δ is Σ dout · out, not Σ P · dP of the rounded dP from which it is subtracted.
    """
    assert ratios(name, DTYPES[dtype], eager).max() <= (1.25 if dtype == "float32" else 1.1)


@pytest.mark.spread
@each_isa
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["causal", "softcap", "sinks"])
def test_16_bit_gradients_lose_only_the_last_rounding(name, dtype, isa):
    """dq, dk and dv in 16 bits are as near as the rounding of the result allows, and of P and dS where products take
    pairs of bfloat16: that out was rounded to 16 bits adds nothing.
    """
    with limited(isa):
        pairs = ISAS[host().isa].pairs and dtype == "bfloat16"
        worst = ratios(name, DTYPES[dtype], functools.partial(eager, exact_until="weights" if pairs else "end")).max()

    assert worst <= 1.15


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["dense", "causal", "window", "alibi"])
def test_no_larger_than_fused_sdpa(name, dtype):
    """The error is at most that of torch's fused attention in the same dtype, on the same numbers."""
    torch = pytest.importorskip("torch")
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def fused(name, *parts):
        q, k, v, dout = (torch.from_numpy(part.astype(np.float32)).to(getattr(torch, dtype)) for part in parts)
        leaves = [part.requires_grad_() for part in (q, k, v)]
        hidden, distance = apart(name, q.shape[2], k.shape[2])
        added = np.where(hidden, -np.inf, SLOPES[:, None, None] * distance if name == "alibi" else 0.0)
        added = torch.from_numpy(np.broadcast_to(added, (1, H, *hidden.shape)).copy()).to(q.dtype)
        k, v = (part.repeat_interleave(H // part.shape[1], 1) for part in (k, v))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, added)
        out.backward(dout)
        return [leaf.grad.double().numpy() for leaf in leaves]

    assert ratios(name, DTYPES[dtype], fused).max() <= 1.1
