"""Tables that are read at [… query …, key], such as masks and biases given as arrays.

    open(number, …)          once per tile: the rows of the table that a vector of queries reads
    load(first, …)           the elements of a few keys from `first` on: squares of lanes × lanes, read along the rows
                             of the table and transposed in registers, so that lanes are queries
    elements(number, key)    the elements of a vector of queries for one of these keys

An element then costs part of an instruction; read lane by lane it would cost several.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from .....language.expr import Expr, Read, Var, walk
from .....language.expr import key as the_key
from ...code.emit import TABLE_TYPES, Emitter
from ...code.ir import I64, Code, vector

LINE = 64  # bytes of a cache line


def _reads(roots: list[Expr], folded: bool) -> list[Read]:
    """The reads whose last index is the key, in rows of the table that differ between lanes."""
    by_lane = {"query", "head"} if folded else {"query"}
    found = []
    for node in walk(*roots):
        if isinstance(node, Read) and node.index and node.index[-1] is the_key:
            names = {leaf.name for leaf in walk(*node.index[:-1]) if isinstance(leaf, Var)}
            if names & by_lane and not names & {"key", "score"}:
                found.append(node)
    return found


def element_bytes(*roots: Expr | None, folded: bool = False) -> tuple[int, ...]:
    """Of each such read in some expressions; a kernel's specification has it, because of the working memory."""
    found = _reads([root for root in roots if root is not None], folded)
    return tuple(node.table.array.dtype.itemsize for node in found)


def room(sizes: tuple[int, ...], rows: int, lanes: int) -> int:
    """Bytes of working memory: per read the offsets of the rows, and elements of as many keys as a vector has lanes."""
    return sum(padded(8 * rows) + padded(lanes * rows * size) for size in sizes)


def padded(size: int) -> int:
    """Bytes of a region that begins and ends on a cache line."""
    return -(-size // LINE) * LINE


class TableTiles:
    """Squares of tables for the vectors of a tile. memory: an address with `room` bytes."""

    def __init__(self, code: Code, roots: list[Expr], *, lanes: int, vectors: int, memory, folded: bool = False):
        self.code, self.lanes, self.vectors = code, lanes, vectors
        self.nodes = _reads(roots, folded)
        self.rows: dict[int, Any] = {}
        self.squares: dict[int, Any] = {}
        self.tables: dict[int, tuple] = {}
        self.begins: dict[int, Any] = {}
        for node in self.nodes:
            self.rows[id(node)] = memory
            memory = code.at(memory, padded(8 * lanes * vectors))
            self.squares[id(node)] = memory
            memory = code.at(memory, padded(lanes * lanes * vectors * node.table.array.dtype.itemsize))

    def open(self, number: int, scope: Emitter, root: Expr) -> None:
        """Sets the rows of a vector of queries. scope: has the values of what depends on them; root: what it emits."""
        code = self.code
        for node in self._of(root):
            pointer, offset, *last = scope.row(node)
            self.tables[id(node)] = pointer, *last
            place = code.at(self.rows[id(node)], 8 * self.lanes * number)
            code.put(code.splat(offset, self.lanes), place, 8)

    def _of(self, root: Expr) -> list[Read]:
        below = {id(node) for node in walk(root)}
        return [node for node in self.nodes if id(node) in below]

    def needed(self, roots: list[Expr]) -> bool:
        """Whether some expressions read such tables."""
        return any(self._of(root) for root in roots)

    def load(self, first, roots: list[Expr]) -> None:
        """Reads the elements of as many keys as lanes, from `first` on or the last ones of the table."""
        code, lanes = self.code, self.lanes
        wanted = {id(node) for root in roots for node in self._of(root)}
        for node in self.nodes:
            if id(node) not in wanted:
                continue
            _, count, stride = self.tables[id(node)]
            size = node.table.array.dtype.itemsize
            adjacent = code.icmp_signed("==", stride, size)
            square = code.and_(adjacent, code.icmp_signed(">=", count, lanes))
            inside = code.smaller_int(first, code.sub(count, lanes))
            self.begins[id(node)] = begin = code.select(square, inside, first)
            with code.if_else(square) as (then, otherwise):
                with then, code.loop(0, self.vectors) as each:
                    self._square(node, each.index, begin)
                with otherwise:
                    self._one_by_one(node, begin)

    def _square(self, node: Read, number, begin) -> None:
        code, lanes = self.code, self.lanes
        stored, size = TABLE_TYPES[str(node.table.array.dtype)], node.table.array.dtype.itemsize
        pointer = self.tables[id(node)][0]
        offsets = code.at(self.rows[id(node)], number, 8 * lanes)
        base = code.at(pointer, begin, size)
        rows = [
            code.get(code.at(base, code.get(code.at(offsets, 8 * lane), I64, 8)), vector(stored, lanes))
            for lane in range(lanes)
        ]
        place = code.at(self.squares[id(node)], number, lanes * size)
        for step, found in enumerate(code.transpose(rows)):
            code.put(found, code.at(place, step * self._pitch(node)), lanes * size)

    def _pitch(self, node: Read) -> int:
        """Bytes between the elements of two keys."""
        return self.lanes * self.vectors * int(node.table.array.dtype.itemsize)

    def _one_by_one(self, node: Read, begin) -> None:
        """For a table with other strides, or with fewer keys than lanes."""
        code = self.code
        stored, size = TABLE_TYPES[str(node.table.array.dtype)], node.table.array.dtype.itemsize
        pointer, count, stride = self.tables[id(node)]
        last = code.sub(count, 1)
        with code.loop(0, self.lanes) as step:
            key = code.mul(code.smaller_int(code.add(begin, step.index), last), stride)
            place = code.at(self.squares[id(node)], step.index, self._pitch(node))
            with code.loop(0, self.lanes * self.vectors) as lane:
                row = code.get(code.at(self.rows[id(node)], lane.index, 8), I64, 8)
                found = code.get(code.at(code.at(pointer, row), key), stored)
                code.put(found, code.at(place, lane.index, size))

    def elements(self, number: int, key, scope: Emitter, root: Expr) -> dict[int, ir.Value]:
        """The elements that an expression reads, by node, for a vector of queries and one of these keys."""
        code, found = self.code, {}
        for node in self._of(root):
            stored, size = TABLE_TYPES[str(node.table.array.dtype)], node.table.array.dtype.itemsize
            row = code.mul(code.sub(key, self.begins[id(node)]), self._pitch(node))
            place = code.at(code.at(self.squares[id(node)], row), number * self.lanes * size)
            value = code.get(place, vector(stored, self.lanes), self.lanes * size)
            found[id(node)] = scope.converted(node, value)
        return found
