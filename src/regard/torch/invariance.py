"""`invariant`: products and activations on the CPU give a row the same bits alone and in every batch.

Libraries choose the order of sums, and torch the code for the last numbers of an array, by the sizes of the whole
array. While a block of `invariant` runs, the kernels of the CPU for these operators are those of this file, in every
thread; regard's attention has a fixed order anyway, and begins at the first real key.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.nn.functional import pad

from ..common.dtypes import torch_dtypes
from ..engines.jit import products
from .replaced_operators import ReplacedOperators

DTYPES = {dtype: str(dtype).removeprefix("torch.") for dtype in torch_dtypes()}


def invariant() -> Invariant:
    """Gives every row the same bits alone and in a batch, in the whole process, until `restore()` or a block's end.

    A model on regard then writes the same tokens, and has the same logits bit for bit, for every batch size, padding
    side, chunk of a prompt and number of threads. Replaced on the CPU are the products of `nn.Linear` (`aten::mm` and
    `aten::addmm`), and sigmoid, silu, gelu and softplus; torch's norms and other activations have this property. Not
    covered: attention by others than regard, convolutions, products of batches of matrices (`aten::bmm`), programs of
    torch.compile, and layers whose cache keeps a window of keys only, where chunks may differ.

    Returns:
        A context manager with the method `restore()`.

    Examples:
        >>> import torch, regard.torch
        >>> layer, x = torch.nn.Linear(64, 64), torch.randn(100, 64)
        >>> with torch.no_grad(), regard.torch.invariant():
        ...     bool((layer(x)[7] == layer(x[7])).all())
        True
    """
    return Invariant()


class Invariant(ReplacedOperators):
    """The replacement of torch's operators, until `restore()` or the end of the block; made by `invariant`.

    Examples:
        >>> import regard.torch
        >>> with regard.torch.invariant() as block:
        ...     block
        <invariant: 6 operators of torch on the CPU>
    """

    library: ClassVar[torch.library.Library]

    @classmethod
    def connect(cls) -> None:
        """Replaces the kernels."""
        cls.library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are others
            for name, function in OPERATORS.items():
                cls.library.impl(name, function, "CPU", allow_override=True)

    @classmethod
    def disconnect(cls) -> None:
        """Puts torch's own kernels back."""
        cls.library._destroy()

    def __repr__(self) -> str:
        return f"<invariant: {len(OPERATORS)} operators of torch on the CPU>"


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a (M, K) · b (K, N), in float32 or float64."""
    b = b.t()
    name = DTYPES[a.dtype]
    missing = -a.shape[1] % products.step(name)
    if missing:
        a, b = pad(a, (0, missing)), pad(b, (0, missing))
    a, b = (each if each.stride(1) == 1 else each.contiguous() for each in (a, b))
    (M, K), N, size = a.shape, b.shape[0], a.itemsize
    out = torch.empty(M, N, dtype=torch.promote_types(a.dtype, torch.float32))
    if not (M and N and K):
        return out.zero_()
    multiply = products.product(name, (M, N, K), (a.stride(0) * size, b.stride(0) * size))
    multiply(a.data_ptr(), b.data_ptr(), out.data_ptr(), (a, b, out))
    return out


def _mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if not _is_ours(a, b):
        return torch.mm(a, b, out=a.new_empty(a.shape[0], b.shape[1]))
    return _product(a, b).to(a.dtype)


def _addmm(added: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
    if not _is_ours(a, b):
        return torch.addmm(added, a, b, beta=beta, alpha=alpha, out=a.new_empty(a.shape[0], b.shape[1]))
    found = _product(a, b)
    found = found if alpha == 1 else found.mul_(alpha)
    return (found.add_(added, alpha=beta) if beta else found).to(a.dtype)


def _is_ours(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether products of two matrices are computed here; torch refuses those that do not fit."""
    return a.dtype in DTYPES and a.dtype == b.dtype and a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0]


def _by_numbers(name: str, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """An activation that is computed in float32 or more, from operators that treat all numbers of an array alike."""
    own = getattr(torch.ops.aten, name).out

    def activation(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if x.dtype not in DTYPES:
            return own(x, *args, **options, out=torch.empty(0, dtype=torch.result_type(x, 1.0)))
        return function(x.float() if x.itemsize < 4 else x, *args, **options).to(x.dtype)

    return activation


def _sigmoid(x: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp(-x))


def _gelu(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + torch.erf(x * 0.5**0.5))


def _softplus(x: torch.Tensor, beta: Any = 1, threshold: Any = 20) -> torch.Tensor:
    return torch.where(x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta)


ACTIVATIONS = {"sigmoid": _sigmoid, "silu": lambda x: x * _sigmoid(x), "gelu": _gelu, "softplus": _softplus}
OPERATORS = {"mm": _mm, "addmm": _addmm} | {name: _by_numbers(name, each) for name, each in ACTIVATIONS.items()}
