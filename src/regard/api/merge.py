"""Combines attention over parts of the keys into attention over all keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, overload

import numpy as np

from ..common.arrays import is_tensor
from ..common.compiled import outside_programs
from ..common.errors import Reason, Refused, refuse
from ..common.public import ArrayT
from .part import Part, merged


@overload
def merge(parts: Iterable[Part[ArrayT]]) -> Part[ArrayT]: ...


@overload
def merge(parts: Iterable[tuple[ArrayT, ArrayT]]) -> tuple[ArrayT, ArrayT]: ...


@outside_programs
def merge(parts: Iterable[Any]) -> Any:
    """Attention over all keys, from the results for disjoint sets of keys.

    lse = ln Σ exp(lseᵢ),  out = Σ exp(lseᵢ - lse) · outᵢ;  of parts (m, l, O):  m = max mᵢ,  l = Σ exp(mᵢ - m) · lᵢ,
    O = Σ exp(mᵢ - m) · Oᵢ

    Sums are a binary tree over the parts in the given order: 0 and 1, 2 and 3, …, then pairs of these, and so on. Pairs
    (out, lse) of `attention_with_lse` are summed in float64 and rounded once; their order changes the rounding only.
    Parts of `attention_part` are summed by a compiled kernel with the operations of attention itself; see there for
    which parts are bit-identical to a single call. All parts must have the same q, scale and score, which merge cannot
    check.

    A pair without allowed keys (lse −∞) has no effect, whatever its out contains; a NaN or infinity that was attended
    to propagates. Tensors that require gradients get them, from pairs. Pass sinks to one pair only: every lse includes
    the sinks of its call, so merging would count them again; with parts, pass them to `Part.result`.

    Args:
        parts: pairs of out (…, H, Q, E) and lse (…, H, Q) in nats, as `attention_with_lse` returns them; or results of
            `attention_part` in the order of their keys. All NumPy arrays or all torch tensors.

    Returns:
        out (…, H, Q, E) and lse (…, H, Q) in the types and dtypes of the pairs; or a `Part`.

    Raises:
        Refused: `parts` is empty, or its members differ in shape, dtype or kind. Every problem is listed.

    Source:
        Milakov and Gimelshein 2018 (softmax of parts); Dao et al. 2023 (decoding over parts of the keys).

    Examples:
        >>> import numpy as np, regard as rg
        >>> q, k, v = np.random.default_rng(0).standard_normal((3, 8, 64, 16))
        >>> first = rg.attention_with_lse(q, k[:, :40], v[:, :40])
        >>> rest = rg.attention_with_lse(q, k[:, 40:], v[:, 40:])
        >>> out, lse = rg.merge([first, rest])
        >>> bool(np.allclose(out, rg.attention(q, k, v)))
        True
    """
    if isinstance(parts, Part) or not isinstance(parts, Iterable):
        raise refuse(
            "merge",
            "this is not a list of parts",
            type(parts).__name__,
            "one or more pairs (out, lse), or results of attention_part",
            "put them in a list",
        )
    pairs: list[Any] = list(parts)
    if pairs and all(isinstance(each, Part) for each in pairs):
        return merged(pairs)
    _check(pairs)
    out, lse = pairs[0]
    if is_tensor(out):
        import torch

        found = _merged(torch, [tuple(array.to(torch.float64) for array in pair) for pair in pairs])
        return found[0].to(out.dtype), found[1].to(lse.dtype)
    with np.errstate(all="ignore"):
        found = _merged(np, [tuple(np.asarray(array).astype(np.float64) for array in pair) for pair in pairs])
        return found[0].astype(np.asarray(out).dtype), found[1].astype(np.asarray(lse).dtype)


def _merged(library, parts) -> tuple[Any, Any]:
    """The merge in float64, with functions that NumPy and torch both have."""
    top = parts[0][1]
    for _, lse in parts[1:]:
        top = library.maximum(top, lse)
    nothing = top == -np.inf
    top = library.where(nothing, 0.0, top)  # −∞ − (−∞) would be NaN
    sums = []
    for out, lse in parts:
        empty = lse == -np.inf
        # Replaced before the exponential too: gradients are computed for both branches of a where.
        share = library.where(empty, 0.0, library.exp(library.where(empty, 0.0, lse) - library.where(empty, 0.0, top)))
        values = library.where(empty[..., None], 0.0, out)
        # An infinity whose share rounds to 0 was attended to, and must propagate.
        sums.append((library.where(library.isfinite(values), share[..., None] * values, values), share))
    while len(sums) > 1:
        pairs = [(one[0] + other[0], one[1] + other[1]) for one, other in zip(sums[::2], sums[1::2])]
        sums = pairs + sums[2 * len(pairs) :]
    weighted, total = sums[0]
    total = library.where(nothing, 1.0, total)
    return weighted / total[..., None], library.where(nothing, -np.inf, top + library.log(total))


def _check(parts: list) -> None:
    """Raises `Refused` with every reason why the parts cannot be merged."""
    if not parts:
        raise Refused(
            "merge",
            [
                Reason(
                    "parts is empty",
                    "an empty list",
                    "one or more pairs (out, lse)",
                    "pass results of attention_with_lse, or of attention_part",
                )
            ],
        )
    reasons = []
    if any(isinstance(part, Part) for part in parts):
        which = [str(number) for number, part in enumerate(parts) if isinstance(part, Part)]
        reasons.append(
            Reason(
                "parts and pairs (out, lse) cannot be merged with each other",
                f"results of attention_part at {', '.join(which)} of {len(parts)}",
                "one kind",
                "merge the parts first, and pass the pair that Part.result returns",
            )
        )
    kinds = set()
    for number, part in enumerate(parts):
        if isinstance(part, Part):
            continue
        pair = isinstance(part, tuple | list) and len(part) == 2
        if not pair or not all(hasattr(array, "shape") and hasattr(array, "dtype") for array in part):
            reasons.append(
                Reason(
                    f"part {number} is not a pair of arrays",
                    type(part).__name__,
                    "(out, lse)",
                    "pass results of attention_with_lse",
                )
            )
            continue
        out, lse = part
        kinds.add(tuple(f"{'a tensor' if is_tensor(array) else 'an array'} of {array.dtype}" for array in part))
        if any("float" not in str(array.dtype) for array in part):
            reasons.append(
                Reason(
                    f"part {number} is not floating-point",
                    f"out {out.dtype}, lse {lse.dtype}",
                    "floats",
                    "pass results of attention_with_lse",
                )
            )
        if tuple(out.shape[:-1]) != tuple(lse.shape) or not out.shape:
            reasons.append(
                Reason(
                    f"part {number}: lse does not fit out",
                    f"out {tuple(out.shape)}, lse {tuple(lse.shape)}",
                    f"lse {tuple(out.shape[:-1])}: one number per row",
                    "pass both results unchanged",
                )
            )
    shapes = {tuple(part[0].shape) for part in parts} if not reasons else set()
    if len(shapes) > 1:
        reasons.append(
            Reason(
                "the parts differ in shape",
                ", ".join(map(str, sorted(shapes))),
                "the same rows of the same heads",
                "broadcast the shared parts: np.broadcast_to(out, …)",
            )
        )
    if len(kinds) > 1:
        shown = "; ".join(sorted(f"out {out}, lse {lse}" for out, lse in kinds))
        reasons.append(
            Reason("the parts differ in dtype or kind", shown, "the same for all parts", "convert them first")
        )
    if reasons:
        raise Refused("merge", reasons)
