"""The rules of one batch entry: `batch` is substituted, tables are cut to the entry, and dense tables become shorter
rules where possible.
"""

from __future__ import annotations

import math

import numpy as np

from ...language.added_masks import NOTHING, ORDINARY, hidden_beside, hides
from ...language.analysis import evaluate
from ...language.expr import Const, Expr, Op, Read, Table, Var, fold, frozen_table, head, key, lift, query, walk
from ...language.expr import score as score_variable
from ...language.masks import causal, window

CELLS = 1 << 24  # the most pairs over which a rule is evaluated as a whole


def entry_mask(rule: Expr | None, entry: int, sizes: tuple[int, int, int], start: int) -> Expr | None:
    """A mask for one batch entry; sizes (H, Q, K). Tables that equal causal, a window or padding become it."""
    if rule is None:
        return None
    found = _of_entry(rule, entry)
    if isinstance(found, Const):
        return None if found.value is True else found
    shape = shape_of(sizes, found)
    if not found.tables or math.prod(shape) > CELLS:
        return found
    return mask_of(grid(found, shape, start), start)


def entry_score(rule: Expr | None, entry: int, sizes: tuple[int, int, int], start: int) -> Expr | None:
    """A score rule for one batch entry; a dense bias that depends only on key − query is indexed by that difference."""
    if rule is None:
        return None
    found = _of_entry(rule, entry)
    if isinstance(found, Op) and found.name == "add" and _dense(found) and math.prod(sizes) <= CELLS:
        inner, other = found.args
        if not reads(other, "score"):
            return added(inner, grid(other, shape_of(sizes, other), start), start)
    return found


def hidden(
    mask: Expr | None, score: Expr | None, sizes: tuple[int, int, int], start: int, largest: float
) -> tuple[Expr | None, Expr | None]:
    """(mask, score) in which keys whose added bias leaves them no weight are masked; unchanged if there are none.

    largest: a bound of the absolute scaled scores.
    """
    if not isinstance(score, Op) or score.name != "add" or reads(score.args[1], "score"):
        return mask, score
    inner, other = score.args
    shape = shape_of(sizes, mask, score)
    if math.prod(shape) > CELLS or not any(hides(table.array, ORDINARY).any() for table in other.tables):
        return mask, score
    numbers, allowed = grid(other, shape, start), grid(mask, shape, start)
    away = hidden_beside(numbers, allowed)
    low, high = (grid(score, shape, start, at) for at in (-largest, largest))
    above = np.where(allowed & ~away, low, np.inf).min(-1) - np.where(away, high, -np.inf).max(-1)
    if not away.any() or not (above >= NOTHING).all():
        return mask, score
    found = added(inner, np.where(away, 0, numbers), start)
    return mask_of(allowed & ~away, start), None if found is score_variable else found


def window_rules(
    mask: Expr | None, score: Expr | None, first: int, sizes: tuple[int, int, int], start: int
) -> tuple[Expr, Expr | None]:
    """The rules of concatenated windows: each is batch entry first, first + 1, … with its own positions.

    sizes (H, Q, K): of one window.
    """
    _, Q, K = sizes
    window, row = query // Q, query % Q
    inside = {"batch": first + window if first else window, "query": start + row if start else row, "key": key % K}

    def placed(rule: Expr) -> Expr:
        return fold(
            rule,
            lambda node: node,
            lambda node: inside.get(node.name, node),
            lambda node, *at: Read(frozen_table(node.table.array, node.table.name), *at),
            lambda node, *args: _folded(Op(node.name, *args)),
        )

    same = window == key // K
    return same if mask is None else same & placed(mask), None if score is None else placed(score)


def mask_of(allowed: np.ndarray, start: int) -> Expr | None:
    """The rule that allows exactly these pairs, (H or 1, Q, K) booleans; None where all are allowed."""
    if allowed.all():
        return None
    if len(allowed) > 1 and not (allowed == allowed[:1]).all():
        return _read(frozen_table(allowed, "allowed"), start)
    seen = allowed[0]
    Q, K = seen.shape
    if not seen.any():
        return lift(False)
    padded = seen.any(0)
    ahead = np.arange(K)[None, :] - (start + np.arange(Q))[:, None]  # key − query
    reach = ahead[seen]
    left, right = int(-reach.min()), int(reach.max())
    kept = frozen_table(padded, "padding")[key]
    known = [(lift(True), np.True_), (causal(), ahead <= 0)]
    if left >= 0 and right >= 0:
        known.append((window(left + 1, right), (-ahead <= left) & (ahead <= right)))
    for rule, band in known:
        if (seen == band).all():
            return rule
        if (seen == (band & padded)).all():
            return kept if rule is lift(True) else rule & kept
    return _read(frozen_table(seen[None], "allowed"), start)


