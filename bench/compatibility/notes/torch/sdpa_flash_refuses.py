"""torch's SDPA with flash forced refuses another value depth, dropout, a last axis with gaps, gradients of a mask."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

x, gaps = torch.zeros(1, 1, 3, 8), torch.zeros(1, 1, 3, 16)[..., ::2]
calls = {
    "value depth": ((x, x, x[..., :4]), {}),
    "dropout": ((x, x, x), {"dropout_p": 0.5}),
    "gaps": ((x, x, gaps), {}),
    "gradients": ((x, x, x), {"attn_mask": torch.zeros(3, 3, requires_grad=True)}),
}
for name, (arrays, options) in calls.items():
    print(name, torch.nn.functional.scaled_dot_product_attention(*arrays, **options).shape)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(*arrays, **options)
        raise AssertionError("the flash backend computed it")
    except RuntimeError as error:
        print("flash:", error)
