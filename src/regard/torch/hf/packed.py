"""Packed documents: position ids that restart at 0 separate them.

transformers separates documents only in a call without a mask and without a cache, and models have a cache by default.
Attention receives the position ids in most decoders, and separates them in every call that has all keys.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import torch

from ...language.expr import Expr
from ...language.masks import documents
from .lazy_mask import LazyMask

NOT_SEPARATED = (
    "regard: the position ids are smaller than the number of earlier keys, as of packed documents, but the keys in the "
    "cache do not say to which document they belong: all are attended to. Decode one text per sequence."
)
# Of the last call, because all layers of a model have the same ones: a weak reference to the position ids, their
# version, the keys, the mask, and the rule.
_last: tuple[Any, ...] = (None, 0, 0, None, None)


def packed(position_ids, mask, rows: int, keys: int) -> Expr | None:
    """The rule that separates packed documents, or None: position ids (B, n) of this call, transformers' mask."""
    global _last
    if type(position_ids) is not torch.Tensor or position_ids.ndim != 2 or position_ids.shape[1] != rows:
        return None
    if not (mask is None or isinstance(mask, LazyMask)) or torch._C._are_functorch_transforms_active():
        return None
    if position_ids.is_inference():  # it does not count its versions
        return _separate(position_ids, mask, rows, keys)
    reference, version, of_keys, of_mask, found = _last
    known = reference is not None and reference() is position_ids and version == position_ids._version
    if not known or of_keys != keys or of_mask is not mask:
        found = _separate(position_ids, mask, rows, keys)
        _last = weakref.ref(position_ids), position_ids._version, keys, mask, found
    return found


def _separate(ids: torch.Tensor, mask: LazyMask | None, rows: int, keys: int) -> Expr | None:
    tables = () if mask is None else mask.rule.tables
    if any(table.kind == "int" for table in tables):  # documents that transformers has separated
        return None
    padding = [table.array for table in tables if table.name == "padding"]
    if rows != keys or (mask is not None and mask.query_start):
        if not padding and mask is not None and rows == 1 and 0 <= int(ids.min()) < mask.query_start:
            warnings.warn(NOT_SEPARATED, stacklevel=2)
        return None
    if rows == 1:
        return None
    begins = (ids[:, 1:] == 0) & (ids.amax(1, keepdim=True) > 0)
    for real in padding:
        both = torch.as_tensor(real[..., 1:] & real[..., :-1], device=ids.device)
        begins = begins & both
    if not begins.any():
        return None
    numbers = torch.nn.functional.pad(begins.cumsum(1), (1, 0)).cpu()
    return documents(numbers[0] if len(numbers) == 1 else numbers)
