"""Pairs: how many pairs of query and key a rule allows.

Rules that say how far a key may be from its query (causal, windows), and chunks of them, are counted in closed form for
any length. Every other rule is counted by its plan, pair by pair where a tile is mixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...common.errors import refuse
from ...engines.cost import CAP, cost
from ...engines.plan import plan
from ...language.analysis import evaluate
from ...language.expr import Const, Expr, Op, Var, walk
from ...language.problem import Problem

LONGEST = 1 << 20  # rows and keys up to which a plan is made
FEW = 1 << 18  # pairs that are tried one by one
TILE = 64
FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


@dataclass(frozen=True)
class Band:
    """A rule in numbers: low ≤ key − query ≤ high, None for no limit; both in one chunk of `chunk`
    positions, 0 for no chunks.
    """

    low: int | None = None
    high: int | None = None
    chunk: int = 0

    def __and__(self, other: Band) -> Band | None:
        """Both rules; None if they have different chunks."""
        if self.chunk and other.chunk and self.chunk != other.chunk:
            return None
        lows = [each for each in (self.low, other.low) if each is not None]
        highs = [each for each in (self.high, other.high) if each is not None]
        return Band(max(lows, default=None), min(highs, default=None), self.chunk or other.chunk)

    def count(self, rows: int, keys: int, start: int = 0) -> int:
        """Pairs of rows at the positions start … start + rows − 1 with keys at 0 … keys − 1."""
        if not self.chunk:
            return self._within(rows, keys, start)
        inside, size = Band(self.low, self.high), self.chunk
        first, last, end = start // size, (start + rows - 1) // size, keys // size
        total = max(min(last, end) - first - 1, 0) * inside._within(size, size, 0)  # these have all their rows and keys
        for begin in {first * size, last * size, end * size}:
            top, bottom = max(begin, start), min(begin + size, start + rows)
            width = min(size, keys - begin)
            if bottom > top and width > 0:
                total += inside._within(bottom - top, width, top - begin)
        return total

    def _within(self, rows: int, keys: int, start: int) -> int:
        upper = rows * keys if self.high is None else _clipped(start + self.high + 1, rows, keys)
        lower = 0 if self.low is None else _clipped(start + self.low, rows, keys)
        return max(upper - lower, 0)


def _clipped(first: int, rows: int, most: int) -> int:
    """The sum over i = 0 … rows − 1 of first + i, limited to 0 … most."""
    zeros = min(max(-first, 0), rows)
    full = min(max(most - first, 0), rows)  # from this row on, `most`
    middle = max(full - zeros, 0)
    return middle * (first + zeros) + middle * (middle - 1) // 2 + (rows - max(full, zeros)) * most


def band(rule: Expr | None) -> Band | None:
    """The rule in numbers, or None if it says anything else."""
    if rule is None or (isinstance(rule, Const) and rule.value is True):
        return Band()
    if not isinstance(rule, Op):
        return None
    if rule.name == "and":
        found: Band | None = Band()
        for part in map(band, rule.args):
            found = None if found is None or part is None else found & part
        return found
    return _compared(rule)


def _compared(rule: Op) -> Band | None:
    """A comparison of positions: key − query between limits, or key // c == query // c."""
    if rule.name == "eq":
        chunks = dict(filter(None, map(_chunk, rule.args)))
        if chunks.keys() == {"key", "query"} and chunks["key"] == chunks["query"]:
            return Band(chunk=chunks["key"])
    if rule.name not in FLIPPED:
        return None
    left, right = rule.args
    if isinstance(left, Op) and left.name == "abs" and isinstance(right, Const) and rule.name in ("lt", "le"):
        most = int(right.value) - (rule.name == "lt")
        distance = _linear(left.args[0])
        known = distance is not None and abs(distance[0]) == 1 and distance[0] == -distance[1] and not distance[2]
        return Band(-most, most) if known else None
    one, other = _linear(left), _linear(right)
    if one is None or other is None:
        return None
    key, query, number = (a - b for a, b in zip(one, other, strict=True))  # key·k + query·q + number … 0
    if (key, query) not in ((1, -1), (-1, 1)):
        return None
    limit = -key * number  # key − query (name) limit
    return {
        "le": Band(high=limit),
        "lt": Band(high=limit - 1),
        "ge": Band(low=limit),
        "gt": Band(low=limit + 1),
        "eq": Band(limit, limit),
    }[rule.name if key == 1 else FLIPPED[rule.name]]


