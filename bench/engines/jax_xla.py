"""JAX: jax.nn.dot_product_attention compiled by XLA; softcap is composed, because the function does not support it."""

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
    extra = None
    if case.twist == "softcap":
        attend, extra = softcapped, jnp.asarray(inputs.additive)
    elif case.twist == "alibi" or case.pattern in ("documents", "prefix"):
        attend, extra = jax.nn.dot_product_attention, jnp.asarray(inputs.additive)
    else:
        window = (case.reach - 1, 0) if case.pattern == "window" else None

        def attend(q, k, v, _):
            return jax.nn.dot_product_attention(q, k, v, is_causal=case.pattern != "full", local_window_size=window)

    if case.task == "gradients":
        dout = jnp.asarray(inputs.dout.swapaxes(1, 2))
        call = jax.jit(lambda q, k, v, extra: jax.vjp(lambda q, k, v: attend(q, k, v, extra), q, k, v)[1](dout))
    else:
        call = jax.jit(lambda q, k, v, extra: (attend(q, k, v, extra),))

    def read(found) -> tuple[np.ndarray, ...]:
        return tuple(np.asarray(array).astype(np.float32).swapaxes(1, 2) for array in found)

    return [Form("", lambda: jax.block_until_ready(call(q, k, v, extra)), read)]


def softcapped(q, k, v, additive):
    """Attention with softcap from basic operations, with as many key heads as query heads."""
    s = jnp.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k)
    p = jax.nn.softmax(CAP * jnp.tanh(s / CAP) + additive, axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", p, v)
