"""Tensors of a program that torch records, as tables: they have numbers when the program runs, and a form before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..common.errors import refuse
from .expr import Expr, Table
from .rule_text import read


class Unread(Table):
    """A tensor without numbers as a table. source: the tensor, which may be one of the meta device."""

    def __init__(self, source: Any):
        self.source, self.array, self.name, self.frozen = source, source, "tensor", False
        self.sources, self.scored, self.digest = (source,), False, f"tensor {id(source)}"

    @property
    def kind(self) -> str:
        dtype = self.source.dtype
        return "float" if dtype.is_floating_point else "bool" if str(dtype) == "torch.bool" else "int"

    def length(self, axis: int) -> Any:
        """A size, which the program may leave open."""
        import torch

        size = self.source.shape[axis]
        return size if isinstance(size, int) else Unread(torch.scalar_tensor(size, dtype=torch.int64)).item()

    def item(self) -> Expr:
        """The only number, where it is read."""
        return self[()]

    def __array__(self, dtype=None, copy=None):
        raise refuse(
            "rule",
            "a mask or score needs the numbers of a tensor that the recorded program computes",
            f"a tensor {list(self.source.shape)} of {self.source.dtype}",
            "a rule that reads the tensor at positions",
            "build the rule before, or read the tensor in a callable: mask=lambda b, h, q, k: tensor[b, k]",
        )


def without_numbers(text: str, tensors: Sequence) -> Any:
    """The rule of a text over tensors that have no numbers; the tensor itself, if the text is only its name."""
    rule = read(text, [Unread(each) for each in tensors])
    return rule.source if isinstance(rule, Unread) else rule
