"""Operations: counts every matrix product and convolution that runs, by the parameter that it reads.

A product is 2 operations per multiply-add: (m, k) · (k, n) is 2·m·k·n. Nothing else is counted: a batch of products
that sum over one number, such as rotary angles, is elementwise. Which parameter a product reads is seen from the memory
of its arguments: a transposed or gathered weight is still this weight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
# Operations whose result is still the weight that they are given: rows chosen from it, a copy, another dtype.
KEEPS = {
    each.default if hasattr(each, "default") else each
    for each in (
        aten.index.Tensor,
        aten.index_select,
        aten.gather,
        aten._to_copy,
        aten.clone,
        aten.repeat,
        aten.contiguous,
    )
}


@dataclass(frozen=True)
class Product:
    """A product that ran. flops · read, written: bytes of its arguments and of its result · weight: the name of the
    parameter that it reads, or "" for a product of two results · weight_bytes: of `read`, those of the parameter ·
    module: the path of the module that ran it.
    """

    flops: int
    read: int
    written: int
    weight: str
    weight_bytes: int
    module: str


class Counter(TorchDispatchMode):
    """Inside the mode, notes products. parameters: (name, parameter) · path: the module that runs, set from outside."""

    def __init__(self, parameters: Iterable[tuple[str, torch.Tensor]]):
        super().__init__()
        self.products: list[Product] = []
        self.path = ""
        self._names: dict[int, list[str]] = {}  # a parameter that modules share has several names
        for name, weight in parameters:
            self._names.setdefault(_storage(weight), []).append(name)
        self._kept: list[torch.Tensor] = []  # so that their storages are not given to others

    def name_of(self, tensor: torch.Tensor) -> str:
        """The name of the parameter whose numbers a tensor holds, or "" for a result."""
        names = self._names.get(_storage(tensor), [""])
        return next((name for name in names if name.rpartition(".")[0] == self.path), names[-1])

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = operation(*args, **(kwargs or {}))
        if operation in KEEPS and isinstance(args[0], torch.Tensor) and isinstance(out, torch.Tensor):
            names = self._names.get(_storage(args[0]))
            if names is not None and _storage(out) not in self._names:
                self._names[_storage(out)] = names
                self._kept.append(out)
        count = FLOPS.get(operation._overloadpacket)
        if count is not None:
            self._note(count(out, *args), out, args)
        return out

    def _note(self, flops: int, out: Any, args: Any) -> None:
        given = [each for each in tree_leaves(args) if isinstance(each, torch.Tensor)]
        weights = [each for each in given if each.ndim > 1 and _storage(each) in self._names]
        names = [self.name_of(each) for each in weights] or [""]
        name = next((each for each in names if each.rpartition(".")[0] == self.path), names[0])
        written = sum(_size(each) for each in tree_leaves(out) if isinstance(each, torch.Tensor))
        weight_bytes = sum(map(_size, weights))
        self.products.append(Product(flops, sum(map(_size, given)), written, name, weight_bytes, self.path))


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _mm(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *rest: Any) -> int:
    return 2 * a.shape[0] * a.shape[1] * b.shape[1]


def _addmm(out: torch.Tensor, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *rest: Any) -> int:
    return _mm(out, a, b)


def _mv(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *rest: Any) -> int:
    return 2 * a.numel()


def _addmv(out: torch.Tensor, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *rest: Any) -> int:
    return 2 * a.numel()


def _bmm(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *rest: Any) -> int:
    return 2 * a.numel() * b.shape[-1] if a.shape[-1] > 1 else 0


def _baddbmm(out: torch.Tensor, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *rest: Any) -> int:
    return _bmm(out, a, b)


def _convolution(out: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *rest: Any) -> int:
    transposed = bool(rest[4]) if len(rest) > 4 else False
    return 2 * (x if transposed else out).numel() * w[0].numel()


def _convolution_backward(out: Any, grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *rest: Any) -> int:
    transposed, wanted = bool(rest[4]), rest[-1]
    forward = 2 * (x if transposed else grad).numel() * w[0].numel()
    return forward * (bool(wanted[0]) + bool(wanted[1]))


def _attention(out: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> int:
    return 2 * q.shape[:-1].numel() * k.shape[-2] * (q.shape[-1] + v.shape[-1])


FLOPS: dict[Any, Any] = {
    aten.mm: _mm,
    aten.addmm: _addmm,
    aten.mv: _mv,
    aten.addmv: _addmv,
    aten.dot: lambda out, a, b, *rest: 2 * a.numel(),
    aten.bmm: _bmm,
    aten.baddbmm: _baddbmm,
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_fused_attention_overrideable: _attention,
}
