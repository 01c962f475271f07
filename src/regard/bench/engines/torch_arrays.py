"""What the torch engines share: tensors over the arrays of a case, and threads."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..cases import Inputs
from ..machine import cores
from . import Form


def tensors(inputs: Inputs) -> list[torch.Tensor]:
    """q, k, v without a copy; torch gets a thread per core."""
    torch.set_num_threads(cores())
    return [torch.from_numpy(array) for array in (inputs.q, inputs.k, inputs.v)]


def form(label: str, run: Callable[[], torch.Tensor]) -> Form:
    """A form that runs without gradients."""
    return Form(label, torch.inference_mode()(run), lambda out: out.numpy())
