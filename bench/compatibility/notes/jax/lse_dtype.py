"""JAX returns the lse of 16-bit inputs in 16 bits: ln(1000) is 6.90625 instead of 6.9078 in bfloat16."""

import jax
import jax.numpy as jnp

q, k = jnp.zeros((1, 1, 1, 2), jnp.bfloat16), jnp.zeros((1, 1000, 1, 2), jnp.bfloat16)
lse = jax.nn.dot_product_attention(q, k, k, return_residual=True)[1]
print(lse, lse.dtype, jnp.log(1000))
assert lse.dtype == jnp.bfloat16 and float(lse[0, 0, 0]) == 6.90625
