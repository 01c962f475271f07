"""Merging: attention over a set of keys, from attention over its parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..common.arrays import is_tensor
from ..common.errors import Reason, Refused

__all__ = ["merge"]


def merge(parts: Iterable[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Attention over all keys, from (out, lse) of disjoint sets of keys.

    lse = ln Σ exp(lseᵢ),  out = Σ exp(lseᵢ - lse) · outᵢ

    parts: pairs of out (…, H, Q, E) and lse (…, H, Q) in nats, as `attention_with_lse` gives them -> one such pair, in
    the dtypes of the parts. The sums are kept in float64. A part that saw no key (lse −∞) changes nothing, whatever
    stands in its out; a NaN or infinity that was attended shows. The order of the parts, and merging some of them
    first, changes the rounding only. NumPy arrays or torch tensors; gradients of tensors flow through.

    Give sinks to one part only: each part's lse holds the sinks that it was given, and merging would count them again.

    Refused, with all reasons at once: no parts, parts that differ in shape, dtype or kind of array.

    Source: Milakov and Gimelshein 2018 (the softmax of parts); Dao et al. 2023 (parts of the keys side by side in
    decoding).

    >>> import numpy as np, regard as rg
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 8, 64, 16))
    >>> first, rest = (rg.attention_with_lse(q, k[:, part], v[:, part]) for part in (slice(0, 40), slice(40, 64)))
    >>> out, lse = rg.merge([first, rest])
    >>> bool(np.allclose(out, rg.attention(q, k, v)))
    True
    """
    parts = list(parts)
    _check(parts)
    out, lse = parts[0]
    if is_tensor(out):
        import torch

        found = _merged(torch, [tuple(array.to(torch.float64) for array in part) for part in parts])
        return found[0].to(out.dtype), found[1].to(lse.dtype)
    with np.errstate(all="ignore"):
        found = _merged(np, [tuple(np.asarray(array).astype(np.float64) for array in part) for part in parts])
        return found[0].astype(np.asarray(out).dtype), found[1].astype(np.asarray(lse).dtype)


def _merged(library, parts) -> tuple[Any, Any]:
    """The merge in float64, with the names that NumPy and torch share."""
    top = parts[0][1]
    for _, lse in parts[1:]:
        top = library.maximum(top, lse)
    nothing = top == -np.inf
    top = library.where(nothing, 0.0, top)  # −∞ − (−∞) would be NaN
    total = weighted = 0.0
    for out, lse in parts:
        empty = lse == -np.inf
        # Replaced before the exponential too: a gradient passes through both branches of a where.
        share = library.where(empty, 0.0, library.exp(library.where(empty, 0.0, lse) - library.where(empty, 0.0, top)))
        seen = library.where(empty[..., None], 0.0, out)
        # An infinity with a share that rounds to 0 was attended all the same.
        weighted = weighted + library.where(library.isfinite(seen), share[..., None] * seen, seen)
        total = total + share
    total = library.where(nothing, 1.0, total)
    return weighted / total[..., None], library.where(nothing, -np.inf, top + library.log(total))


def _check(parts: list) -> None:
    """Every reason why the parts cannot be merged."""
    if not parts:
        raise Refused(
            "merge",
            [
                Reason(
                    "there are no parts",
                    given="an empty list",
                    expected="one or more pairs (out, lse)",
                    fix="pass results of attention_with_lse",
                )
            ],
        )
    reasons = []
    kinds = set()
    for number, part in enumerate(parts):
        pair = isinstance(part, tuple | list) and len(part) == 2
        if not pair or not all(hasattr(array, "shape") and hasattr(array, "dtype") for array in part):
            reasons.append(
                Reason(
                    f"part {number} is not a pair of arrays",
                    given=type(part).__name__,
                    expected="(out, lse)",
                    fix="pass results of attention_with_lse",
                )
            )
            continue
        out, lse = part
        kinds.add(tuple(f"{'a tensor' if is_tensor(array) else 'an array'} of {array.dtype}" for array in part))
        if any("float" not in str(array.dtype) for array in part):
            reasons.append(
                Reason(
                    f"part {number} is not made of floats",
                    given=f"out {out.dtype}, lse {lse.dtype}",
                    expected="floats",
                    fix="pass results of attention_with_lse",
                )
            )
        if tuple(out.shape[:-1]) != tuple(lse.shape) or not out.shape:
            reasons.append(
                Reason(
                    f"part {number}: lse does not fit out",
                    given=f"out {tuple(out.shape)}, lse {tuple(lse.shape)}",
                    expected=f"lse {tuple(out.shape[:-1])}: one number per row",
                    fix="pass both results unchanged",
                )
            )
    shapes = {tuple(part[0].shape) for part in parts} if not reasons else set()
    if len(shapes) > 1:
        reasons.append(
            Reason(
                "the parts differ in shape",
                given=", ".join(map(str, sorted(shapes))),
                expected="the same rows of the same heads",
                fix="broadcast the shared parts: np.broadcast_to(out, …)",
            )
        )
    if len(kinds) > 1:
        shown = "; ".join(sorted(f"out {out}, lse {lse}" for out, lse in kinds))
        reasons.append(
            Reason(
                "the parts differ in dtype or kind",
                given=shown,
                expected="the same for all parts",
                fix="convert them first",
            )
        )
    if reasons:
        raise Refused("merge", reasons)
