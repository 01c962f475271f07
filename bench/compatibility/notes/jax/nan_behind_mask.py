"""JAX lets a NaN in a masked value through, but not one in a masked key."""

import jax
import jax.numpy as jnp

x, mask = jnp.ones((1, 3, 1, 2)), jnp.array([[True, True, False]] * 3)[None, None]  # no row attends to key 2
bad = x.at[0, 2].set(jnp.nan)
value = jax.nn.dot_product_attention(x, x, bad, mask=mask)[0, :, 0, 0]
key = jax.nn.dot_product_attention(x, bad, x, mask=mask)[0, :, 0, 0]
print(value, key)
assert jnp.isnan(value).all() and (key == 1).all()
