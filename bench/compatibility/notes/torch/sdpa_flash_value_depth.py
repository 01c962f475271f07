"""torch's SDPA with the flash backend forced refuses values of another depth than keys; default and math compute it."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

q, v = torch.zeros(1, 1, 3, 8), torch.ones(1, 1, 3, 4)
print(torch.nn.functional.scaled_dot_product_attention(q, q, v).shape)
try:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        torch.nn.functional.scaled_dot_product_attention(q, q, v)
    raise AssertionError("the flash backend computed it")
except RuntimeError as error:
    print("flash:", error)
