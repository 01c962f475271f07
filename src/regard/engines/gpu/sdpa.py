"""Engine "sdpa" on a device: torch's fused scaled_dot_product_attention, for what is plain or causal."""

from __future__ import annotations

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from ...language.masks import causal
from .device_call import DeviceCall

__all__ = ["attend", "why_not"]

FUSED = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]


def why_not(call: DeviceCall, lse: bool) -> list[str]:
    """Every reason why SDPA's fused kernels cannot solve the call; empty if they can. lse: whether lse is wanted."""
    problem, reasons = call.problem, []
    B, H, G, Q, K = (problem.dims[name] for name in "BHGQK")
    if 0 in (B, H, Q, K):
        reasons.append("there is nothing to compute: SDPA wants a row and a key")
    if lse:
        reasons.append("SDPA gives no lse")
    for part, what in ((problem.score, "score"), (problem.sinks, "sinks"), (problem.dropout, "dropout of a seed")):
        if part is not None:
            reasons.append(f"SDPA's kernels know no {what}")
    if problem.mask is not None and problem.mask is not causal():
        reasons.append("SDPA's kernels know only the causal mask; another would be a matrix of Q × K")
    elif _keys(call) is None:
        reasons.append("SDPA's causal mask begins at the first key or ends at the last, for all batch entries alike")
    elif H != G and _asked(call)[2] == "to the last key":
        reasons.append(
            "SDPA's kernels for rows that do not begin at the first key want as many key heads as query heads"
        )
    return reasons or _unfused(call)


def attend(call: DeviceCall) -> tuple[torch.Tensor, None]:
    """softmax(scale · q kᵀ) v, all keys or the causal ones; the plain form, which builds the matrix, is locked out."""
    k, v, form = _asked(call)
    given: dict = {"scale": call.problem.scale, "enable_gqa": call.q.shape[1] != k.shape[1]}
    if form == "from the first key":
        given["is_causal"] = True
    elif form == "to the last key":
        given["attn_mask"] = causal_lower_right(call.q.shape[2], k.shape[2])
    if call.q.device.type != "cuda":
        return scaled_dot_product_attention(call.q, k, v, **given), None
    with sdpa_kernel(FUSED):
        return scaled_dot_product_attention(call.q, k, v, **given), None


def _asked(call: DeviceCall) -> tuple[torch.Tensor, torch.Tensor, str]:
    """The keys and values that the rows see together, and how: all of them, causally from the first key, or to the
    last.
    """
    keys, Q = _keys(call), call.q.shape[2]
    k, v = call.k[:, :, :keys], call.v[:, :, :keys]
    if call.problem.mask is None or Q == 1 or _sees_all(call):
        return k, v, "all"
    return k, v, "from the first key" if keys == Q else "to the last key"


def _sees_all(call: DeviceCall) -> bool:
    return bool((call.problem.query_start >= call.k.shape[2] - 1).all())


def _keys(call: DeviceCall) -> int | None:
    """How many keys the rows see together, so that the last row stands at the last of them; None where there is no such
    number.
    """
    Q, K = call.q.shape[2], call.k.shape[2]
    if call.problem.mask is None or _sees_all(call):
        return K
    first, *others = set(call.problem.query_start.tolist())
    return first + Q if not others and 0 <= first <= K - Q else None


def _unfused(call: DeviceCall) -> list[str]:
    """Why no fused kernel takes tensors of this kind, on a device that has some."""
    if call.q.device.type != "cuda":
        return []
    from torch.backends.cuda import (
        SDPAParams,
        can_use_cudnn_attention,
        can_use_efficient_attention,
        can_use_flash_attention,
    )

    k, v, form = _asked(call)
    given = SDPAParams(call.q, k, v, None, 0.0, form == "from the first key", call.q.shape[1] != k.shape[1])
    tried = [can_use_flash_attention, can_use_efficient_attention]
    if form != "to the last key":  # which cuDNN would be given as a matrix
        tried.append(can_use_cudnn_attention)
    if any(can_use(given) for can_use in tried):
        return []
    return ["no fused kernel of SDPA takes these shapes and dtypes on this card, and its plain form builds the matrix"]
