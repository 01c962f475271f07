"""Common code of the torch engines: tensors of the arrays of a case, threads, and gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch

from regard.common.arrays import as_tensor

from ..cases import Inputs
from ..machine import cores
from . import Form


def tensors(inputs: Inputs) -> list[torch.Tensor]:
    """q, k, v without a copy; sets torch to one thread per core."""
    torch.set_num_threads(cores())
    return [as_tensor(array) for array in (inputs.q, inputs.k, inputs.v)]


def additive(inputs: Inputs) -> torch.Tensor:
    """The additive mask in the dtype of the case."""
    return torch.from_numpy(inputs.additive).to(as_tensor(inputs.q).dtype)


def forms(inputs: Inputs, label: str, attend: Callable[..., torch.Tensor]) -> list[Form]:
    """The form that calls attend(q, k, v), with gradients of q, k and v if the case needs them."""
    q, k, v = tensors(inputs)
    if inputs.case.task != "gradients":
        return [Form(label, torch.inference_mode()(lambda: attend(q, k, v)), lambda out: (out.float().numpy(),))]
    leaves, dout = [each.requires_grad_() for each in (q, k, v)], as_tensor(inputs.dout)
    return [
        Form(
            label,
            lambda: torch.autograd.grad(attend(*leaves), leaves, dout),
            lambda found: tuple(each.float().numpy() for each in found),
        )
    ]
