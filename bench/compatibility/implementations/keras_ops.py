"""keras.ops.dot_product_attention, on the backend that the environment variable KERAS_BACKEND names."""

import os

from regard.conformance import adapter

ON_TORCH = {
    "arrays": "torch",
    "layout": "BSHD",
    "parameters": {
        "q": "query",
        "k": "key",
        "v": "value",
        "mask": "mask",
        "bias": "bias",
        "causal": "is_causal",
        "scale": "scale",
    },
    "mask_shapes": ("BHQK", "B1QK", "1HQK", "11QK", "B11K"),
    "causal": "top-left",
    "empty_row": "mean",
    "dtypes": ("float32", "float16", "bfloat16"),
    "gradients": "torch",
}
ON_JAX = ON_TORCH | {
    "arrays": "jax",
    "gradients": "jax",
}


def on(backend, query, key, value, **options):
    os.environ["KERAS_BACKEND"] = backend  # read when keras is imported
    import keras

    if keras.config.backend() != backend:
        raise RuntimeError(f"keras runs on {keras.config.backend()} in this process, not on {backend}")
    return keras.ops.dot_product_attention(query, key, value, **options)


@adapter(**ON_TORCH)
def on_torch(query, key, value, bias=None, mask=None, scale=None, is_causal=False):
    return on("torch", query, key, value, bias=bias, mask=mask, scale=scale, is_causal=is_causal)


@adapter(**ON_JAX)
def on_jax(query, key, value, bias=None, mask=None, scale=None, is_causal=False):
    return on("jax", query, key, value, bias=bias, mask=mask, scale=scale, is_causal=is_causal)
