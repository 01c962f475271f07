"""JAX gives the mean of all values, forbidden ones included, in a fully masked row; NaN if a bias of −inf masks it."""

import jax
import jax.numpy as jnp

q, v = jnp.zeros((1, 2, 1, 2)), jnp.eye(2)[None, :, None]
mask = jnp.array([[False, False], [True, False]])[None, None]
mean = jax.nn.dot_product_attention(q, q, v, mask=mask)[0, 0, 0]
nan = jax.nn.dot_product_attention(q, q, v, bias=jnp.where(mask, 0.0, -jnp.inf))[0, 0, 0]
print(mean, nan)
assert mean.tolist() == [0.5, 0.5] and jnp.isnan(nan).all()
