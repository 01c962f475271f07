"""keras.ops.dot_product_attention on the backend jax."""

import os

os.environ["KERAS_BACKEND"] = "jax"  # read when keras is imported

import keras

from regard.conformance import adapter

ADAPTER = {
    "arrays": "jax",
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
    "gradients": "jax",
}


@adapter(**ADAPTER)
def attention(query, key, value, bias=None, mask=None, scale=None, is_causal=False):
    return keras.ops.dot_product_attention(query, key, value, bias=bias, mask=mask, scale=scale, is_causal=is_causal)
