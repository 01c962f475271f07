"""The arrays of a call: q, k and v as NumPy arrays of four axes, with all checks of their shapes."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import numpy as np

from ...common.arrays import elsewhere, is_tensor, read_array
from ...common.dtypes import LISTED, row_of, torch_dtypes
from ...common.errors import Reason, Refused
from .numbers import LIMIT

Sizes = tuple[int, ...]


def _sizes(sizes: Sizes) -> str:
    return f"({', '.join(map(str, sizes))})"


def shape_text(array: np.ndarray) -> str:
    return _sizes(array.shape)


def checked_array(name: str, value, reasons: list[Reason]) -> np.ndarray | None:
    """The argument as a NumPy array that shares its memory, or None with a reason appended."""
    if is_tensor(value) and value.is_nested:
        reasons.append(
            Reason(
                f"{name} is a nested tensor",
                f"a nested tensor of {value.size(0)} sequences",
                "a tensor in which all sequences have the same size",
                f"pad it, and mask the padding: torch.nested.to_padded_tensor({name}, 0.0), mask=rg.lengths([…])",
            )
        )
        return None
    if is_tensor(value) and value.dtype in torch_dtypes() and elsewhere(value):
        computes = "attention, attention_with_lse, attention_stats, attention_weights and explain"
        reasons.append(
            Reason(
                f"{name} is not on the CPU",
                f"{value.dtype} on {value.device}",
                "tensors on the CPU",
                f"move it: {name}.cpu(); on other devices, regard has {computes}, with gradients by autograd",
            )
        )
        return None
    if is_tensor(value) and not (value.is_cpu and value.dtype in torch_dtypes()):
        reasons.append(
            Reason(
                f"{name} cannot be read",
                f"{value.dtype} on {value.device}",
                f"{LISTED} on the CPU",
                f"convert it: {name}.float().cpu()",
            )
        )
        return None
    try:
        array = read_array(value, name)
    except Refused as refused:
        reasons.extend(replace(reason, what=f"{name}: {reason.what}") for reason in refused.reasons)
        return None
    if row_of(array.dtype) is None:
        numbers = array.dtype.kind in "biuf" or array.dtype.isbuiltin == 2  # 2: from another package
        wide = 64 if array.dtype.kind == "f" and array.dtype.itemsize >= 8 else 32
        convert = (
            f"convert it: {name}.astype(np.float{wide})" if hasattr(value, "astype") else f"np.asarray({name}, float)"
        )
        reasons.append(
            Reason(
                f"{name} has an unsupported dtype",
                f"{array.dtype} {shape_text(array)}",
                LISTED,
                convert if numbers else "pass an array of real numbers",
            )
        )
        return None
    if array.ndim < 2:
        reasons.append(
            Reason(
                f"{name} has too few axes",
                shape_text(array),
                "(…, heads, rows, depth), at least (rows, depth)",
                f"add an axis: {name}[None, :]",
            )
        )
        return None
    return array


def refuse_gradients(
    name: str, value, reasons: list[Reason], fix="wrap the call in torch.no_grad(), or pass tensor.detach()"
) -> None:
    """Appends a reason if the value is a tensor that requires gradients, which this call does not compute."""
    if not getattr(value, "requires_grad", False):
        return
    import torch

    if torch.is_grad_enabled():
        reasons.append(
            Reason(
                f"{name} requires gradients",
                f"{name}.requires_grad is True",
                "a tensor that does not require gradients, because this call computes none",
                fix,
            )
        )


def _heads(sizes: Sizes) -> int:
    return sizes[-3] if len(sizes) > 2 else 1


def four_axes(array: np.ndarray, batch: tuple[int, ...]) -> np.ndarray:
    """(…, heads, rows, depth) as (B, heads, rows, depth), the axes before the heads broadcast to those of the
    queries.
    """
    if array.ndim == 4 and array.shape[:1] == batch:
        return array
    if array.ndim == 3 and not batch:
        return array[None]
    inner = (_heads(array.shape), *array.shape[-2:])
    B = math.prod(batch)
    if math.prod(array.shape[:-3]) == B:
        return array.reshape(B, *inner)
    if math.prod(array.shape[:-3]) == 1:  # one entry for the entire batch is a view
        return np.broadcast_to(array.reshape(1, *inner), (B, *inner))
    return np.broadcast_to(array, (*batch, *inner)).reshape(B, *inner)


def _broadcasts(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    pairs = itertools.zip_longest(reversed(given), reversed(wanted), fillvalue=1)
    return all(own in (1, size) for own, size in pairs)


@functools.lru_cache(256)
def disagreements(q: Sizes, k: Sizes, v: Sizes, dtypes: tuple[np.dtype, ...], with_values: bool) -> tuple[Reason, ...]:
    """Every reason why the shapes and dtypes do not fit."""
    reasons: list[Reason] = []
    shown = f"q {_sizes(q)}, k {_sizes(k)}" + (f", v {_sizes(v)}" if with_values else "")
    layout = "the layout is (batch, heads, rows, depth)"
    if len(set(dtypes)) > 1:
        reasons.append(
            Reason(
                "the arrays differ in dtype",
                ", ".join(sorted(map(str, set(dtypes)))),
                "one dtype for q, k and v",
                "convert them to the same dtype",
            )
        )
    D = q[-1]
    if k[-1] != D:
        reasons.append(Reason("q and k differ in depth", shown, f"D = {D} for both", f"check the last axis; {layout}"))
    if k[-2] != v[-2]:
        reasons.append(Reason("k and v differ in rows", shown, "one value row per key row", f"check axis -2; {layout}"))
    H, G = _heads(q), _heads(k)
    if _heads(v) != G:
        reasons.append(
            Reason("k and v differ in heads", shown, "as many value heads as key heads", f"check axis -3; {layout}")
        )
    if bool(H) != bool(G) or (G and H % G):
        reasons.append(
            Reason(
                "key heads do not divide query heads",
                f"{shown}: H={H}, G={G}",
                "H to be a multiple of G",
                f"repeat k and v to {H} heads, or check that axis -3 is heads: {layout}",
            )
        )
    batch = q[:-3]
    for name, sizes in (("k", k), ("v", v))[: 1 + with_values]:
        if _broadcasts(sizes[:-3], batch):
            continue
        if len(batch) < 2 and len(sizes) < 5:
            expected, fix = f"B = {math.prod(batch)}, or 1", f"check axis 0; {layout}"
        else:
            expected = f"before the heads {batch}, or 1 in place of any of them"
            fix = f"check the axes before -3; {layout}, and batch may be several axes"
        reasons.append(Reason(f"q and {name} differ in batch", shown, expected, fix))
    for name, sizes in (("q", q), ("k", k)):
        if sizes[-2] >= LIMIT:
            reasons.append(Reason(f"{name} has too many rows", shown, "fewer than 2**31 rows", "split the call"))
    if math.prod(q[:-1]) * v[-1] * 8 >= 2**63:
        reasons.append(Reason("the result is too large", shown, "fewer than 2**63 bytes", "split the call"))
    return tuple(reasons)
