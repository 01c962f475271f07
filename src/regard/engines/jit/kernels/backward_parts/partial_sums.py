"""dK and dV of a tile of keys as partial sums: one per block of query positions, merged in a tree (tree.py).

The partial sums are a stack in working memory. Entries do not move: a new block gets the entry above the others, and
merging adds an entry to the one below it.
"""

from __future__ import annotations

import itertools

from ...code.ir import I64, Code
from ..parts.tree import END, merge_complete
from .products import UNROLL, Matrix, Multiplier

BLOCK = 1024  # query positions of a partial sum; a multiple of the rows of every tile


class PartialSums:
    """The stack of a task.

    base: the address of the lowest entry. state: an address with 16 bytes. keys: rows of an entry's two matrices, which
    have D and E columns. scale: of dK, in every lane.
    """

    def __init__(self, code: Code, tools: Multiplier, *, base, state, keys: int, D: int, E: int, scale):
        self.code, self.tools, self.base = code, tools, base
        self.levels, self.block = state, code.at(state, 8)
        self.keys, self.D, self.E, self.scale = keys, D, E, scale
        self.bytes = keys * (D + E) * tools.size

    def entry(self, number) -> tuple[Matrix, Matrix]:
        """dK and dV of an entry."""
        code, size = self.code, self.tools.size
        at = code.at(self.base, code.mul(number, code.index(self.bytes)))
        return Matrix(at, self.D * size), Matrix(code.at(at, self.keys * self.D * size), self.E * size)

    def begin(self, rows) -> None:
        """An empty stack. rows: of the tile, in use: a multiple of GRAIN; the others are neither read nor written."""
        code, self.rows = self.code, rows
        code.put(code.index(0), self.levels, 8)
        code.put(code.index(END), self.block, 8)  # no block is open

    def open(self, block) -> None:
        """Makes a block, which must not be before the one that is open, the one that is summed."""
        code = self.code
        with code.when(code.icmp_signed("!=", code.get(self.block, I64, 8), block)):
            self._close(block)
            code.put(block, self.block, 8)
            self._clear(self._depth())

    def current(self) -> tuple[Matrix, Matrix]:
        """dK and dV of the open block."""
        return self.entry(self._depth())

    def finish(self) -> tuple[Matrix, Matrix]:
        """The sums over all blocks."""
        code = self.code
        with code.if_else(code.icmp_signed("!=", code.get(self.block, I64, 8), code.index(END))) as (then, otherwise):
            with then:
                self._close(code.index(END))
            with otherwise:
                self._clear(code.index(0))
        return self.entry(code.index(0))

    def any(self):
        """Whether a block was opened; once all of them are closed."""
        return self.code.icmp_signed("!=", self.code.get(self.levels, I64, 8), self.code.index(0))

    def _depth(self):
        """The number of partial sums below the open block."""
        return self.code.intrinsic("ctpop", self.code.get(self.levels, I64, 8))

    def _clear(self, number) -> None:
        zero = self.code.number(0.0, self.tools.type)
        for matrix in self.entry(number):
            for place in self._vectors(matrix):
                self.tools.put(zero, place, 0)

    def _close(self, following) -> None:
        """Completes the open block, if there is one, and merges what is complete before the following block."""
        code = self.code
        this, levels = (code.get(place, I64, 8) for place in (self.block, self.levels))
        with code.when(code.icmp_signed("!=", this, code.index(END))):
            self._scale(self.entry(self._depth())[0])
            code.put(merge_complete(code, levels, this, following, self._merge), self.levels, 8)

    def _scale(self, matrix: Matrix) -> None:
        """dK times the scale. It is done per block, so that the results of calls are partial sums too."""
        for place in self._vectors(matrix):
            value = self.code.fmul(self.tools.get(place, 0), self.scale)
            self.tools.put(self.code.fadd(value, self.code.number(0.0, value)), place, 0)  # -0 becomes 0

    def _merge(self, number) -> None:
        """Adds entry number + 1 to entry number."""
        tools = self.tools
        for place in itertools.chain(*map(self._vectors, self.entry(number))):
            other = tools.get(self.code.at(place, self.bytes), 0)
            tools.put(self.code.fadd(tools.get(place, 0), other), place, 0)

    def _vectors(self, matrix: Matrix):
        """The places of all vectors in the rows in use, which are a multiple of UNROLL vectors."""
        code, size = self.code, self.tools.lanes * self.tools.size
        with code.loop(code.index(0), code.mul(self.rows, code.index(matrix.row)), UNROLL * size) as part:
            for step in range(UNROLL):
                yield code.at(matrix.base, code.add(part.index, code.index(step * size)))
