"""Eager PyTorch: matmul, softmax, matmul, with the full matrix in memory and in-place operations."""

from __future__ import annotations

import torch

from ..cases import CAP, Inputs
from . import Form, torch_arrays


def forms(inputs: Inputs) -> list[Form]:
    case = inputs.case
    free = case.pattern == "full" and case.twist is None
    mask = None if free else torch_arrays.additive(inputs)
    if mask is not None and mask.shape[1] > 1:
        mask = mask.view(1, case.G, case.H // case.G, case.Q, case.K)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        # The heads of a group are consecutive: (B, G, H/G, Q, D) against (B, G, 1, K, D).
        q = q.view(case.B, case.G, case.H // case.G, case.Q, case.D)
        k, v = k[:, :, None], v[:, :, None]
        s = (q * case.D**-0.5) @ k.mT
        if case.twist == "softcap":
            s = s.div_(CAP).tanh_().mul_(CAP)
        if mask is not None:
            s += mask
        return (torch.softmax(s, -1) @ v).view(case.B, case.H, case.Q, case.D)

    return torch_arrays.forms(inputs, "", attend)
