"""A tile of query rows: its working memory, loading queries into lanes, and storing lanes as rows of the output.

    Qᵀ (D x W)   S (BLOCK x W)   Oᵀ (E x W)      W = vectors · lanes query rows, one per lane

Lanes are rows of one head; in a call with few rows (decoding) they are the rows of all heads that share a key head, so
that keys and values are read once for the group ("folded"). Rows of q, k, v and out are addressed by strides, so any
layout is read in place. If the depth is contiguous, squares of lanes x lanes elements are transposed in registers;
otherwise elements are loaded one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...code.arguments import Block
from ...code.formats import LOST, Format
from ...code.ir import I16, I32, I64, Code, vector
from ...code.target import ACCUMULATORS, TALL, Target
from . import table_tiles
from .dropout import room
from .table_tiles import LINE

# Keys between two updates of the running maximum: few enough that S stays in the cache, enough to make updates cheap.
BLOCK = 128

ARRAYS = ("q", "k", "v", "out")
SCALES = {"k": "k_scales", "v": "v_scales"}  # the arguments with the float32 scales of rows in 8 bits


@dataclass(frozen=True)
class Specification:
    """The compile-time parameters of a kernel. Everything else is an argument."""

    shape: tuple  # of the expressions (`emit.signature`)
    D: int
    E: int
    dtype: str
    rows: int  # W, a multiple of `lanes`
    lanes: int  # rows in a vector
    wide: bool  # integers need 64 bits
    unit: tuple[bool, ...]  # which of q, k, v, out have a contiguous depth axis
    score: bool
    mask: bool
    folded: bool = False  # lanes are the rows of all heads that share a key head
    split: bool = False  # a task is one piece of the keys; the last to finish merges the pieces
    paged: bool = False  # k and v are pools of pages, addressed by a block table
    quantized: bool = False  # k and v are 8-bit integers with a scale for each row
    partial: bool = False  # the result is O, m and l, in the type of sums
    stream: bool = False  # keys and values are read once, from memory: prefetch them
    dropout: bool = False
    few: int = 0  # the rows of the only tile, if they are few: keys and depths are in the lanes of its products
    crowded: bool = False  # the rows of k are a multiple of CROWDED apart, where a cache holds few of them at a time
    squares: tuple[int, ...] = ()  # bytes of an element of each table that is read in squares (table_tiles.py)


def regions(spec: Specification, target: Target) -> dict[str, int]:
    """Bytes of each region of a thread's working memory."""
    form = Format(spec.dtype, target)
    row = form.size * spec.rows
    return {
        "q": steps(spec.D, form) * row,
        "s": BLOCK * row,
        "running": 5 * row,
        "dropout": room(BLOCK, spec.rows, spec.lanes) if spec.dropout else 0,
        "squares": table_tiles.room(spec.squares, spec.rows, spec.lanes),
        **{name: panel_bytes(spec, form, name) for name in ("k", "v")},
    }


def state_bytes(spec: Specification, target: Target) -> int:
    """Bytes of a partial result: Oᵀ, and the rows m and l."""
    return (spec.E + 2) * Format(spec.dtype, target).size * spec.rows


