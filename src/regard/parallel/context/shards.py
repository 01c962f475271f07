"""The arrays of a rank, checked: its tokens of the placement, in CPU memory, one batch for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...common.arrays import device_of, elsewhere, read_array
from ...common.errors import Reason, Refused, refuse
from ...language.checks.arrays import four_axes
from ..exchange.transport import Transport
from ..placement import Placement


def shards(where: str, transport: Transport, place: Any, tensors: tuple[Any, ...]) -> Any:
    """q, k and v (or q and k) with four axes, and the axes of the result before its depth."""
    check_place(where, transport, place)
    if any(elsewhere(each) for each in tensors):
        raise refuse(
            where,
            "only the CPU computes over several ranks",
            ", ".join(device_of(each) for each in tensors),
            "tensors in CPU memory",
            "move them: tensor.cpu()",
        )
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
    return tuple(four_axes(each, q.shape[:-3]) for each in found), q.shape[:-1]


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
