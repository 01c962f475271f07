"""PyTorch's scaled_dot_product_attention: causal by a flag, any other rule as a dense additive mask."""

from __future__ import annotations

from torch.nn.functional import scaled_dot_product_attention

from ..cases import Inputs
from . import Form, torch_arrays, unsupported


def forms(inputs: Inputs) -> list[Form]:
    case = inputs.case
    if case.twist == "softcap":
        raise unsupported("torch SDPA", "softcap", "additive masks", "use torch eager")
    grouped = case.H != case.G
    if case.twist is None and case.pattern in ("full", "causal"):
        causal = case.pattern == "causal"
        return torch_arrays.forms(
            inputs, "", lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
        )
    # A boolean mask would be converted to floats in every call.
    mask = torch_arrays.additive(inputs)
    return torch_arrays.forms(
        inputs, "dense mask", lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
    )
