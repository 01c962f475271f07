"""The kernel of statistics per key: a second pass over the scores, for each block of keys over all its queries.

A weight is p = 2**(exponent · (s - top)) · peak, where top is the row's largest score and peak its largest weight, both
from the first pass. A task is a range of keys of one head, split into blocks; every tile of queries that visits a block
adds to

    received   Σ p over the rows of a key         a sum per key and lane, summed over lanes after every PIECE rows
    a map      Σ p and max p over each cell       a range is whole columns of cells, so each cell belongs to one task

in the order of the rows: without atomic operations, and independent of the number of threads. Lane l of a sum adds the
rows l, l + lanes, l + 2 · lanes … one after another, and a cell all its rows, so the height of a tile does not matter.
Sums over PIECE rows and the cells are added in float64.
"""

from __future__ import annotations

import math

from llvmlite import ir

from ..code import special
from ..code.ir import F64, I1, I64
from .forward import PIECE
from .parts.plan_by_key import visited_keys
from .parts.tile import BLOCK, regions
from .score_sweep import Frame, Sweep

SLOTS = (
    "row_top",
    "row_peak",
    "ranges",
    "borders",
    "tile_ranges",
    "received",
    "map_rows",
    "map_columns",
    "map_height",
    "map_width",
    "cell_total",
    "cell_most",
)


def keys_memory(frame: Frame) -> dict[str, int]:
    """Bytes of working memory by name: that of a tile, a vector of lanes per key, and two rows of a tile for a map."""
    return regions(frame.spec, frame.target) | {"columns": 8 * BLOCK * frame.spec.lanes, "cells": 16 * frame.spec.rows}


def keys_kernel(frame: Frame, received: bool, pooled: bool) -> ir.Module:
    """The kernel `keys(arguments, scratch, budget)`. Its additional slots (`SLOTS`):

    row_top, row_peak (B, H, whole tiles) in real; ranges, their number, and borders (ranges + 1) int64; tile_ranges, of
    tiles of BLOCK keys; received (B, H, K) float64; a map's cells, the rows and keys that they cover in total (the last
    cells may extend past Q and K), and its sums (float64) and maxima (B, H, map_rows, map_columns).
    """
    return _KeysKernel(frame, received, pooled).written()


