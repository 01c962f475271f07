"""JAX on the CPU holds the matrix of weights: 256 MiB for 8192 rows."""

import resource
import sys

import jax
import jax.numpy as jnp

x = jnp.ones((1, 8192, 1, 16))
jax.nn.dot_product_attention(x[:, :8], x[:, :8], x[:, :8]).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
jax.nn.dot_product_attention(x, x, x).block_until_ready()
unit = 2**20 if sys.platform == "darwin" else 2**10
grew = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / unit
print(f"{grew:.0f} MiB")
assert grew > 250
