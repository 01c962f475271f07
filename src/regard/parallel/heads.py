"""Which query heads and key heads a rank computes, and how tokens become heads and heads tokens (Ulysses)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, SupportsIndex

from ..common.errors import Reason, refuse_all
from ..common.text.terminal_text import printable
from ..language.checks.numbers import whole
from .exchange import Redistribution, Transport

MOST = 1 << 16  # heads and ranks


@printable
@dataclass(frozen=True)
class Heads:
    """The heads that one rank computes.

    Key head g belongs to the query heads g · H/G … (g + 1) · H/G − 1. A rank has whole groups, or a part of one.

    Args:
        rank: the number of this rank.
        ranks: R, how many ranks share the heads.
        heads: H, the number of query heads of all ranks.
        key_heads: G, the number of key heads of all ranks.
        query: the query heads of this rank, consecutive.
        key: the key heads of this rank, consecutive.
        sharers: the ranks that have the same key heads, this one included, in ascending order.

    Examples:
        >>> import regard.parallel as rp
        >>> part = rp.heads(1, ranks=4, heads=8, key_heads=2)
        >>> part.query, part.key, part.sharers
        (range(2, 4), range(0, 1), (0, 1))
    """

    rank: int
    ranks: int
    heads: int
    key_heads: int
    query: range
    key: range
    sharers: tuple[int, ...]

    def __str__(self) -> str:
        others = [str(rank) for rank in self.sharers if rank != self.rank]
        shared = f"; rank{'s' * (len(others) > 1)} {', '.join(others)} too" if others else ""
        return (
            f"rank {self.rank} of {self.ranks}: query {_named(self.query)} of {self.heads}, "
            f"key {_named(self.key)} of {self.key_heads}{shared}"
        )


def heads(
    rank: SupportsIndex, *, ranks: SupportsIndex, heads: SupportsIndex, key_heads: SupportsIndex | None = None
) -> Heads:
    """Chooses the query heads and key heads of one rank.

    R ≤ G: rank r has ⌊G/R⌋ consecutive groups, and one more if r < G mod R.
    R > G: key head g is on ⌊R/G⌋ consecutive ranks, and on one more if g < R mod G; they divide its H/G query heads in
    the same way.

    A group is a key head with its H/G query heads. A rank with several groups has H/G query heads for each key head, as
    the whole layer has; a rank with a part of a group has one key head. Nothing is sent, and torch is not needed.

    Args:
        rank: the number of the rank, from 0.
        ranks: R, how many ranks share the heads, at most H.
        heads: H, the number of query heads of the layer.
        key_heads: G, the number of key heads of the layer, a divisor of H; None means H.

    Returns:
        The heads of the rank. Over all ranks, every query head occurs once.

    Raises:
        Refused: more ranks than query heads, heads that do not divide, or a rank that does not exist; the error lists
            every problem, with the nearest sizes that work.

    Source:
        Shoeybi et al. 2019 (heads over ranks); Pope et al. 2022, section 3.3 (key heads on several ranks).

    Examples:
        >>> import regard.parallel as rp
        >>> for rank in range(2):  # three groups over two ranks
        ...     print(rp.heads(rank, ranks=2, heads=12, key_heads=3))
        rank 0 of 2: query heads 0-7 of 12, key heads 0-1 of 3
        rank 1 of 2: query heads 8-11 of 12, key head 2 of 3
        >>> print(rp.heads(3, ranks=4, heads=8, key_heads=2))  # more ranks than key heads
        rank 3 of 4: query heads 6-7 of 8, key head 1 of 2; rank 2 too
    """
    own, R, H = whole(rank, "heads", "rank"), whole(ranks, "heads", "ranks"), whole(heads, "heads", "heads")
    G = H if key_heads is None else whole(key_heads, "heads", "key_heads")
    _check(own, R, H, G)
    group = H // G
    if R <= G:
        key = _share(own, R, G)
        return Heads(own, R, H, G, range(key.start * group, key.stop * group), key, (own,))
    g = next(g for g in range(G) if own in _share(g, G, R))
    sharers = _share(g, G, R)
    part = _share(own - sharers.start, len(sharers), group)
    query = range(g * group + part.start, g * group + part.stop)
    return Heads(own, R, H, G, query, range(g, g + 1), tuple(sharers))


def _share(number: int, parts: int, total: int) -> range:
    """Part `number` of `total` things in consecutive parts that differ by one at most; longer ones are first.

    >>> [list(_share(number, 2, 5)) for number in range(2)]
    [[0, 1, 2], [3, 4]]
    """
    least, more = divmod(total, parts)
    start = number * least + min(number, more)
    return range(start, start + least + (number < more))


def _check(rank: int, R: int, H: int, G: int) -> None:
    """Raises `Refused` with every problem of the sizes."""
    reasons = [
        Reason(f"{name} is out of range", f"{name}={value:,}", f"1 to {MOST:,}", f"check {name}")
        for name, value in (("ranks", R), ("heads", H), ("key_heads", G))
        if not 1 <= value <= MOST
    ]
    if not reasons and H % G:
        near = [f"key_heads={other}" for other in _divisors_near(H, G)]
        near += [f"heads={other}" for other in (H // G * G, (H // G + 1) * G) if other]
        reasons.append(
            Reason(
                "the key heads do not divide the query heads",
                f"heads={H}, key_heads={G}",
                "heads to be a multiple of key_heads",
                f"nearest: {', '.join(near)}",
            )
        )
    if not reasons and R > H:
        reasons.append(
            Reason(
                "more ranks than query heads",
                f"ranks={R}, heads={H}",
                f"at most {H} ranks: each computes at least one query head",
                f"pass ranks={H}; divide rows over the other ranks",
            )
        )
    if R >= 1 and not 0 <= rank < R:
        reasons.append(
            Reason("the rank does not exist", f"rank={rank}, ranks={R}", f"0 to {R - 1}", "ranks count from 0")
        )
    refuse_all("heads", reasons)


def _divisors_near(H: int, G: int) -> list[int]:
    """The divisors of H nearest to G, below and above."""
    found = [number for number in range(1, H + 1) if H % number == 0]
    below, above = [number for number in found if number < G], [number for number in found if number > G]
    return below[-1:] + above[:1]


def _named(numbers: range) -> str:
    """Consecutive heads in words."""
    return f"head {numbers[0]}" if len(numbers) == 1 else f"heads {numbers[0]}-{numbers[-1]}"


class Division(NamedTuple):
    """shares: the heads of each rank. queries, keys: how they go from tokens to heads."""

    shares: list[Heads]
    queries: Redistribution
    keys: Redistribution


def division(transport: Transport, tokens: int, query_heads: int, key_heads: int) -> Division:
    """How ranks divide the heads of some tokens, of which each holds a part; refused: heads that do not divide."""
    ranks = transport.ranks
    shares = [heads(rank, ranks=ranks, heads=query_heads, key_heads=key_heads) for rank in range(ranks)]
    tokens_of = [_share(rank, ranks, tokens) for rank in range(ranks)]

    def move(name: str, total: int, own: list[range]) -> Redistribution:
        take = [[(slice(each.start, each.stop), slice(None))] for each in own]
        put = [[(slice(None), slice(each.start, each.stop))] for each in tokens_of]
        shape = (total, len(tokens_of[transport.rank])), (len(own[transport.rank]), tokens)
        return Redistribution(transport, name, take, put, shape, overlaps=sum(map(len, own)) > total)

    return Division(
        shares,
        move("queries", query_heads, [each.query for each in shares]),
        move("keys and values", key_heads, [each.key for each in shares]),
    )
