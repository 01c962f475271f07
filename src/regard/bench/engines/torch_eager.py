"""The textbook in torch: matmul, softmax, matmul, with the whole matrix in memory and every step in place."""

from __future__ import annotations

import torch

from ..cases import CAP, Inputs
from . import Form
from .torch_arrays import form, tensors


def forms(inputs: Inputs) -> list[Form]:
    case = inputs.case
    q, k, v = tensors(inputs)
    # The heads of a group stand beside each other: (B, G, H/G, Q, D) against (B, G, 1, K, D).
    q = q.view(case.B, case.G, case.H // case.G, case.Q, case.D)
    k, v = k[:, :, None], v[:, :, None]
    free = case.pattern == "full" and case.twist is None
    mask = None if free else torch.from_numpy(inputs.additive)
    if mask is not None and mask.shape[1] > 1:
        mask = mask.view(1, case.G, case.H // case.G, case.Q, case.Q)

    def run() -> torch.Tensor:
        s = (q * case.D**-0.5) @ k.mT
        if case.twist == "softcap":
            s = s.div_(CAP).tanh_().mul_(CAP)
        if mask is not None:
            s += mask
        return (torch.softmax(s, -1) @ v).view(case.B, case.H, case.Q, case.D)

    return [form("", run)]
