"""Masks that read tensors, built inside a program of torch.compile: split with the tensors' numbers, not traced.

Imported only there, because torch's decorator imports the whole of torch.compile.
"""

from __future__ import annotations

import torch

from ....common.errors import refuse
from ....language import rule_text
from ....language.tree.traced import Traced
from .mask_parts import TENSORS, MaskParts

__all__ = ["parts_of"]


@torch.compiler.disable
def parts_of(where: str, mask: Traced, q: torch.Tensor, rows: range, keys: range) -> MaskParts:
    """The parts of a mask. Raises `Refused` while torch.export records, where tensors have no numbers."""
    tensors = [part for part in mask.parts if not isinstance(part, str)]
    names = iter(range(len(tensors)))
    rule = rule_text.read("".join(part if isinstance(part, str) else f"x{next(names)}" for part in mask.parts), tensors)
    if isinstance(rule, Traced):
        given, fix = str(mask), "build the mask before, and pass it to the program"
        raise refuse(where, TENSORS, given=given, expected="a mask of numbers, or one from outside", fix=fix)
    return MaskParts.of(where, rule, q, rows, keys)
