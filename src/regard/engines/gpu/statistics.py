"""Statistics of the weights, and weights of selected rows and keys, by torch operations, tile by tile of the Plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...language.measures import Counts, Distance, Maximum, Measure, Pooled, PooledMap, Range, Request, Top, edges
from .device_call import DeviceCall, tables_on
from .lowering import POSITIONS, lower
from .tiles import (
    INFINITY,
    WIDE,
    Block,
    Denominator,
    Rows,
    Rules,
    block,
    denominator,
    left_over,
    positions,
    rows_at_once,
    shares,
    summed,
    tiles,
    with_sinks,
)


def weights(call: DeviceCall, rows: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """The weights of selected rows and keys (indices from 0) -> (B, H, rows, keys), in the dtype of sums, after
    dropout.
    """
    rules, (B, H), K = Rules(call), call.q.shape[:2], call.k.shape[2]
    found = torch.zeros(B, H, len(rows), len(keys), dtype=call.real, device=call.q.device)
    every, copies, most = slice(None), H // max(call.k.shape[1], 1), rows_at_once(call, WIDE)
    for begin in range(0, len(rows), most):
        some = slice(begin, begin + most)
        own = Rows(every, every, every, copies, rows[some])
        below = summed(rules, own, [(slice(left, min(left + WIDE, K)), True) for left in range(0, K, WIDE)])
        for left in range(0, len(keys), WIDE):
            seen = block(rules, own, keys[left : left + WIDE])
            found[:, :, some, left : left + WIDE] = shares(seen.s, below) * left_over(rules, seen.variables)
    return found


class RowWeights:
    """A block of rows over all keys that it visits: scores s, the keys, denominators, weights p."""

    def __init__(self, call: DeviceCall, rows: Rows, found: Block):
        self.s, self.variables, self.allowed = found.s, found.variables, found.allowed
        self.alone = denominator(found.s)
        self.below = with_sinks(call, rows, self.alone)
        self.p = shares(found.s, self.below)

    @property
    def keys(self) -> torch.Tensor:
        return self.variables[-1]

    def weigh(self, value: torch.Tensor) -> torch.Tensor:
        """Σ p · value over the keys of each row; NaN for a row whose weights are not numbers."""
        return self.weighed(self.p, self.below, value)

    def weighed(self, p: torch.Tensor, below: Denominator, value: torch.Tensor) -> torch.Tensor:
        return torch.where(below.total.isnan(), torch.nan, torch.where(self.allowed, p * value, 0).sum(-1))


def statistics(request: Request, call: DeviceCall) -> dict[str, Any]:
    """Every measure by name: tensors or tuples of tensors, in the dtype of sums and int64, their shapes beginning with
    (B, H).
    """
    (B, H, Q), K = call.q.shape[:3], call.k.shape[2]
    rules = Rules(call)
    masses = tuple(request.of_kind("mass"))
    tables = tables_on(call.q.device, *(each.keys for each in masses))
    sets = {each: lower(each.keys, POSITIONS, tables, torch.float64, torch.int64, torch.bool) for each in masses}
    received = call.q.new_zeros((B, H, K), dtype=call.real)
    maps = {
        each: [received.new_zeros(B, H, each.rows, each.columns) for _ in range(2)]
        for each in request.of_kind("pooled")
    }
    found: dict[str, Any] = {}
    for rows, parts in [*tiles(call, K)] or [(Rows(slice(None), slice(None), slice(None), 1, slice(0, 0)), [])]:
        seen = RowWeights(call, rows, _together(rules, rows, parts))
        if parts:
            received[rows.batch, rows.heads, seen.keys] += seen.p.sum(-2)
        for each in request.measures:
            if each.kind == "mass":
                inside = sets[each](*seen.variables[1:])
                _put(found, each.name, seen.weigh(torch.where(inside, 1.0, 0.0).to(call.real)), rows, Q, (B, H))
            elif isinstance(each, PooledMap) and parts:
                _pool(maps[each], each, rows, seen, Q, K)
            elif each.kind in OF_ROWS:
                _put(found, each.name, OF_ROWS[each.kind](seen, each), rows, Q, (B, H))
    for each, (total, largest) in maps.items():
        high, wide = (
            torch.from_numpy(edges(size, cells)).diff().to(total) for size, cells in ((Q, each.rows), (K, each.columns))
        )
        found[each.name] = Pooled(total / (high[:, None] * wide), largest)
    return {each.name: received if each.kind == "received" else found[each.name] for each in request.measures}


def _together(rules: Rules, rows: Rows, parts: list[tuple[slice, bool]]) -> Block:
    """The blocks of some rows concatenated over the keys; if there is none, one masked key."""
    blocks = [block(rules, rows, keys, mixed) for keys, mixed in parts]
    if not blocks:
        q = rows.of(rules.call.q, rules.call)
        nothing = q.new_full((*q.shape[:3], 1), -INFINITY)
        return Block(nothing, (nothing, *(torch.zeros(1, dtype=torch.int64, device=q.device) for _ in POSITIONS)))
    first = blocks[0].variables
    s, keys = (torch.cat(each, -1) for each in zip(*((each.s, each.variables[-1]) for each in blocks), strict=True))
    return Block(s, (s, *first[1:4], keys))


def _put(found: dict[str, Any], name: str, value: Any, rows: Rows, Q: int, lead: tuple[int, int]) -> None:
    """Stores the results of some rows at their place in the output."""
    parts = value if isinstance(value, tuple) else (value,)
    if name not in found:
        made = [part.new_zeros((*lead, Q, *part.shape[3:])) for part in parts]
        found[name] = type(value)(*made) if isinstance(value, tuple) else made[0]
    held = found[name] if isinstance(value, tuple) else (found[name],)
    for target, part in zip(held, parts, strict=True):
        target[rows.place] = part


def _pool(sums: list[torch.Tensor], measure: PooledMap, rows: Rows, seen: RowWeights, Q: int, K: int) -> None:
    """Adds rows to the sums and maxima of a map's cells."""
    total, largest = (part[rows.batch, rows.heads] for part in sums)
    device, p = seen.p.device, seen.p
    row, column = (
        torch.searchsorted(torch.from_numpy(edges(size, cells)).to(device), positions(part, device), right=True) - 1
        for size, cells, part in ((Q, measure.rows, rows.rows), (K, measure.columns, seen.keys))
    )
    empty = p.new_zeros((*p.shape[:3], measure.columns))
    total.index_add_(2, row, empty.index_add(3, column, p))
    cells = empty.scatter_reduce(3, column.expand(p.shape), p, "amax")
    largest.scatter_reduce_(2, row[:, None].expand(cells.shape), cells, "amax")


