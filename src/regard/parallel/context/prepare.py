"""What a rank is about to compute, with all checks of its arguments, before anything is exchanged."""

from __future__ import annotations

import hashlib
import sys
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from ...common.call_hooks import torch_if_imported
from ...common.errors import refuse
from ...engines import dispatch
from ...language.checks.arguments import Arguments
from ...language.checks.numbers import whole as integer
from ...language.expr import Table, tables_of
from ...language.problem import Problem
from ..exchange.transport import Transport
from ..placement import Placement
from ..work import stripe_of
from .forward import Here
from .pages import shards
from .routes import Call

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
    call = Call(whole, _stripe(where, stripe, whole.dims["G"], wanted))
    here = Here.of(call, place, transport, gradients=gradients)
    return Prepared(here, arrays, lead, wanted, gradients), terms(call, place, wanted, gradients)


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


def terms(call: Call, place: Placement, wanted: list[Table], gradients: bool) -> dict[str, str]:
    """What all ranks have to be about to do alike, by name."""
    whole = call.whole
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
        "the stripe": f"{call.stripe}",
    }
