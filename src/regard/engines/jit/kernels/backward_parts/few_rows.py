"""The matrix products of a visit by few query rows, which would leave most lanes of their tile idle.

    S, dP       lanes are keys: rows of K and V are transposed in registers, and multiplied by broadcast elements
    dK, dV      lanes are depths: rows of Q and dO times broadcast elements of dS and P
    dQ          lanes are depths: rows of K times broadcast elements of dS

Every sum has the terms and the order that it has in products.py, so the results have the same bits.
"""

from __future__ import annotations

from typing import Any

from ...code.ir import PIECE, Code, vector
from ..parts.few_rows import CHAINS, NARROW, SUMS
from .products import CHAIN, Matrix, Multiplier

Span = tuple[Any, Any]  # the first, and one past the last


class FewRows:
    """Products for `count` rows, from row `begin` of their tile on. room: working memory for a vector."""

    def __init__(self, code: Code, tools: Multiplier, count: int, begin, room):
        self.code, self.tools, self.count, self.begin, self.room = code, tools, count, begin, room
        self.keys = min(NARROW // tools.size, tools.lanes)
        self.real = tools.type.element

    def dots(self, out: Matrix, a: Matrix, b: Matrix, keys: Span, depth: int) -> None:
        """out[key][row] = Σ a[key][depth] · b[row][depth]."""
        code, size, kind = self.code, self.tools.size, vector(self.real, self.keys)
        several = max(1, CHAINS // self.count)
        # Keys of a tile are a multiple of 16.
        several = min(several, 16 // self.keys)
        rows = [self.tools.place(b, code.add(self.begin, row)) for row in range(self.count)]
        with code.loop(*keys, several * self.keys) as loop:
            firsts = [code.add(loop.index, number * self.keys) for number in range(several)]
            bases = [self.tools.place(a, first) for first in firsts]
            scores: list = []
            for start in range(0, depth, CHAIN):
                sums = [code.number(0.0, kind)] * (several * self.count)
                for step in range(start, min(start + CHAIN, depth), PIECE // size):
                    columns = [
                        code.columns([code.at(base, key * a.row + step * size) for key in range(self.keys)], self.real)
                        for base in bases
                    ]
                    for further in range(PIECE // size):
                        for row, at in enumerate(rows):
                            place = code.at(at, (step + further) * size)
                            element = code.splat(code.get(place, self.real, size), self.keys)
                            for number, found in enumerate(columns):
                                slot = number * self.count + row
                                sums[slot] = code.fma(found[further], element, sums[slot])
                scores = [*map(code.fadd, scores, sums)] if start else sums
            for slot, value in enumerate(scores):
                number, row = divmod(slot, self.count)
                place = self.tools.place(out, firsts[number], code.add(self.begin, row))
                code.put(value, self.room, NARROW)
                for key in range(self.keys):
                    element = code.get(code.at(self.room, key * size), self.real, size)
                    code.put(element, code.at(place, key * out.row), size)

    def outer(self, out: Matrix, weights: Matrix, rows: Matrix, keys: Span, width: int) -> None:
        """out[key][depth] += Σ weights[key][row] · rows[row][depth]."""
        code, tools = self.code, self.tools
        for columns in self._columns(width):
            places = [
                tools.place(rows, code.add(self.begin, row), code.index(columns[0] * tools.lanes))
                for row in range(self.count)
            ]
            vectors = [[tools.get(place, at) for at in range(len(columns))] for place in places]
            with code.loop(*keys) as key:
                weights_at = tools.place(weights, key.index, self.begin)
                sums = [code.number(0.0, tools.type)] * len(columns)
                for row in range(self.count):
                    weight = self._element(weights_at, row)
                    sums = [code.fma(weight, each, total) for each, total in zip(vectors[row], sums, strict=True)]
                to = tools.place(out, key.index, code.index(columns[0] * tools.lanes))
                for at, total in enumerate(sums):
                    tools.put(code.fadd(tools.get(to, at), total), to, at)

    def inner(self, out: Matrix, weights: Matrix, rows: Matrix, keys: Span, width: int) -> None:
        """out[depth][row] += Σ weights[key][row] · rows[key][depth]."""
        code, tools = self.code, self.tools
        for columns in self._columns(width):
            zeros = [code.number(0.0, tools.type)] * (self.count * len(columns))
            with code.loop(*keys, 1, zeros) as key:
                at = tools.place(rows, key.index, code.index(columns[0] * tools.lanes))
                vectors = [tools.get(at, number) for number in range(len(columns))]
                weights_at = tools.place(weights, key.index, self.begin)
                sums = list(key.carried)
                for row in range(self.count):
                    weight = self._element(weights_at, row)
                    for number, each in enumerate(vectors):
                        slot = row * len(columns) + number
                        sums[slot] = code.fma(weight, each, sums[slot])
                key.carry(*sums)
            for slot, total in enumerate(key.result):
                row, number = divmod(slot, len(columns))
                first = code.index((columns[0] + number) * tools.lanes)
                to = tools.place(out, first, code.add(self.begin, row))
                code.put(total, self.room, tools.lanes * tools.size)
                with code.loop(0, tools.lanes) as lane:
                    place = code.at(to, lane.index, out.row)
                    found = code.get(code.at(self.room, lane.index, tools.size), self.real, tools.size)
                    code.put(code.fadd(code.get(place, self.real, tools.size), found), place, tools.size)

    def _columns(self, width: int) -> list[range]:
        """The vectors of a row, as many together as there are registers for their sums."""
        vectors, together = width // self.tools.lanes, max(1, SUMS // self.count)
        return [range(first, min(first + together, vectors)) for first in range(0, vectors, together)]

    def _element(self, place, row: int):
        """The element of a row, broadcast."""
        code, size = self.code, self.tools.size
        return code.splat(code.get(code.at(place, row * size), self.real, size), self.tools.lanes)
