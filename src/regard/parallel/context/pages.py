"""Keys, values and rows as pages of 128 tokens: which tokens a rank has of them, and pages as bytes.

A rank computes over arrays of the length of the whole sequence, in which the pages that it needs are at their
positions. The others are never touched: the system gives them no memory, and where a kernel reads beside a page that
it needs, it reads zeros.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...common.arrays import read_array
from ...common.errors import Reason, Refused, refuse
from ...language.checks.arrays import four_axes
from ..exchange.agreement import agreed
from ..exchange.redistribute import Redistribution, redistribute
from ..exchange.transport import Transport
from ..placement import Placement
from ..work import PAGE


class Rows:
    """The tokens of some pages, ascending, as a rank stores them: one after another.

    numbers: the pages. tokens: in the whole sequence, whose last page may be shorter.
    """

    def __init__(self, numbers: np.ndarray, tokens: int):
        self.numbers = numbers
        ends = np.minimum((numbers + 1) * PAGE, tokens)
        self.starts = np.append(0, np.cumsum(ends - numbers * PAGE))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def runs(self, numbers: np.ndarray) -> list[tuple[slice, slice]]:
        """Where the tokens of some of the pages are: (here, in the sequence) of each run of consecutive pages."""
        found = []
        if numbers.size:
            for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
                first, last = np.searchsorted(self.numbers, run[[0, -1]])
                here = slice(int(self.starts[first]), int(self.starts[last + 1]))
                position = int(run[0]) * PAGE
                found.append((here, slice(position, position + here.stop - here.start)))
        return found


def shards(where: str, transport: Transport, place: Any, tensors: tuple[Any, ...]) -> Any:
    """q, k and v (or q and k) with four axes; the same of the whole sequence, without memory; and the axes of the
    result before its depth.
    """
    check_place(where, transport, place)
    found = [read_array(each, name) for each, name in zip(tensors, "qkv", strict=False)]
    check_tokens(where, found, len(place.positions(transport.rank)), f"place.positions({transport.rank})")
    q = found[0]
    if any(each.shape[:-3] != q.shape[:-3] for each in found):
        raise refuse(
            where,
            "q, k and v differ in the axes before the heads",
            ", ".join(f"{name} {list(each.shape)}" for name, each in zip("qkv", found, strict=False)),
            "the same batch; nothing is broadcast over several ranks",
            "expand k and v to the batch of q",
        )
    arrays = tuple(four_axes(each, q.shape[:-3]) for each in found)
    tokens = place.sizes.tokens
    wide = [np.broadcast_to(np.zeros((), a.dtype), (*a.shape[:2], tokens, a.shape[3])) for a in arrays]
    return arrays, wide, q.shape[:-1]


def check_place(where: str, transport: Transport, place: Any) -> None:
    """Refuses what is not a placement for these ranks."""
    if not isinstance(place, Placement):
        fix = "place = rp.place(tokens, ranks=…, mask=…)"
        raise refuse(where, "place is not a placement", type(place).__name__, "a Placement", fix)
    if place.ranks != transport.ranks:
        raise refuse(
            where,
            "the placement is for another number of ranks",
            f"{place.ranks} ranks in the placement, {transport.ranks} in the group",
            "as many ranks as the group has processes",
            f"rp.place(…, ranks={transport.ranks})",
        )


def check_tokens(where: str, arrays: Sequence[Any], tokens: int, named: str) -> None:
    """Refuses arrays without this number of tokens; named: which ones these are."""
    reasons = [
        Reason(
            f"{name} does not have the tokens of this rank",
            f"{name} {list(array.shape)}",
            f"(…, heads, {tokens}, depth): {named}, in this order",
            f"{name} = place.shard({name}, axis=-2, …) of the whole sequence",
        )
        for name, array in zip("qkv", arrays, strict=False)
        if len(array.shape) < 3 or array.shape[-2] != tokens
    ]
    if reasons:
        raise Refused(where, reasons)


def given_dtensors(where: str, tensors: tuple[Any, ...]) -> bool:
    """Whether these are DTensors; refused: some are, or their tokens are not divided over one dimension of a mesh."""
    tensor = sys.modules.get("torch.distributed.tensor")
    # It has no such class yet while another thread imports it.
    if tensor is None or not any(isinstance(each, getattr(tensor, "DTensor", ())) for each in tensors):
        return False
    reasons = []
    for name, each in zip("qkv", tensors, strict=False):
        fits = (
            isinstance(each, tensor.DTensor)
            and each.device_mesh.ndim == 1
            and each.placements == (tensor.Shard(each.ndim - 2),)
            and each.device_mesh == tensors[0].device_mesh
        )
        if not fits:
            given = f"{name} {each.placements}" if isinstance(each, tensor.DTensor) else f"{name}, a plain tensor"
            reasons.append(
                Reason(
                    f"the tokens of {name} are not divided like those of the others",
                    given,
                    "DTensors on one mesh of one dimension, Shard(the axis of tokens)",
                    f"{name}.redistribute(mesh, [Shard({name}.ndim - 2)])",
                )
            )
    if reasons:
        raise Refused(where, reasons)
    return True


def chunked(tokens: int, ranks: int) -> list[np.ndarray]:
    """The positions of each rank as `torch.chunk` divides them.

    >>> [len(each) for each in chunked(10, 4)]
    [3, 3, 3, 1]
    """
    size = -(-tokens // ranks)
    return [np.arange(min(rank * size, tokens), min((rank + 1) * size, tokens)) for rank in range(ranks)]


def local_of(where: str, transport: Transport, place: Placement, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tokens of this rank by the placement, (…, heads, n, depth), of DTensors."""

    def checked() -> tuple[Placement, dict[str, str]]:
        check_place(where, transport, place)
        check_tokens(where, tensors, place.sizes.tokens, "the whole sequence")
        return place, {"the placement": place.digest, "the shapes": f"{[list(each.shape) for each in tensors]}"}

    agreed(transport, where, checked)
    return tuple(redistribute(_move(transport, place, each.shape[-3]), each.to_local()) for each in tensors)


def whole_of(transport: Transport, place: Placement, found: Any, like: Any) -> Any:
    """A result of this rank's tokens, (…, heads, n, depth) or (…, heads, n), divided like a DTensor."""
    from torch.distributed.tensor import DTensor

    flat = found.ndim < like.ndim
    local = redistribute(_move(transport, place, like.shape[-3]), found[..., None] if flat else found, back=True)
    local = local[..., 0] if flat else local
    shape = (*like.shape[:-1], *local.shape[like.ndim - 1 :])
    stride = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return DTensor.from_local(local, like.device_mesh, like.placements, run_check=False, shape=shape, stride=stride)


def _move(transport: Transport, place: Placement, heads: int) -> Redistribution:
    """Tokens divided as `torch.chunk` does -> as the placement does."""
    rank, every = transport.rank, slice(None)
    before = chunked(place.sizes.tokens, place.ranks)
    after = [place.positions(each) for each in range(place.ranks)]
    take = [[(every, np.flatnonzero(np.isin(before[rank], each, assume_unique=True)))] for each in after]
    put = [[(every, np.flatnonzero(np.isin(after[rank], each, assume_unique=True)))] for each in before]
    return Redistribution(transport, "tokens", take, put, ((heads, len(before[rank])), (heads, len(after[rank]))))
