"""Modules: parameters and operations of each kind of module, from the sizes that it declares.

This is the formula; what runs is counted elsewhere, and both are compared. A linear layer from a to b has a · b + b
parameters and 2 · a · b operations per row; a convolution has, per number of its output, 2 · (channels in a group) ·
(size of its kernel). A module that is not listed is described by the shapes of its own parameters: each matrix is
multiplied once per row, except for those whose names say that they are tables, biases or scales.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from .operations import tensors

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
PLAIN = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.GroupNorm, nn.MultiheadAttention)
# Parameters with several axes that are added, multiplied number by number, or looked up.
ELEMENTWISE = re.compile(r"^D$|bias|scale|gamma|beta|A_log|_pos|pos_|position|embed|token|quer(y|ies)$|prompt", re.I)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def parameters(module: nn.Module) -> int:
    """The parameters that a module has itself, without those of its parts.

    >>> parameters(nn.Linear(3, 5))
    20
    """
    if is_parametrized(module):  # its weight is a result of other parameters
        return sum(weight.numel() for weight in module._parameters.values() if weight is not None)
    match module:
        case nn.Linear():
            return module.in_features * module.out_features + (module.bias is not None) * module.out_features
        case nn.Embedding():
            return module.num_embeddings * module.embedding_dim
        case nn.LayerNorm():
            size = math.prod(module.normalized_shape)
            return module.elementwise_affine * size * (1 + (module.bias is not None))
        case nn.GroupNorm():
            return 2 * module.num_channels if module.affine else 0
        case _ if _is_conv1d(module):
            return module.nx * module.nf + module.nf
        case _ if isinstance(module, CONVOLUTIONS + TRANSPOSED):
            ways = module.in_channels * module.out_channels // module.groups
            return ways * math.prod(module.kernel_size) + (module.bias is not None) * module.out_channels
    return sum(weight.numel() for weight in module._parameters.values() if weight is not None)


def flops(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
    """The operations of one forward call of a module itself, without those of its parts."""
    result, given = _first(out), _first((args, kwargs))
    match module:
        case nn.Embedding() | nn.LayerNorm() | nn.GroupNorm():
            return 0
        case nn.Linear():
            return 2 * module.in_features * _numbers(result)
        case _ if _is_conv1d(module):
            return 2 * module.nx * _numbers(result)
        case _ if isinstance(module, CONVOLUTIONS):
            return 2 * _numbers(result) * (module.in_channels // module.groups) * math.prod(module.kernel_size)
        case _ if isinstance(module, TRANSPOSED):
            return 2 * _numbers(given) * (module.out_channels // module.groups) * math.prod(module.kernel_size)
        case nn.MultiheadAttention():  # its output layer is read, not called
            widths = (module.embed_dim, module.kdim, module.vdim)
            names = ("query", "key", "value")
            three = [*args[:3], *(kwargs[name] for name in names[len(args) :])]
            return sum(
                2 * module.embed_dim * width * each.numel() // each.shape[-1]
                for width, each in zip(widths, three, strict=True)
            )
        case _ if is_experts(module):
            chosen = chosen_experts(module, args, kwargs)
            rows = _numbers(given) // given.shape[-1] if given is not None else 0
            return 2 * rows * chosen * sum(math.prod(each.shape[1:]) for each in matrices(module) if each.ndim == 3)
    if given is None or not given.ndim:
        return 0
    rows = given.numel() // max(given.shape[-1], 1)
    return 2 * rows * sum(each.numel() for each in matrices(module))


def multiplies_once(module: nn.Module) -> bool:
    """Whether a call of the module runs one product, with its weight."""
    return isinstance(module, (nn.Linear, *CONVOLUTIONS, *TRANSPOSED)) or bool(_is_conv1d(module))


def is_known(module: nn.Module) -> bool:
    """Whether the module is of a kind that declares its sizes."""
    return isinstance(module, PLAIN + CONVOLUTIONS + TRANSPOSED) or _is_conv1d(module) or is_experts(module)


def matrices(module: nn.Module) -> list[torch.Tensor]:
    """The parameters of the module itself that a product reads: with two axes or more; (1, …) is a row of numbers."""
    own = {name: each for name, each in module._parameters.items() if each is not None and each.ndim >= 2}
    return [each for name, each in own.items() if each.shape[0] > 1 and not ELEMENTWISE.search(name)]


def is_experts(module: nn.Module) -> bool:
    """Whether a module holds the matrices of several experts, one after the other."""
    return hasattr(module, "num_experts") and any(each.ndim == 3 for each in matrices(module))


def chosen_experts(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """How many experts a token meets: the last size of the table of chosen experts."""
    tables = [each for each in tensors((args, kwargs)) if not each.is_floating_point() and each.ndim >= 2]
    if tables:
        return int(tables[0].shape[-1])
    config = getattr(module, "config", None)
    return int(getattr(config, "num_experts_per_tok", 1) or 1)


def _is_conv1d(module: nn.Module) -> Any:
    """Whether it is the linear layer of GPT-2, which transformers calls Conv1D."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf") and hasattr(module, "nx")


def _first(value: Any) -> torch.Tensor | None:
    """The first tensor of floating-point numbers."""
    return next((each for each in tensors(value) if each.is_floating_point()), None)


def _numbers(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel()
