"""The plan by keys: which tiles of queries visit a tile of keys, and which of its keys each of them visits.

A plan lists keys per tile of queries. Sums over queries (gradients of keys and values, attention received) need the
tiles of queries per tile of keys. `tile_ranges` computes the first and last of these, in time linear in the number of
runs; the kernel then finds the keys of each tile by binary search (`visited_keys`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from ....plan import Plan
from ...code.ir import I32, I64, Code


def tile_ranges(plan: Plan, keys: int) -> np.ndarray:
    """Per group of the plan and tile of `keys` keys: the first tile of queries that visits it, and one past the last.

    -> (groups, ⌈K / keys⌉, 2), int64; (T, 0) for keys that no tile visits, with T tiles of queries.
    """
    groups, tiles = plan.order.shape
    units = -(-plan.dims["K"] // keys)
    found = np.empty((groups, units, 2), np.int64)
    group, tile = np.divmod(plan.tile_of, max(tiles, 1))
    first, last = plan.runs[:, 0] // keys, -(-plan.runs[:, 1] // keys)  # units that a run touches
    spans = group, first, last
    found[..., 0] = _least((groups, units), spans, tile, tiles)
    found[..., 1] = -_least((groups, units), spans, -tile - 1, 0)
    return found


def _least(shape: tuple[int, int], spans: tuple, value: np.ndarray, nothing: int) -> np.ndarray:
    """Per group and unit the least value of the spans (group, first unit, one past the last) that contain it.

    A span is the union of two spans whose length is a power of two; from the longest to the shortest, each passes its
    least value to its halves.
    """
    group, first, last = spans
    level = np.frexp(last - first)[1] - 1  # of the longest power of two inside
    below: Any = None
    for power in range(int(level.max(initial=0)), -1, -1):
        least = np.full(shape, nothing, np.int64)
        if below is not None:
            half = 1 << power
            np.minimum(least, below, out=least)
            np.minimum(least[:, half:], below[:, : shape[1] - half], out=least[:, half:])
        here = level == power
        for start in (first[here], last[here] - (1 << power)):
            np.minimum.at(least, (group[here], start), value[here])
        below = least
    return below


class KeySpan(NamedTuple):
    """Keys that a tile of queries visits: the first, one past the last (empty if that is not larger), and whether the
    span is mixed.
    """

    first: ir.Value
    last: ir.Value
    mixed: ir.Value


def visited_keys(code: Code, arg, group, tile, first, last) -> KeySpan:
    """The smallest span of the keys from `first` to `last` that a tile of queries visits.

    A span with a gap counts as mixed, because the mask excludes the gap. arg: a block with the slots offsets, runs and
    tiles.
    """
    offsets = arg.at("offsets", code.add(code.mul(group, arg["tiles"]), tile), 8)
    begin, end = code.get(offsets, I64, 8), code.get(code.at(offsets, 8), I64, 8)

    def part(run, number: int):
        place = arg.at("runs", code.add(code.mul(run, 12), 4 * number))
        return code.sext(code.get(place, I32, 4), I64)

    # The first run that ends after `first`.
    with code.repeat(lambda low, high: code.icmp_signed("<", low, high), [begin, end]) as search:
        low, high = search.carried
        middle = code.ashr(code.add(low, high), 1)
        beyond = code.icmp_signed(">", part(middle, 1), first)
        search.carry(code.select(beyond, low, code.add(middle, 1)), code.select(beyond, middle, high))

    def meets(run, *_):
        exists = code.icmp_signed("<", run, end)
        # If the tile has no further run, the first run of the plan is read instead, and not used.
        safe = code.select(exists, run, 0)
        return code.and_(exists, code.icmp_signed("<", part(safe, 0), last))

    with code.repeat(meets, [search.result[0], last, first, 0]) as joined:
        run, lo, hi, mixed = joined.carried
        starts, ends = code.larger_int(part(run, 0), first), code.smaller_int(part(run, 1), last)
        fresh = code.icmp_signed("<=", hi, lo)
        gap = code.and_(code.not_(fresh), code.icmp_signed("!=", starts, hi))
        both = code.or_(code.or_(mixed, part(run, 2)), code.zext(gap, I64))
        joined.carry(code.add(run, 1), code.select(fresh, starts, lo), ends, both)
    _, lo, hi, mixed = joined.result
    return KeySpan(lo, hi, code.icmp_signed("!=", mixed, 0))
