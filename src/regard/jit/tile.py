"""A tile of query rows: its working memory, and how rows in memory become lanes and lanes become rows again.

    Qᵀ (D x W)   S (BLOCK x W)   Oᵀ (E x W)      W = vectors · lanes query rows, side by side in the lanes

Rows of q, k, v and out are found by strides, so any layout is read in place. Where depth is contiguous, squares of lanes x lanes
elements are transposed in registers; otherwise elements are picked one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from .arguments import Block
from .ir import F32, Code, vector
from .target import Target

__all__ = ["BLOCK", "Specification", "Tile", "scratch_bytes"]

BLOCK = 128  # keys between two updates of the running maximum: few enough that S stays near, enough that updates cost little

ARRAYS = ("q", "k", "v", "out")


@dataclass(frozen=True)
class Specification:
    """What a kernel is specialised to. Everything else is an argument."""

    shape: tuple  # of the expressions (`emit.signature`)
    D: int
    E: int
    rows: int  # W, a multiple of the vector's lanes
    wide: bool  # integers need 64 bits
    unit: tuple[bool, ...]  # q, k, v, out lie with depth contiguous
    score: bool
    mask: bool


def scratch_bytes(spec: Specification) -> int:
    """Working memory of one thread: Qᵀ, S, Oᵀ and the rows of the running softmax."""
    return 4 * spec.rows * (spec.D + BLOCK + spec.E + 8)


class Tile:
    """Where everything lies while one tile is computed."""

    def __init__(self, code: Code, spec: Specification, target: Target, arg: Block, scratch):
        self.code, self.spec, self.arg = code, spec, arg
        self.lanes = target.lanes(4)
        self.vectors = spec.rows // self.lanes
        # Fewer vectors leave registers for more keys (and more depths) at once.
        self.key_tile = target.tile.key_tile * target.tile.query_vectors // self.vectors
        self.depth_tile = target.tile.depth_tile * target.tile.query_vectors // self.vectors
        self.type = vector(F32, self.lanes)
        self.row_bytes = 4 * spec.rows
        self.qt = scratch
        self.s = code.at(self.qt, spec.D * self.row_bytes)
        self.o = code.at(self.s, BLOCK * self.row_bytes)
        self.rest = code.at(self.o, spec.E * self.row_bytes)

    def enter(self, b, h, first, count) -> None:
        """Goes to query rows first … first + count of a head, and to its keys and values."""
        code = self.code
        g = code.sdiv(h, self.arg["group"])
        self.count = count
        self.base = {}
        for name in ARRAYS:
            head = h if name in ("q", "out") else g
            offset = code.add(code.mul(b, self.arg[f"{name}_batch"]), code.mul(head, self.arg[f"{name}_head"]))
            if name in ("q", "out"):
                offset = code.add(offset, code.mul(first, self.arg[f"{name}_row"]))
            self.base[name] = code.at(self.arg.address(name), offset)

    # working memory -----------------------------------------------------------------------------------------------------------

    def place(self, base, row, lane=None):
        """The address of a lane (the first, if none is named) in a row of Qᵀ, S or Oᵀ."""
        offset = self.code.mul(row, self.code.index(self.row_bytes))
        return self.code.at(base, offset if lane is None else self.code.add(offset, self.code.mul(lane, self.code.index(4))))

    def get(self, place, number: int, rows: int = 0):
        """A vector, counted in vectors and rows from a place."""
        offset = rows * self.row_bytes + 4 * self.lanes * number
        return self.code.get(self.code.at(place, offset), self.type, align=4 * self.lanes)

    def put(self, value, place, number: int, rows: int = 0) -> None:
        offset = rows * self.row_bytes + 4 * self.lanes * number
        self.code.put(value, self.code.at(place, offset), align=4 * self.lanes)

    # the caller's arrays ------------------------------------------------------------------------------------------------------

    def unit(self, name: str) -> bool:
        return self.spec.unit[ARRAYS.index(name)]

    def row(self, name: str, number):
        """The address of a row."""
        return self.code.at(self.base[name], self.code.mul(number, self.arg[f"{name}_row"]))

    def column(self, row, name: str, depth):
        """The address of an element of a row."""
        step = self.code.index(4) if self.unit(name) else self.arg[f"{name}_depth"]
        return self.code.at(row, self.code.mul(depth, step))

    def element(self, place, name: str, steps: int):
        """The element some steps from a place, broadcast to all lanes."""
        code = self.code
        further = 4 * steps if self.unit(name) else code.mul(code.index(steps), self.arg[f"{name}_depth"])
        return code.splat(code.get(code.at(place, further), F32), self.lanes)

    def _lane_rows(self, name: str, first) -> list:
        """The rows of `lanes` lanes; a lane past the last row stands for the last row, and is never stored."""
        code, last = self.code, self.code.sub(self.count, self.code.index(1))
        return [self.row(name, code.smaller_int(code.add(first, code.index(lane)), last)) for lane in range(self.lanes)]

    def load_queries(self) -> None:
        """Qᵀ, times its factor (1, or -1 where the scale is negative)."""
        code, spec, lanes = self.code, self.spec, self.lanes
        factor = self.arg.factor("query_factor", lanes)
        squares = spec.D // lanes * lanes if self.unit("q") else 0
        with code.loop(code.index(0), code.index(spec.rows), lanes) as group:
            rows = self._lane_rows("q", group.index)
            with code.loop(code.index(0), code.index(squares), lanes) as depth:
                found = [code.get(self.column(row, "q", depth.index), self.type) for row in rows]
                place = self.place(self.qt, depth.index, group.index)
                for step, column in enumerate(code.transpose(found)):
                    self.put(code.fmul(column, factor), place, 0, step)
            with code.loop(code.index(squares), code.index(spec.D)) as depth:
                column = code.gathered([code.get(self.column(row, "q", depth.index), F32) for row in rows])
                self.put(code.fmul(column, factor), self.place(self.qt, depth.index, group.index), 0)

    def clear_output(self) -> None:
        code = self.code
        with code.loop(code.index(0), code.index(self.spec.E)) as depth:
            place = self.place(self.o, depth.index)
            for number in range(self.vectors):
                self.put(code.number(0.0, self.type), place, number)

    def store_output(self) -> None:
        """out = Oᵀ as rows; squares where all lanes have a row, single elements for the rest."""
        code, spec, lanes = self.code, self.spec, self.lanes
        squares = spec.E // lanes * lanes if self.unit("out") else 0
        with code.loop(code.index(0), self.count, lanes) as group:
            end = code.add(group.index, code.index(lanes))
            full = code.icmp_signed("<=", end, self.count)
            done = code.select(full, code.index(squares), code.index(0))
            rows = self._lane_rows("out", group.index)
            with code.loop(code.index(0), done, lanes) as depth:
                place = self.place(self.o, depth.index, group.index)
                columns = [self.get(place, 0, step) for step in range(lanes)]
                for row, value in zip(rows, code.transpose(columns), strict=True):
                    code.put(value, self.column(row, "out", depth.index))
            with code.loop(group.index, code.smaller_int(end, self.count)) as lane:
                row = self.row("out", lane.index)
                with code.loop(done, code.index(spec.E)) as depth:
                    value = code.get(self.place(self.o, depth.index, lane.index), F32, 4)
                    code.put(value, self.column(row, "out", depth.index))
