"""torch.nn.functional.scaled_dot_product_attention on the CPU: as torch chooses, and with each backend forced."""

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from regard.conformance import adapter

ADAPTER = {
    "arrays": "torch",
    "parameters": {
        "q": "query",
        "k": "key",
        "v": "value",
        "mask": "attn_mask",
        "bias": "attn_mask",
        "causal": "is_causal",
        "scale": "scale",
        "dropout": "dropout_p",
    },
    "fixed": {"enable_gqa": True},
    "mask_shapes": ("BHQK", "B1QK", "1HQK", "11QK", "B11K", "HQK", "QK"),
    "causal": "top-left",
    "dtypes": ("float32", "float64", "float16", "bfloat16"),
    "gradients": "torch",
}
FLASH = ADAPTER | {"mask_shapes": ("BHQK", "B1QK", "1HQK", "11QK", "B11K", "QK")}


@adapter(**ADAPTER)
def default(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    return scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


@adapter(**ADAPTER)
def math(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    with sdpa_kernel(SDPBackend.MATH):
        return default(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


@adapter(**FLASH)
def flash(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return default(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
