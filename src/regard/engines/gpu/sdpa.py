"""Engine "sdpa" on a device: PyTorch's fused scaled_dot_product_attention, for unmasked and causal calls."""

from __future__ import annotations

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from ...language.masks import causal
from .device_call import DeviceCall

FUSED = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]


def why_not(call: DeviceCall, lse: bool) -> list[str]:
    """Every reason why SDPA's fused kernels cannot compute the call; empty if they can. lse: whether it is returned."""
    problem, reasons = call.problem, []
    if 0 in problem.dims.values():
        reasons.append("the call is empty: SDPA needs at least one row, one key and depth")
    if lse:
        reasons.append("SDPA does not return lse")
    for part, what in ((problem.score, "a score"), (problem.sinks, "sinks"), (problem.dropout, "seeded dropout")):
        if part is not None:
            reasons.append(f"SDPA's kernels do not support {what}")
    if problem.mask is not None and problem.mask is not causal():
        reasons.append("SDPA's kernels support only the causal mask; any other would be a Q × K matrix")
    elif _keys(call) is None:
        reasons.append("SDPA's causal mask is aligned to the first key or to the last, and equal for all batch entries")
    elif call.q.shape[1] != call.k.shape[1] and _arguments(call)[2] == "to the last key":
        reasons.append(
            "SDPA's kernels for rows that do not begin at the first key need as many key heads as query heads"
        )
    return reasons or _unfused(call)


def attend(call: DeviceCall) -> tuple[torch.Tensor, None]:
    """softmax(scale · q kᵀ) v, over all keys or causal; the math backend, which builds the matrix, is disabled."""
    k, v, form = _arguments(call)
    given: dict = {"scale": call.problem.scale, "enable_gqa": call.q.shape[1] != k.shape[1]}
    if form == "from the first key":
        given["is_causal"] = True
    elif form == "to the last key":
        given["attn_mask"] = causal_lower_right(call.q.shape[2], k.shape[2])
    if call.q.device.type != "cuda":
        return scaled_dot_product_attention(call.q, k, v, **given), None
    with sdpa_kernel(FUSED):
        return scaled_dot_product_attention(call.q, k, v, **given), None


def _arguments(call: DeviceCall) -> tuple[torch.Tensor, torch.Tensor, str]:
    """The keys and values that any row attends to, and the mask: all of them, or causal, aligned to the first key or to
    the last.
    """
    keys, Q = _keys(call), call.q.shape[2]
    k, v = call.k[:, :, :keys], call.v[:, :, :keys]
    if call.problem.mask is None or Q == 1 or _all_visible(call):
        return k, v, "all"
    return k, v, "from the first key" if keys == Q else "to the last key"


def _all_visible(call: DeviceCall) -> bool:
    return bool((call.problem.query_start >= call.k.shape[2] - 1).all())


def _keys(call: DeviceCall) -> int | None:
    """The number of keys that any row attends to, such that the last row is at the last of them; None otherwise."""
    Q, K = call.q.shape[2], call.k.shape[2]
    if call.problem.mask is None or _all_visible(call):
        return K
    first, *others = set(call.problem.query_start.tolist())
    return first + Q if not others and 0 <= first <= K - Q else None


def _unfused(call: DeviceCall) -> list[str]:
    """The reason why no fused kernel of the device supports these tensors, if there is one."""
    if call.q.device.type != "cuda":
        return []
    from torch.backends.cuda import (
        SDPAParams,
        can_use_cudnn_attention,
        can_use_efficient_attention,
        can_use_flash_attention,
    )

    k, v, form = _arguments(call)
    given = SDPAParams(call.q, k, v, None, 0.0, form == "from the first key", call.q.shape[1] != k.shape[1])
    tried = [can_use_flash_attention, can_use_efficient_attention]
    if form != "to the last key":  # for which cuDNN would need a matrix
        tried.append(can_use_cudnn_attention)
    if any(can_use(given) for can_use in tried):
        return []
    return ["no fused SDPA kernel supports these shapes and dtypes on this GPU; the math backend builds the matrix"]
