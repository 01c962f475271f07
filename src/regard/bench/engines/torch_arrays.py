"""What the torch engines share: tensors over the arrays of a case, threads, and gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ..cases import Inputs
from ..machine import cores
from . import Form


def tensors(inputs: Inputs) -> list[torch.Tensor]:
    """q, k, v without a copy; torch gets a thread per core."""
    torch.set_num_threads(cores())
    return [tensor(array) for array in (inputs.q, inputs.k, inputs.v)]


def tensor(array: np.ndarray) -> torch.Tensor:
    """The same memory; bfloat16 goes over as bits, because torch does not know NumPy's."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def additive(inputs: Inputs) -> torch.Tensor:
    """The additive mask in the dtype of the case."""
    return torch.from_numpy(inputs.additive).to(tensor(inputs.q).dtype)


def forms(inputs: Inputs, label: str, attend: Callable[..., torch.Tensor]) -> list[Form]:
    """attend(q, k, v), without gradients or with those of q, k and v."""
    q, k, v = tensors(inputs)
    if inputs.case.task != "gradients":
        return [Form(label, torch.inference_mode()(lambda: attend(q, k, v)), lambda out: (out.float().numpy(),))]
    leaves, dout = [each.requires_grad_() for each in (q, k, v)], tensor(inputs.dout)
    return [
        Form(
            label,
            lambda: torch.autograd.grad(attend(*leaves), leaves, dout),
            lambda found: tuple(each.float().numpy() for each in found),
        )
    ]
