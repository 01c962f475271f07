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
    aten.index.Tensor,
    aten.index_select.default,
    aten.gather.default,
    aten._to_copy.default,
    aten.clone.default,
    aten.repeat.default,
    aten.contiguous.default,
}


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors inside."""
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor)]


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
        given = tensors(args)
        weights = [each for each in given if each.ndim > 1 and _storage(each) in self._names]
        names = [self.name_of(each) for each in weights] or [""]
        name = next((each for each in names if each.rpartition(".")[0] == self.path), names[0])
        read, written, weight_bytes = (sum(each.nbytes for each in group) for group in (given, tensors(out), weights))
        self.products.append(Product(flops, read, written, name, weight_bytes, self.path))


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _product(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *rest: Any) -> int:
    """Of matrices, vectors, or batches of matrices; one that sums over one number is elementwise."""
    if a.ndim == 3 and a.shape[-1] == 1:
        return 0
    return 2 * a.numel() * (b.shape[-1] if b.ndim > 1 else 1)


def _added_product(out: torch.Tensor, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *rest: Any) -> int:
    return _product(out, a, b)


def _convolution(out: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *rest: Any) -> int:
    transposed = rest[4]
    return 2 * (x if transposed else out).numel() * w[0].numel()


def _convolution_backward(out: Any, grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *rest: Any) -> int:
    wanted = rest[-1]
    return _convolution(grad, x, w, *rest) * (wanted[0] + wanted[1])


def _attention(out: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> int:
    return 2 * q.shape[:-1].numel() * k.shape[-2] * (q.shape[-1] + v.shape[-1])


FLOPS: dict[Any, Any] = {
    aten.mm: _product,
    aten.mv: _product,
    aten.dot: _product,
    aten.bmm: _product,
    aten.addmm: _added_product,
    aten.addmv: _added_product,
    aten.baddbmm: _added_product,
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_fused_attention_overrideable: _attention,
}
