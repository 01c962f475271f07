"""DTensors, whose tokens are divided as `torch.chunk` does: moved to the placement, and the result back."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from ...common.errors import Reason, Refused
from ..exchange.agreement import agreed
from ..exchange.moves import Move
from ..exchange.moving import moved
from ..exchange.transport import Transport
from ..placement import Placement
from .shards import check_place, check_tokens


def given_dtensors(where: str, tensors: tuple[Any, ...]) -> bool:
    """Whether these are DTensors; refused: some are, or their tokens are not divided over one dimension of a mesh."""
    tensor = sys.modules.get("torch.distributed.tensor")
    if tensor is None or not any(isinstance(each, tensor.DTensor) for each in tensors):
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
    return tuple(moved(_move(transport, place, each.shape[-3]), each.to_local()) for each in tensors)


def whole_of(transport: Transport, place: Placement, found: Any, like: Any) -> Any:
    """A result of this rank's tokens, (…, heads, n, depth) or (…, heads, n), divided like a DTensor."""
    from torch.distributed.tensor import DTensor

    flat = found.ndim < like.ndim
    local = moved(_move(transport, place, like.shape[-3]), found[..., None] if flat else found, back=True)
    local = local[..., 0] if flat else local
    shape = (*like.shape[:-1], *local.shape[like.ndim - 1 :])
    stride = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return DTensor.from_local(local, like.device_mesh, like.placements, run_check=False, shape=shape, stride=stride)


def _move(transport: Transport, place: Placement, heads: int) -> Move:
    """Tokens divided as `torch.chunk` does -> as the placement does."""
    rank, every = transport.rank, slice(None)
    before = chunked(place.sizes.tokens, place.ranks)
    after = [place.positions(each) for each in range(place.ranks)]
    take = [(every, np.flatnonzero(np.isin(before[rank], each, assume_unique=True))) for each in after]
    put = [(every, np.flatnonzero(np.isin(after[rank], each, assume_unique=True))) for each in before]
    return Move(transport, "tokens", take, put, ((heads, len(before[rank])), (heads, len(after[rank]))))
