"""Arrays of JAX: alone, and inside its programs, where attention is a callback with gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import regard as rg
from tests.support.engines import normal
from tests.support.refusals import refusing

B, H, Q, D = 2, 4, 6, 8
q, k, v = (jnp.asarray(normal(B, heads, Q, D, seed=seed)) for seed, heads in ((0, H), (1, 2), (2, 2)))
bias, sinks = jnp.asarray(normal(H, Q, Q, seed=3)), jnp.asarray(normal(H, seed=4))
allowed = jnp.asarray(np.random.default_rng(5).random((B, 1, Q, Q)) < 0.7).at[..., 0].set(True)


def attend(q, k, v, bias, sinks, allowed):
    return rg.attention_with_lse(q, k, v, score=bias, sinks=sinks, mask=allowed)


def written_out(q, k, v, bias, sinks, allowed):
    """The same, by operations of JAX."""
    k, v = (jnp.repeat(each, H // 2, 1) for each in (k, v))
    scores = jnp.where(allowed, q @ k.swapaxes(-1, -2) / D**0.5 + bias, -jnp.inf)
    more = jnp.broadcast_to(sinks[:, None, None], (*scores.shape[:3], 1))
    lse = jax.nn.logsumexp(jnp.concatenate([scores, more], -1), -1)
    return jnp.exp(scores - lse[..., None]) @ v, lse


def close(found, expected, atol=1e-5):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), atol=atol, rtol=1e-4)


def test_arrays_of_jax():
    """They come back as what they were, in their dtype, and have the numbers of NumPy's."""
    for dtype in (jnp.float32, jnp.float16, jnp.bfloat16):
        given = [each.astype(dtype) for each in (q, k, v)]
        out, lse = rg.attention_with_lse(*given, mask=rg.causal())
        slopes = rg.attention_backward(out, *given, mask=rg.causal())
        assert all(isinstance(each, jax.Array) and each.dtype == dtype for each in (out, *slopes[:3]))
        assert isinstance(lse, jax.Array)
        same = rg.attention_with_lse(*map(np.asarray, given), mask=rg.causal())
        assert np.array_equal(np.asarray(out), same[0]) and np.array_equal(np.asarray(lse), same[1])
        for function in (rg.attention_weights, lambda *qk: rg.merge([rg.attention_part(*qk, qk[1])]).result()[0]):
            found = function(*given[:2])
            assert isinstance(found, jax.Array) and np.array_equal(found, function(*map(np.asarray, given[:2])))


def test_a_program():
    """jit, with masks, scores and sinks that are arrays of the program, and the gradients of all that have any."""
    given = q, k, v, bias, sinks, allowed

    def loss(function, *arrays):
        out, lse = function(*arrays)
        return (out**2).sum() + (lse * jnp.cos(lse)).sum()

    close(jax.jit(attend)(*given), written_out(*given))
    ours, theirs = (
        jax.jit(jax.grad(functools.partial(loss, function), argnums=range(5)))(*given)
        for function in (attend, written_out)
    )
    close(ours, theirs, 1e-4)


def test_vmap_and_scan():
    """One call with a leading axis where nothing counts batch entries, else call by call: the same numbers."""
    several = jnp.stack([q, q[::-1], q * 2])
    rules = {"causal": rg.causal(), "per batch": rg.lengths([3, 5]), "array": allowed}
    for mask in rules.values():
        call = functools.partial(rg.attention, mask=mask)
        found = jax.jit(jax.vmap(lambda q, call=call: call(q, k, v)))(several)
        close(found, jnp.stack([call(each, k, v) for each in several]))
        slopes = jax.vmap(jax.grad(lambda q, call=call: call(q, k, v).sum()))(several)
        alone = jax.grad(lambda q, call=call: call(q, k, v).sum())
        close(slopes, jnp.stack([alone(each) for each in several]))
    masks = jnp.stack([allowed, ~allowed])
    found = jax.vmap(lambda mask: rg.attention(q, k, v, mask=mask))(masks)
    close(found, jnp.stack([rg.attention(q, k, v, mask=mask) for mask in masks]))
    starts = jax.jit(lambda start: rg.attention(q, k, v, mask=rg.causal(), query_start=start))(jnp.array([0, 2]))
    close(starts, rg.attention(q, k, v, mask=rg.causal(), query_start=np.array([0, 2])))
    last, _ = jax.lax.scan(lambda carried, _: (rg.attention(carried, k, v), None), q, jnp.arange(3))
    close(last, rg.attention(rg.attention(rg.attention(q, k, v), k, v), k, v))


def test_what_does_not_fit_is_refused_while_the_program_is_traced():
    """With regard's own words, before anything is computed; other functions say what works in a program."""
    with refusing("q and k differ in depth"):
        jax.jit(lambda q: rg.attention(q, k[..., :4], v))(q)
    with refusing("reshape"):
        jax.grad(lambda number: rg.attention(q, k, v, score=number).sum())(1.0)
    with refusing("score="):
        jax.jit(lambda bias: rg.attention(q, k, v, score=lambda s, b, h, i, j: s + rg.table(bias)[h, i, j]))(bias)
    with refusing("in programs of JAX call attention"):
        jax.jit(lambda q: rg.attention_weights(q, k))(q)