def steps(depth: int, form: Format) -> int:
    """Steps of a dot product: pairs of elements count as one."""
    return -(-depth // 2) if form.pairs else depth


def in_place(spec: Specification, form: Format, name: str) -> bool:
    """Whether the elements of k or v are multiplied in place, without a panel."""
    if spec.quantized or (spec.crowded and name == "k"):
        return False
    return form.wide or (form.pairs and name == "k" and spec.unit[1] and spec.D % 2 == 0)


def panel_bytes(spec: Specification, form: Format, name: str) -> int:
    """Bytes of the panel for a block of k or v; 0 if it is used in place."""
    if in_place(spec, form, name):
        return 0
    depth = spec.D if name == "k" else spec.E
    # A pair is a word, so the number of words is half: along depth for k, along keys for v.
    return form.size * BLOCK * steps(depth, form) if name == "k" or not form.pairs else 4 * BLOCK // 2 * depth


class Memory:
    """Regions of working memory by name."""

    def __init__(self, code: Code, pointer, sizes: dict[str, int]):
        self.places, offset = {}, 0
        for name, size in sizes.items():
            self.places[name] = code.at(pointer, offset)
            offset += table_tiles.padded(size)

    def __getitem__(self, name: str):
        return self.places[name]

    @staticmethod
    def total(sizes: dict[str, int]) -> int:
        return sum(map(table_tiles.padded, sizes.values()))


class Tile:
    """The addresses of all data of the tile that is computed."""

    def __init__(self, code: Code, spec: Specification, target: Target, arg: Block, memory: Memory):
        self.code, self.spec, self.arg, self.memory = code, spec, arg, memory
        self.form = Format(spec.dtype, target)
        self.real, self.size = self.form.real, self.form.size
        self.lanes = spec.lanes
        self.vectors = spec.rows // self.lanes
        # Fewer vectors leave registers for more keys (and more depths) at once.
        if target.tile.tall and self.vectors == TALL:
            self.key_tile = self.depth_tile = ACCUMULATORS // TALL
        else:
            self.key_tile = target.tile.key_tile * target.tile.query_vectors // self.vectors
            self.depth_tile = target.tile.depth_tile * target.tile.query_vectors // self.vectors
        self.type = vector(self.real, self.lanes)
        self.arrays = (*ARRAYS, *SCALES.values()) if spec.quantized else ARRAYS
        self.row_bytes = self.size * spec.rows
        self.qt, self.s = memory["q"], memory["s"]
        self.o: Any = None  # of the current piece: an entry of the stack of partial results
        self.state_bytes = state_bytes(spec, target)

    def enter(self, b, h, first, count) -> None:
        """Sets the tile to the query rows first … first + count of a head (of all heads of a group, if folded), and to
        its keys and values.
        """
        code, arg = self.code, self.arg
        self.batch, self.count = b, count
        g = code.sdiv(h, arg["same"] if self.spec.folded else arg["group"])
        h = code.mul(h, arg["group"]) if self.spec.folded else h
        self.base = {}
        for name in self.arrays:
            head = h if name in ("q", "out") else g
            offset = code.mul(head, arg[f"{name}_head"])
            if name in ("q", "out"):
                offset = code.add(offset, code.mul(first, arg[f"{name}_row"]))
            if name in ("q", "out") or not self.spec.paged:  # pages replace batch entries
                offset = code.add(offset, code.mul(b, arg[f"{name}_batch"]))
            self.base[name] = arg.at(name, offset)
        self.block = self.base

    def enter_block(self, first) -> None:
        """Sets the block of keys that begins at `first`; a block never crosses a page boundary."""
        code = self.code
        self.block = {name: self._key_row(name, first) for name in self.arrays if name not in ("q", "out")}
        # The next block; past the end, the last key.
        last = code.sub(self.arg["K"], 1)
        self.ahead = self._key_row("k", code.smaller_int(code.add(first, BLOCK), last))

    def _key_row(self, name: str, number):
        """The address of a row of k or v."""
        code, arg = self.code, self.arg
        base = self.base[name]
        if self.spec.paged:
            entry = code.add(code.mul(self.batch, arg["pages_batch"]), code.sdiv(number, arg["page"]))
            page = code.sext(code.get(arg.at("pages", entry, 4), I32, 4), I64)
            base, number = code.at(base, page, arg[f"{name}_batch"]), code.srem(number, arg["page"])
        return code.at(base, number, arg[f"{name}_row"])

    def lines(self, name: str) -> int:
        """Cache lines of a row; 0 if rows are not prefetched."""
        depth = self.spec.D if name == "k" else self.spec.E
        size = 1 if self.spec.quantized else self.form.itemsize
        return -(-depth * size // LINE) if self.spec.stream and self.unit(name) else 0

    def prefetch(self, name: str, base, first, count: int) -> None:
        """Prefetches `count` cache lines from line `first` on, counted row by row from a base address."""
        code, lines = self.code, self.lines(name)
        together = count if count and lines % count == 0 else 1
        for step in range(0, count, together):
            number = code.add(first, step)
            row = code.at(base, code.udiv(number, lines), self.arg[f"{name}_row"])
            place = code.at(row, code.urem(number, lines), LINE)
            for line in range(together):
                code.prefetch(code.at(place, LINE * line))

    # working memory ---------------------------------------------------------------------------------------------------

    def place(self, base, row, lane=None):
        """The address of a lane (by default the first) in a row of Qᵀ, S or Oᵀ."""
        offset = self.code.mul(row, self.row_bytes)
        return self.code.at(base, offset if lane is None else self.code.add(offset, self.code.mul(lane, self.size)))

    def state_row(self, base, row: int):
        """The address of m (row 0) or l (row 1) of a partial result."""
        return self.code.at(base, (self.spec.E + row) * self.row_bytes)

    def get(self, place, number: int, rows: int = 0):
        """Vector `number`, `rows` rows after an address."""
        offset = rows * self.row_bytes + self.size * self.lanes * number
        return self.code.get(self.code.at(place, offset), self.type, align=self.size * self.lanes)

    def put(self, value, place, number: int, rows: int = 0) -> None:
        offset = rows * self.row_bytes + self.size * self.lanes * number
        self.code.put(value, self.code.at(place, offset), align=self.size * self.lanes)

    # the caller's arrays ----------------------------------------------------------------------------------------------

    def unit(self, name: str) -> bool:
        return self.spec.unit[ARRAYS.index(name)]

    def step(self, name: str):
        """Bytes from one element of a row to the next."""
        size = self.size if name == "out" and self.spec.partial else self.form.itemsize
        return size if self.unit(name) else self.arg[f"{name}_depth"]

    def row(self, name: str, number):
        """The address of a row of the block (of the tile, for q and out)."""
        return self.code.at(self.block.get(name, self.base[name]), number, self.arg[f"{name}_row"])

    def column(self, row, name: str, depth):
        """The address of an element of a row."""
        return self.code.at(row, depth, self.step(name))

    def lane_row(self, name: str, lane):
        """The address of the row of q or out of a lane."""
        code, arg = self.code, self.arg
        if not self.spec.folded:
            return self.row(name, lane)
        head, row = code.sdiv(lane, arg["Q"]), code.srem(lane, arg["Q"])
        return code.at(self.row(name, row), head, arg[f"{name}_head"])

    def _lane_rows(self, name: str, first) -> list:
        """The addresses of the rows of `lanes` lanes; lanes past the last row load the last row, and are not stored."""
        code, last = self.code, self.code.sub(self.count, 1)
        return [self.lane_row(name, code.smaller_int(code.add(first, lane), last)) for lane in range(self.lanes)]

    def load_queries(self) -> None:
        """Loads Qᵀ; with pairs, as words of two elements."""
        code, spec, lanes = self.code, self.spec, self.lanes
        pairs = self.form.pairs
        count, each = (-(-spec.D // 2), 2) if pairs else (spec.D, 1)
        whole = spec.D // each  # steps without padding
        squares = whole // lanes * lanes if self.unit("q") else 0
        with code.loop(0, spec.rows, lanes) as group:
            rows = self._lane_rows("q", group.index)
            with code.loop(0, squares, lanes) as step:
                depth = code.mul(step.index, each)
                places = [self.column(row, "q", depth) for row in rows]
                found = [code.get(p, vector(I32, lanes)) if pairs else self.form.load(code, p, lanes) for p in places]
                place = self.place(self.qt, step.index, group.index)
                for number, column in enumerate(code.transpose(found)):
                    self.put(column, place, 0, number)
            with code.loop(squares, whole) as step:
                column = code.gathered(
                    [
                        self._word(row, step.index)
                        if pairs
                        else self.form.load(code, self.column(row, "q", step.index))
                        for row in rows
                    ]
                )
                self.put(column, self.place(self.qt, step.index, group.index), 0)
            if whole < count:  # the last element of an odd depth, and zero
                last = [code.zext(code.get(self.column(row, "q", code.index(spec.D - 1)), I16), I32) for row in rows]
                self.put(code.gathered(last), self.place(self.qt, code.index(whole), group.index), 0)

    def _word(self, row, step):
        """Two adjacent 16-bit elements as one word."""
        code = self.code
        low, high = (
            code.zext(code.get(self.column(row, "q", code.add(code.mul(step, 2), part)), I16), I32) for part in (0, 1)
        )
        return code.or_(low, code.shl(high, 16))

    def clear(self, base) -> None:
        """Oᵀ = 0."""
        code = self.code
        with code.loop(0, self.spec.E) as depth:
            place = self.place(base, depth.index)
            for number in range(self.vectors):
                self.put(code.number(0.0, self.type), place, number)

    def store_output(self, base, rows_before) -> None:
        """Stores Oᵀ as rows of out, by squares and then by single elements; also what rounding takes from them, if the
        caller has an array for it.

        rows_before: the rows before the tile, in that array.
        """
        code, spec, lanes = self.code, self.spec, self.lanes
        wanted = code.icmp_signed("!=", self.arg["lost"], 0)
        width = spec.E * LOST
        lost = self.arg.at("lost", rows_before, width)

        def store(value, row, lane, depth) -> None:
            place = self.column(row, "out", depth)
            if self.form.wide or spec.partial:
                code.put(value, place)
                return
            bits = self.form.rounded(code, value)
            code.put(bits, place)
            with code.when(wanted):
                offset = code.add(code.mul(lane, width), code.mul(depth, LOST))
                code.put(self.form.lost(code, value, bits), code.at(lost, offset))

        squares = spec.E // lanes * lanes if self.unit("out") else 0
        with code.loop(0, self.count, lanes) as group:
            rows = self._lane_rows("out", group.index)
            with code.loop(0, squares, lanes) as depth:
                place = self.place(base, depth.index, group.index)
                columns = [self.get(place, 0, step) for step in range(lanes)]
                for step, (row, value) in enumerate(zip(rows, code.transpose(columns), strict=True)):
                    number = code.add(group.index, step)
                    with code.when(code.icmp_signed("<", number, self.count)):
                        store(value, row, number, depth.index)
            end = code.smaller_int(code.add(group.index, lanes), self.count)
            with code.loop(group.index, end) as lane:
                row = self.lane_row("out", lane.index)
                with code.loop(squares, spec.E) as depth:
                    value = code.get(self.place(base, depth.index, lane.index), self.real, self.size)
                    store(value, row, lane.index, depth.index)
