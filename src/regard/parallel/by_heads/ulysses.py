"""Some tokens of all heads ↔ all tokens of some heads: what DeepSpeed calls Ulysses.

Ranks that divide the heads of a sequence hold a part of its tokens each. Before attention each gets all of these tokens
in its own heads, and afterwards the result returns. A head is computed whole on one rank.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from ..exchange.moves import Move
from ..exchange.transport import Transport
from .split import Heads, heads


class Division(NamedTuple):
    """shares: the heads of each rank. queries, keys: moves from tokens to heads."""

    shares: list[Heads]
    queries: Move
    keys: Move


def parts(positions: np.ndarray, ranks: int) -> list[np.ndarray]:
    """The positions that each of the ranks that divide the heads holds: consecutive parts, the longer ones first."""
    return np.array_split(positions, ranks)


def division(transport: Transport, tokens: int, query_heads: int, key_heads: int) -> Division:
    """How ranks divide the heads of some tokens, of which each holds a part; refused: heads that do not divide."""
    ranks = transport.ranks
    shares = [heads(rank, ranks=ranks, heads=query_heads, key_heads=key_heads) for rank in range(ranks)]
    edges = [0, *itertools.accumulate(len(each) for each in parts(np.arange(tokens), ranks))]
    held = [slice(first, last) for first, last in itertools.pairwise(edges)]
    mine = held[transport.rank].stop - held[transport.rank].start

    def move(name: str, total: int, own: list[range]) -> Move:
        take = [(slice(each.start, each.stop), slice(None)) for each in own]
        put = [(slice(None), each) for each in held]
        shape = (total, mine), (len(own[transport.rank]), tokens)
        return Move(transport, name, take, put, shape, overlaps=sum(map(len, own)) > total)

    return Division(
        shares,
        move("queries", query_heads, [each.query for each in shares]),
        move("keys and values", key_heads, [each.key for each in shares]),
    )
