"""jax.nn.dot_product_attention, with the implementation that XLA compiles."""

import jax

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
        "window": "local_window_size",
        "lengths": "key_value_seq_lengths",
        "scale": "scale",
    },
    "mask_shapes": ("BHQK", "B1QK", "1HQK", "11QK", "B11K"),
    "causal": "top-left",
    "window": "left-right",
    "lse_layout": "BQH",
    "empty_row": "mean",
    "empty_lse": "any",
    "dtypes": ("float32", "float16", "bfloat16"),
    "gradients": "jax",
    "returns": ("out", "lse"),
}


@adapter(**ADAPTER)
def xla(
    query,
    key,
    value,
    bias=None,
    mask=None,
    scale=None,
    is_causal=False,
    key_value_seq_lengths=None,
    local_window_size=None,
):
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        bias,
        mask,
        scale=scale,
        is_causal=is_causal,
        key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=local_window_size,
        return_residual=True,
        implementation="xla",
    )