def _chunk(part: Expr) -> tuple[str, int] | None:
    """(variable, c) of `variable // c`."""
    if isinstance(part, Op) and part.name == "floordiv":
        variable, size = part.args
        if isinstance(variable, Var) and isinstance(size, Const) and isinstance(size.value, int) and size.value > 0:
            return variable.name, size.value
    return None


def _linear(part: Expr) -> tuple[int, int, int] | None:
    """(a, b, c) of a · key + b · query + c, or None."""
    if isinstance(part, Const):
        return (0, 0, int(part.value)) if isinstance(part.value, int) and not isinstance(part.value, bool) else None
    if isinstance(part, Var):
        return {"key": (1, 0, 0), "query": (0, 1, 0)}.get(part.name)
    if isinstance(part, Op) and part.name in ("add", "sub") and len(part.args) == 2:
        one, other = map(_linear, part.args)
        if one is not None and other is not None:
            sign = 1 if part.name == "add" else -1
            return one[0] + sign * other[0], one[1] + sign * other[1], one[2] + sign * other[2]
    return None


@lru_cache(512)
def pairs(rule: Expr | None, batch: int, heads: int, rows: int, keys: int, start: int = 0) -> int:
    """Pairs that the rule allows, over all sequences and heads, in closed form where there is one.

    Row i is at position start + i, key j at position j. Raises Refused for rules without a closed form above 2²⁰ rows
    or keys, or with more than 2·10⁸ pairs in mixed tiles.

    >>> from regard import causal
    >>> pairs(causal(), batch=1, heads=2, rows=100, keys=100)
    10100
    """
    known = band(rule)
    if known is not None:
        return batch * heads * known.count(rows, keys, start)
    found = counted(rule, batch, heads, rows, keys, start)
    if found is None:
        raise refuse(
            "cost",
            "the mask is too long to be counted",
            f"the mask {rule!r} at {rows:,} rows and {keys:,} keys",
            f"at most {LONGEST:,} of each and {CAP:,} pairs in tiles that it allows in part, "
            "or a mask of distances and chunks",
            "pass fewer tokens",
        )
    return found


@lru_cache(512)
def counted(rule: Expr | None, batch: int, heads: int, rows: int, keys: int, start: int = 0) -> int | None:
    """The same number without a closed form: pair by pair if there are few, otherwise from the plan; None if there are
    too many for that.
    """
    if rule is None or not (batch and heads and rows and keys):
        return batch * heads * rows * keys
    if max(rows, keys) > LONGEST:
        return None
    names = {part.name for part in walk(rule) if isinstance(part, Var)}
    B, H = batch if "batch" in names else 1, heads if "head" in names else 1
    copies = (batch // B) * (heads // H)
    if B * H * rows * keys <= FEW:
        values = {"batch": B, "head": H, "query": rows, "key": keys}
        grid = {
            name: np.arange(size).reshape([-1 if axis == number else 1 for axis in range(4)])
            for number, (name, size) in enumerate(values.items())
        }
        grid["query"] = grid["query"] + start
        allowed = np.broadcast_to(evaluate(rule, grid), (B, H, rows, keys))
        return int(np.count_nonzero(allowed)) * copies
    q = np.broadcast_to(np.float32(0), (B, H, rows, 1))
    k = np.broadcast_to(np.float32(0), (B, H, keys, 1))
    problem = Problem.of(q, k, k, mask=rule, query_start=start)
    found = cost(problem, plan(problem, rows=TILE, keys=TILE))
    return found.allowed * copies if found.exact else None
