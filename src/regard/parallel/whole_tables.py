"""Whole tables from their parts: each rank holds the tokens of its placement of an array that rules read."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from ..common.arrays import as_tensor, device_of, elsewhere, is_tensor, read_array
from ..common.errors import refuse
from ..common.public import ArrayT
from ..language.checks.numbers import whole as integer
from .context.pages import check_place
from .exchange.agreement import agreed
from .exchange.processes import SECONDS, processes
from .exchange.transport import Transport, swap_arrays
from .placement import Placement

WHERE = "parallel.whole"


def whole(
    part: ArrayT, place: Placement, *, axis: SupportsIndex = 0, group: Any = None, timeout: float = SECONDS
) -> ArrayT:
    """The array of all tokens, on every rank, of which each rank holds those of its placement: for tables of rules.

    whole[…, place.positions(r), …] = part of rank r, for every rank r.

    Rules of `regard.parallel.attention` read it like any table. If `part` requires gradients, it receives those of its
    tokens. Attention over ranks gives every rank the gradient of the whole table, so nothing is added here: an array
    that is used for something else than its rules receives the gradient of this rank's use only.

    Args:
        part: an array or tensor with the tokens of this rank, place.positions(rank), along `axis`; booleans, integers
            or floats, on the CPU.
        place: who holds which tokens.
        axis: the axis of tokens.
        group: the process group, or a DeviceMesh of one dimension; None is all.
        timeout: seconds that a rank waits for the others.

    Returns:
        An array or tensor of the same kind and dtype, with all tokens along `axis`.

    Raises:
        Refused: on every rank: other tokens than those of a rank; shapes, dtypes or placements that differ.
        Lost: a rank ended, or did not take part within `timeout`.

    Examples:
        >>> import regard as rg, regard.parallel as rp
        >>> place = rp.place(4096, ranks=2, mask=rg.causal())
        >>> # in each of two processes, with the document and a learned gate of each of its tokens:
        >>> # document, gate = rp.whole(document, place), rp.whole(gate, place)
        >>> # mask, score = rg.causal() & rg.documents(document), rg.score + rg.table(gate)[rg.key]
        >>> # out = rp.attention(q, k, v, mask=mask, score=score, place=place)
    """
    transport = processes(group, timeout)
    tensor: Any = part

    def prepare() -> tuple[tuple[np.ndarray, int], dict[str, str]]:
        array, at = _checked(transport, part, place, axis)
        rest = [size for number, size in enumerate(array.shape) if number != at]
        terms = {"the placement": place.digest, "the array": f"{array.dtype}, {rest} beside axis {at}"}
        return (np.moveaxis(array, at, 0), at), terms

    own: np.ndarray
    own, at = agreed(transport, WHERE, prepare)
    positions = [place.positions(rank) for rank in range(transport.ranks)]
    like = [[np.empty((len(each), *own.shape[1:]), own.dtype)] for each in positions]
    found = np.empty((place.sizes.tokens, *own.shape[1:]), own.dtype)
    received = swap_arrays(transport, "an array of tokens", [[own]] * transport.ranks, like)()
    for where, (content,) in zip(positions, received, strict=True):
        found[where] = content
    result = np.ascontiguousarray(np.moveaxis(found, 0, at))
    if not is_tensor(part):
        return result
    if not tensor.requires_grad:
        return as_tensor(result)
    return as_tensor(result).index_copy(at, as_tensor(positions[transport.rank]), tensor)  # which autograd records


def _checked(transport: Transport, part: Any, place: Any, axis: SupportsIndex) -> tuple[np.ndarray, int]:
    """The array and the axis of tokens, counted from 0."""
    check_place(WHERE, transport, place)
    if elsewhere(part):
        given, fix = device_of(part), "move it: part.cpu()"
        raise refuse(WHERE, "only arrays on the CPU are exchanged", given, "the CPU", fix)
    array, at = read_array(part, WHERE), integer(axis, WHERE, "axis")
    if array.dtype.kind not in "biufV":
        fix = "convert it: part.astype(np.float32)"
        expected = "booleans, integers or floats"
        raise refuse(WHERE, "the array has no numbers", f"{array.dtype}", expected, fix)
    if not -array.ndim <= at < array.ndim:
        expected = f"{-array.ndim} to {array.ndim - 1}" if array.ndim else "an array with an axis of tokens"
        raise refuse(WHERE, "axis is out of range", f"{at}", expected, "axis=0 is the first one")
    at %= array.ndim
    tokens = len(place.positions(transport.rank))
    if array.shape[at] != tokens:
        raise refuse(
            WHERE,
            "the array does not have the tokens of this rank",
            f"{list(array.shape)}, {array.shape[at]} along axis {at}",
            f"{tokens} along axis {at}: place.positions({transport.rank}), in this order",
            f"part = place.shard(array, axis={at}, rank=…) of the whole array",
        )
    return array, at
