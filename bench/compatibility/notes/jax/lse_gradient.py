"""JAX's gradient of the lse is 0: for q = 0 and keys 0 and 1 it is 0 instead of 0.5."""

import jax
import jax.numpy as jnp

q, k = jnp.zeros((1, 1, 1, 1)), jnp.array([0.0, 1.0]).reshape(1, 2, 1, 1)
gradient = jax.grad(lambda q: jax.nn.dot_product_attention(q, k, k, return_residual=True)[1].sum())(q)
step = 0.01
lse = [jax.nn.dot_product_attention(q + h, k, k, return_residual=True)[1][0, 0, 0] for h in (-step, step)]
print(gradient, (lse[1] - lse[0]) / (2 * step))
assert gradient.item() == 0 and abs((lse[1] - lse[0]) / (2 * step) - 0.5) < 0.01