class _KeysKernel(Sweep):
    def __init__(self, frame: Frame, received: bool, pooled: bool):
        self.received, self.pooled = received, pooled
        super().__init__("keys", frame, SLOTS, keys_memory(frame))

    def task(self, number) -> None:
        """A range of keys, block by block."""
        code, arg = self.code, self.arg
        self.set_head(code.sdiv(number, arg["ranges"]))
        border = arg.at("borders", code.srem(number, arg["ranges"]), 8)
        begin, end = code.get(border, I64, 8), code.get(code.at(border, 8), I64, 8)
        with code.loop(begin, end, BLOCK) as block:
            self.block(block.index, code.smaller_int(code.add(block.index, BLOCK), end))

    def block(self, first, last) -> None:
        """Every tile of queries that visits one of the keys first … last."""
        code = self.code
        if self.received:
            self.clear(code.sub(last, first))
        begin, end = self.tile_range(first, last)
        with code.repeat(lambda tile: code.icmp_signed("<", tile, end), [begin]) as pieces:
            border = self.border(pieces.carried[0], PIECE // self.tile.spec.rows)
            with code.loop(pieces.carried[0], code.smaller_int(border, end), 1, [code.index(0, I1)]) as which:
                found, stop, mixed = visited_keys(code, self.arg, self.group, which.index, first, last)
                some = code.icmp_signed("<", found, stop)
                with code.when(some):
                    self.enter(which.index)
                    self.scores(found, code.sub(stop, found), mixed)
                    self.rows_of(which.index)
                    self.add(first, found, stop)
                which.carry(code.or_(which.carried[0], some))
            if self.received:
                with code.when(which.result[0]):
                    self.add_received(first, code.sub(last, first))
            pieces.carry(border)

    def tile_range(self, first, last):
        """The first tile of queries that may visit the keys, and one past the last; a block may overlap two tiles of
        keys.
        """
        code, arg = self.code, self.arg
        units = code.sdiv(code.add(arg["K"], BLOCK - 1), BLOCK)
        ends = []
        for key in (first, code.sub(last, 1)):
            unit = code.add(code.mul(self.group, units), code.sdiv(key, BLOCK))
            place = arg.at("tile_ranges", unit, 16)
            ends.append([code.get(code.at(place, 8 * part), I64, 8) for part in range(2)])
        (begin, end), (other_begin, other_end) = ends
        return code.smaller_int(begin, other_begin), code.larger_int(end, other_end)

    def rows_of(self, which) -> None:
        """Loads top and peak of the tile's rows; lanes past the last row have peak 0."""
        code, arg, tile = self.code, self.arg, self.tile
        width = code.mul(arg["tiles"], tile.spec.rows)
        begin = code.add(code.mul(self.pair, width), code.mul(which, tile.spec.rows))
        offset = code.mul(begin, tile.size)
        self.top, self.peak = (
            [
                code.get(code.at(place, tile.size * tile.lanes * number), tile.type, align=tile.size)
                for number in range(tile.vectors)
            ]
            for place in (arg.at(name, offset) for name in ("row_top", "row_peak"))
        )
        self.live = [code.fcmp_unordered("!=", peak, 0.0) for peak in self.peak]

    def weights(self, key) -> list:
        """p of a row of Sᵀ: exactly 0 for a masked key and for a fully masked row."""
        code, tile, run = self.code, self.tile, self.run
        found = []
        for number in range(tile.vectors):
            s = tile.get(tile.place(tile.s, key), number)
            p = code.fmul(special.softmax_exp2(code, code.fsub(s, self.top[number]), *run.exponent), self.peak[number])
            attended = code.and_(self.live[number], code.fcmp_unordered("!=", s, -math.inf))
            found.append(code.select(attended, p, 0.0))
        return found

    def add(self, first, found, stop) -> None:
        """Adds the weights of the tile's lanes on the keys found … stop; first: the first key of the block."""
        code, tile = self.code, self.tile
        if not self.pooled:
            with code.loop(0, code.sub(stop, found)) as key:
                self.collect(code.add(code.sub(found, first), key.index), self.weights(key.index))
            return
        column = self.cell(found, "map_width", "map_columns")
        nothing = [code.number(0.0, tile.type)] * (2 * tile.vectors)
        with code.repeat(lambda begin, _: code.icmp_signed("<", begin, stop), [found, column]) as cell:
            begin, column = cell.carried
            border = code.sdiv(code.mul(code.add(column, 1), self.arg["map_width"]), self.arg["map_columns"])
            end = code.smaller_int(border, stop)
            with code.loop(code.sub(begin, found), code.sub(end, found), 1, nothing) as key:
                p = self.weights(key.index)
                if self.received:
                    self.collect(code.add(code.sub(found, first), key.index), p)
                totals, most = key.carried[: tile.vectors], key.carried[tile.vectors :]
                key.carry(*map(code.fadd, totals, p), *map(code.larger, most, p))
            self.pool(column, key.result)
            cell.carry(end, code.add(column, 1))

    # received ---------------------------------------------------------------------------------------------------------

    def column(self, key):
        """The address of the sums of a key."""
        return self.code.at(self.tile.memory["columns"], key, self.tile.size * self.tile.lanes)

    def clear(self, count) -> None:
        code, tile = self.code, self.tile
        with code.loop(0, count) as key:
            code.put(code.number(0.0, tile.type), self.column(key.index), align=tile.size * tile.lanes)

    def collect(self, key, p: list) -> None:
        """Adds the vectors of a key to its sums, in order."""
        code, tile, place = self.code, self.tile, self.column(key)
        total = code.get(place, tile.type, align=tile.size * tile.lanes)
        for part in p:
            total = code.fadd(total, part)
        code.put(total, place, tile.size * tile.lanes)

    def add_received(self, first, count) -> None:
        """Adds the sums over lanes, in float64, to the caller's array, and clears them."""
        code, arg, tile = self.code, self.arg, self.tile
        with code.loop(0, count) as key:
            sums = code.get(self.column(key.index), tile.type, align=tile.size * tile.lanes)
            code.put(code.number(0.0, sums), self.column(key.index), align=tile.size * tile.lanes)
            lanes = [code.lane(sums, lane) for lane in range(tile.lanes)]
            lanes = [lane if tile.real == F64 else code.fpext(lane, F64) for lane in lanes]
            while len(lanes) > 1:
                lanes = [code.fadd(*lanes[at : at + 2]) for at in range(0, len(lanes), 2)]
            number = code.add(code.mul(self.pair, arg["K"]), code.add(first, key.index))
            place = arg.at("received", number, 8)
            code.put(code.fadd(code.get(place, F64, 8), lanes[0]), place, align=8)

    # a map ------------------------------------------------------------------------------------------------------------

    def cell(self, number, size: str, cells: str):
        """The cell of a row or key: the last whose first index, ⌊cell · size / cells⌋, is not after it."""
        code, arg = self.code, self.arg
        after = code.mul(code.add(number, 1), arg[cells])
        return code.sdiv(code.sub(after, 1), arg[size])

    def pool(self, column, found: list) -> None:
        """Merges the sums and maxima of the lanes into the cells of their rows in one column of the map."""
        code, arg, tile = self.code, self.arg, self.tile
        cells, step = tile.memory["cells"], tile.size * tile.lanes
        for at, value in enumerate(found):
            code.put(value, code.at(cells, step * at), align=step)
        row = self.row
        with code.repeat(
            lambda lane, _: code.icmp_signed("<", lane, tile.count),
            [0, self.cell(row, "map_height", "map_rows")],
        ) as cell_rows:
            lane, which = cell_rows.carried
            border = code.sdiv(code.mul(code.add(which, 1), arg["map_height"]), arg["map_rows"])
            stop = code.smaller_int(code.sub(border, row), tile.count)
            place = code.add(
                code.mul(code.add(code.mul(self.pair, arg["map_rows"]), which), arg["map_columns"]), column
            )
            total_at = arg.at("cell_total", place, 8)
            most_at = arg.at("cell_most", place, tile.size)
            before = [code.get(total_at, F64, 8), code.get(most_at, tile.real, tile.size)]
            with code.loop(lane, stop, 1, before) as each:
                at = code.at(cells, each.index, tile.size)
                p, most = (code.get(code.at(at, part * tile.row_bytes), tile.real, tile.size) for part in range(2))
                p = p if tile.real == F64 else code.fpext(p, F64)
                each.carry(code.fadd(each.carried[0], p), code.larger(each.carried[1], most))
            code.put(each.result[0], total_at, align=8)
            code.put(each.result[1], most_at, align=tile.size)
            cell_rows.carry(stop, code.add(which, 1))