def added(score: Expr, numbers: np.ndarray, start: int, known: np.ndarray | None = None) -> Expr:
    """score + numbers[head, query, key], (H or 1, Q or 1, K or 1), with no more axes than the numbers need.

    known (Q, K): the pairs that matter; elsewhere a mask hides the key.
    """
    for axis in range(3):
        if numbers.shape[axis] > 1 and _same(numbers, axis):
            numbers = numbers.take([0], axis)
    if not numbers.any():
        return score
    if min(numbers.shape[1:]) > 1:
        along = _along(numbers, known)
        if along is not None:
            by = key - query + (numbers.shape[1] - 1 + start)
            return score + (
                frozen_table(along[0], "bias")[by] if len(along) == 1 else frozen_table(along, "bias")[head, by]
            )
    return score + _read(frozen_table(numbers, "bias"), start)


def _along(numbers: np.ndarray, known: np.ndarray | None) -> np.ndarray | None:
    """(H, Q + K − 1), indexed by key − row from −(Q − 1) on, if the numbers depend only on it; otherwise None."""
    H, Q, K = numbers.shape
    if known is None:
        if not _alike(numbers[:, 1:, 1:], numbers[:, :-1, :-1]):
            return None
        known = np.ones((1, 1), bool)
    rows, keys = np.nonzero(np.broadcast_to(known, (Q, K)))
    found, by, own = np.zeros((H, Q + K - 1), numbers.dtype), keys - rows + Q - 1, numbers[:, rows, keys]
    found[:, by] = own
    return found if _alike(found[:, by], own) else None


def _same(numbers: np.ndarray, axis: int) -> bool:
    return numbers.strides[axis] == 0 or _alike(numbers, numbers.take([0], axis))


def _alike(x: np.ndarray, y: np.ndarray) -> bool:
    return bool(((x == y) | ((x != x) & (y != y))).all())


def _read(table: Table, start: int) -> Expr:
    """The table at (head, query, key); axes of one entry are left out."""
    index = [
        (query - start if start else query) if name == "query" else at
        for name, at, size in zip(("head", "query", "key"), (head, query, key), table.shape, strict=True)
        if size > 1
    ]
    if not index:
        return lift(table.array.reshape(-1)[0])
    return frozen_table(table.array.reshape([size for size in table.shape if size > 1]), table.name)[tuple(index)]


def _of_entry(rule: Expr, entry: int) -> Expr:
    """The rule with `batch` substituted, over copies of its tables cut to the entry."""

    def read(node, *index):
        array = node.table.array
        places = [
            min(max(int(part.value), 0), size - 1) if isinstance(part, Const) else slice(None)
            for part, size in zip(index, array.shape, strict=True)
        ]
        rest = [part for part in index if not isinstance(part, Const)]
        first = array[tuple(place if isinstance(place, int) else 0 for place in places)]
        if not rest or (array[tuple(places)] == first).all():
            return lift(first.astype({"bool": bool, "int": np.int64, "float": np.float64}[node.kind]))
        if node.table.frozen and len(rest) == len(index):
            return Read(node.table, *index)
        return Read(frozen_table(array[tuple(places)], node.table.name), *rest)

    return fold(
        rule,
        lambda node: node,
        lambda node: Const(entry) if node.name == "batch" else node,
        read,
        lambda node, *args: _folded(Op(node.name, *args)),
    )


def _folded(node: Expr) -> Expr:
    """An operator on constants as a constant; `&` and `|` with a constant as the other operand."""
    if not isinstance(node, Op):
        return node
    if all(isinstance(arg, Const) for arg in node.args):
        return lift(evaluate(node, {}).item())
    if node.name in ("and", "or"):
        for one, other in (node.args, node.args[::-1]):
            if isinstance(one, Const):
                return other if one.value is (node.name == "and") else one
    return node


def reads(rule: Expr | None, name: str) -> bool:
    """Whether the rule depends on this variable."""
    return rule is not None and any(isinstance(node, Var) and node.name == name for node in walk(rule))


def shape_of(sizes: tuple[int, int, int], *rules: Expr | None) -> tuple[int, int, int]:
    """The sizes (H, Q, K), with one head if none of the rules depends on it."""
    H, Q, K = sizes
    return H if any(reads(rule, "head") for rule in rules) else 1, Q, K


def _dense(rule: Expr) -> bool:
    """Whether a table is read by pairs of positions."""
    return any(
        isinstance(node, Read) and len(node.index) > 1 and reads(node, "query") and reads(node, "key")
        for node in walk(rule)
    )


def grid(rule: Expr | None, shape: tuple[int, int, int], start: int, scored: float = 0.0, first: int = 0) -> np.ndarray:
    """The values of a rule for every pair, (heads, rows, keys); None allows every pair. start, first: the positions of
    the first row and of the first key.
    """
    heads, rows, keys = shape
    places = {
        "score": np.float64(scored),
        "head": np.arange(heads)[:, None, None],
        "query": start + np.arange(rows)[None, :, None],
        "key": first + np.arange(keys)[None, None],
    }
    return np.broadcast_to(np.asarray(True if rule is None else evaluate(rule, places)), shape)
