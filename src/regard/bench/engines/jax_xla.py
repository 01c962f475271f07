"""jax.nn.dot_product_attention compiled by XLA; a softcap is written out, because the function has no place for it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..cases import CAP, Inputs
from . import Form


def forms(inputs: Inputs) -> list[Form]:
    jax.config.update("jax_platforms", "cpu")
    case = inputs.case
    # This function's layout is (B, rows, heads, depth).
    q, k, v = (jnp.asarray(array.swapaxes(1, 2)) for array in (inputs.q, inputs.k, inputs.v))
    if case.twist == "softcap":
        call, extra = jax.jit(softcapped), jnp.asarray(inputs.additive)
    elif case.twist == "alibi" or case.pattern in ("documents", "prefix"):
        call, extra = jax.jit(lambda q, k, v, bias: jax.nn.dot_product_attention(q, k, v, bias)), jnp.asarray(inputs.additive)
    else:
        window = (case.reach - 1, 0) if case.pattern == "window" else None
        call = jax.jit(
            lambda q, k, v, _: jax.nn.dot_product_attention(q, k, v, is_causal=case.pattern != "full", local_window_size=window)
        )
        extra = None
    return [Form("", lambda: call(q, k, v, extra).block_until_ready(), lambda out: np.asarray(out).swapaxes(1, 2))]


def softcapped(q, k, v, additive):
    """The textbook with a softcap; as many key heads as query heads."""
    s = jnp.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k)
    p = jax.nn.softmax(CAP * jnp.tanh(s / CAP) + additive, axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", p, v)
