"""JAX computes float64 arrays in float32, unless jax_enable_x64 is set."""

import jax
import numpy as np

x = np.full((1, 2, 1, 2), 1 / 3)
out = jax.nn.dot_product_attention(x, x, x)
print(out.dtype, float(out[0, 0, 0, 0]) - 1 / 3)
assert out.dtype == np.float32
