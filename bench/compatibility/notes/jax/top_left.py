"""JAX aligns causal masks and windows with the first key: of 2 rows over 4 keys, row 0 attends to key 0 only."""

import jax
import jax.numpy as jnp

q, k, v = jnp.zeros((1, 2, 1, 4)), jnp.zeros((1, 4, 1, 4)), jnp.eye(4)[None, :, None]
causal = jax.nn.dot_product_attention(q, k, v, is_causal=True)[0, :, 0]
window = jax.nn.dot_product_attention(q, k, v, local_window_size=(1, 0))[0, :, 0]
print(causal, window, sep="\n")
assert causal[0].tolist() == window[0].tolist() == [1, 0, 0, 0]