def _entropy(seen: RowWeights, _: Measure) -> torch.Tensor:
    """−Σ p ln p over the keys, where 0 ln 0 = 0."""
    return seen.weigh(-torch.log(torch.where(seen.p == 0, 1, seen.p)))


def _distance(seen: RowWeights, _: Measure) -> Distance:
    """Mean and variance of query − key, without sinks."""
    p, away = shares(seen.s, seen.alone), (seen.variables[3] - seen.keys).to(seen.s)
    mean = seen.weighed(p, seen.alone, away)
    return Distance(mean, seen.weighed(p, seen.alone, (away - mean[..., None]) ** 2))


def _best(seen: RowWeights, order: torch.Tensor, count: int) -> Top:
    """Weights and keys at the indices in `order`, padded to `count`."""
    room = (0, count - order.shape[-1])
    there = torch.nn.functional.pad(seen.allowed.gather(-1, order), room)
    nan = seen.below.total.isnan()[..., None]
    weight, key = (torch.nn.functional.pad(part, room) for part in (seen.p.gather(-1, order), seen.keys[order]))
    return Top(torch.where(nan, torch.nan, torch.where(there, weight, 0)), torch.where(there & ~nan, key, -1))


def _top(seen: RowWeights, measure) -> Top:
    """The keys of the largest scores, the first key where two are equal."""
    order = torch.argsort(seen.s, dim=-1, descending=True, stable=True)[..., : measure.count]
    return _best(seen, order, measure.count)


def _maximum(seen: RowWeights, _: Measure) -> Maximum:
    return Maximum(*(part[..., 0] for part in _best(seen, seen.s.argmax(-1, keepdim=True), 1)))


def _range(seen: RowWeights, _: Measure) -> Range:
    return Range(torch.where(seen.allowed, seen.s, INFINITY).amin(-1), seen.s.amax(-1))


def _counts(seen: RowWeights, _: Measure) -> Counts:
    return Counts(*(each.sum(-1) for each in (seen.allowed, seen.s.isnan(), seen.s == INFINITY)))


OF_ROWS: dict[str, Callable] = {
    "lse": lambda seen, _: seen.below.lse, "entropy": _entropy, "distance": _distance, "top": _top, "maximum": _maximum,
    "range": _range, "counts": _counts,
}  # fmt: skip
