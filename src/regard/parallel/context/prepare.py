"""What a rank is about to compute, with all checks of its arguments, before anything is exchanged."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from ...common.arrays import read_array
from ...common.call_hooks import torch_if_imported
from ...common.errors import Reason, refuse, refuse_all
from ...engines import dispatch
from ...language.checks.arguments import Arguments
from ...language.checks.arrays import four_axes
from ...language.checks.numbers import whole as integer
from ...language.expr import Table, tables_of
from ...language.problem import Problem
from ..exchange import Redistribution, Transport, agreed, redistribute
from ..placement import Placement
from ..work import stripe_of
from .forward import Here

SAMPLE = 1 << 16  # numbers of a table that are compared between ranks


class Prepared(NamedTuple):
    """here: what this rank does. arrays: q, k and v as (B, heads, tokens, depth). lead: the axes before the tokens of
    the result. wanted: the tables that the score reads and that require gradients. gradients: whether anything does.
    """

    here: Here
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray]
    lead: tuple[int, ...]
    wanted: list[Table]
    gradients: bool


def prepared(
    where: str,
    transport: Transport,
    place: Placement,
    tensors: tuple[Any, Any, Any],
    arguments: Arguments,
    *,
    stripe: Any,
    learns: bool,
) -> tuple[Prepared, dict[str, str]]:
    """What this rank is about to compute, and what has to be equal on all ranks."""
    arrays, wide, lead = shards(where, transport, place, tensors)
    whole: Problem = Problem.of(*wide, **arguments._asdict(), where=where, gradients=True)
    compiled_only(where, whole)
    wanted = [] if whole.score is None else [
        table for table in tables_of(whole.score).values() if getattr(table.source, "requires_grad", False)
    ]  # fmt: skip
    if wanted and not learns:
        raise refuse(
            where,
            "tables are not learned where ranks divide the heads",
            f"{len(wanted)} that require gradients",
            "tables without gradients",
            "divide the rows only: omit heads_group",
        )
    torch = torch_if_imported()
    recording = torch is not None and torch.is_grad_enabled()
    gradients = recording and bool(
        wanted or any(getattr(each, "requires_grad", False) for each in (*tensors, arguments.sinks))
    )
    wanted = wanted if gradients else []
    stripe = _stripe(where, stripe, whole.dims["G"], wanted)
    here = Here.of(whole, stripe, place, transport, gradients=gradients)
    return Prepared(here, arrays, lead, wanted, gradients), terms(here, place, wanted, gradients)


def compiled_only(where: str, whole: Problem) -> None:
    """Refuses what the compiled engine does not support, because no other sums in the order of law 11."""
    against = dispatch.why_not(whole, "jit")
    if against:
        raise refuse(
            where,
            "only the compiled engine computes over several ranks",
            "; ".join(against),
            "a call that it supports",
            "compute on one rank: regard.attention",
        )


def _stripe(where: str, given: SupportsIndex | None, key_heads: int, wanted: list[Table]) -> int:
    """Key heads that travel at a time: by default four stripes, and all at once where tables are learned."""
    if given is None:
        return key_heads if wanted else stripe_of(key_heads)
    stripe = integer(given, where, "stripe")
    if not 1 <= stripe <= key_heads:
        expected = f"1 to {key_heads} key heads"
        raise refuse(where, "stripe is out of range", f"{stripe}", expected, "omit it")
    if wanted and stripe < key_heads:
        raise refuse(
            where,
            "a learned table needs all heads at once",
            f"stripe={stripe}, and a table that requires gradients, whose sum over heads has one order",
            f"stripe={key_heads}",
            "omit stripe",
        )
    return stripe


def _numbers(whole: Problem) -> str:
    """A short hash of what the rules read: with other numbers on a rank, results would be wrong without a word.

    Of large arrays, a sample is read.
    """
    read = tables_of(*(rule for rule in (whole.mask, whole.score) if rule is not None))
    arrays = {table.name: table.array for table in read.values()}
    if whole.sinks is not None:
        arrays["sinks"] = whole.sinks
    return ", ".join(f"{name} {_hash(array)}" for name, array in arrays.items()) or "none"


def _hash(array: np.ndarray) -> str:
    sample = array.flat[:: max(1, array.size // SAMPLE)]
    return hashlib.blake2b(repr(array.shape).encode() + sample.tobytes(), digest_size=4).hexdigest()


def terms(here: Here, place: Placement, wanted: list[Table], gradients: bool) -> dict[str, str]:
    """What all ranks have to be about to do alike, by name."""
    whole = here.whole
    return {
        "the version of regard": sys.modules["regard"].__version__,
        "the placement": place.digest,
        "the shapes": f"{ {name: size for name, size in whole.dims.items() if name not in 'QK'} }",
        "the dtype": whole.dtype.name,
        "the mask": f"{whole.mask}",
        "the score": f"{whole.score}",
        "the numbers of tables": _numbers(whole),
        "the scale": repr(whole.scale),
        "the sinks": "none" if whole.sinks is None else f"{whole.sinks.shape[1]} per head",
        "dropout": "none" if whole.dropout is None else f"{whole.dropout}",
        "what needs gradients": f"{'something' if gradients else 'nothing'}, {len(wanted)} tables",
        "the stripe": f"{here.stripe}",
    }


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
    refuse_all(
        where,
        [
            Reason(
                f"{name} does not have the tokens of this rank",
                f"{name} {list(array.shape)}",
                f"(…, heads, {tokens}, depth): {named}, in this order",
                f"{name} = place.shard({name}, axis=-2, …) of the whole sequence",
            )
            for name, array in zip("qkv", arrays, strict=False)
            if len(array.shape) < 3 or array.shape[-2] != tokens
        ],
    )


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
    refuse_all(where, reasons)
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
