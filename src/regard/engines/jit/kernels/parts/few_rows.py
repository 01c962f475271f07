"""The two matrix products of a block of keys for few query rows, which would leave most lanes of a tile idle.

    scores    lanes are keys: squares of K are transposed in registers, and multiplied by broadcast elements of q
    output    lanes are depths: rows of V times broadcast probabilities

Every sum has the terms and the order that it has in products.py, so the results have the same bits: one row of decoding
and a row of a prefill are equal (law 11). Scores and sums are then transposed to the layout of the tile.
"""

from __future__ import annotations

import math

from ...code.formats import Format
from ...code.ir import Code, vector
from ...code.target import Target
from .panels import Keys, Values
from .products import STRETCH
from .softmax import Running
from .tile import Tile

__all__ = ["add_values", "multiply_keys", "suits"]

MOST = 8  # rows; with more of them, tiles whose lanes are queries are as fast (bench/LOG.md)
SUMS = 16  # registers for sums over keys


def suits(rows: int, depths: tuple[int, int], unit: tuple[bool, ...], form: Format, target: Target) -> bool:
    """Whether a call has few rows, and keys and values whose rows can be read as vectors. unit: see `Specification`."""
    lanes = target.lanes(form.size)
    adjacent = not form.wide or (unit[1] and unit[2])  # other formats are widened into panels, whose rows are adjacent
    return rows <= min(MOST, lanes) and not form.pairs and adjacent and all(depth % lanes == 0 for depth in depths)


def multiply_keys(code: Code, tile: Tile, run: Running, keys: Keys, count) -> None:
    """Sᵀ of the first `count` keys of the block; also updates the maximum of every row."""
    lanes, rows = tile.form.target.lanes(tile.size), tile.spec.few
    kind, last = vector(tile.real, lanes), code.sub(count, code.index(1))
    entire = tile.spec.D // STRETCH * STRETCH
    with code.loop(code.index(0), count, lanes) as some:
        places = [
            keys.step(keys.row(code.smaller_int(code.add(some.index, code.index(key)), last)), code.index(0))
            for key in range(lanes)
        ]

        def dots(start, stretch: int, places=places, first=some.index) -> list:
            """The products over a stretch of depth, for every row, as one chain from zero."""
            sums = [code.number(0.0, kind)] * rows
            for step in range(0, stretch, lanes):
                depth = code.add(start, code.index(step))
                _ask_for_values(code, tile, first, depth)
                begin = code.mul(depth, code.index(tile.size))
                square = code.transpose([code.get(code.at(place, begin), kind) for place in places])
                for further, elements in enumerate(square):
                    queries = tile.place(tile.qt, code.add(depth, code.index(further)))
                    for row in range(rows):
                        query = code.get(code.at(queries, row * tile.size), tile.real, tile.size)
                        sums[row] = code.fma(elements, code.splat(query, lanes), sums[row])
            return sums

        scores = [code.number(0.0, kind)] * rows
        if entire:
            with code.loop(code.index(0), code.index(entire), STRETCH, scores) as part:
                part.carry(*map(code.fadd, part.carried, dots(part.index, STRETCH)))
            scores = part.result
        if entire < tile.spec.D:
            scores = [*map(code.fadd, scores, dots(code.index(entire), tile.spec.D - entire))]
        for step, found in enumerate(_turned(code, tile, scores)):
            tile.put(found, tile.place(tile.s, code.add(some.index, code.index(step))), 0)
    with code.loop(code.index(0), count, 1, [code.number(-math.inf, tile.type)]) as each:
        each.carry(code.larger(each.carried[0], tile.get(tile.place(tile.s, each.index), 0)))
    run.set_block_maximum(each.result)


def _ask_for_values(code: Code, tile: Tile, first, depth) -> None:
    """Prefetches the values of the keys of a square, a share in each step of depth."""
    lanes, lines = tile.form.target.lanes(tile.size), tile.lines("v")
    share = -(-lanes * lines * lanes // tile.spec.D)
    step = code.udiv(depth, code.index(lanes))
    line = code.add(code.mul(first, code.index(lines)), code.mul(step, code.index(share)))
    tile.prefetch("v", tile.block["v"], line, share)


def add_values(code: Code, tile: Tile, run: Running, values: Values, count) -> None:
    """Adds a block of `count` keys to Oᵀ."""
    lanes, rows = tile.form.target.lanes(tile.size), tile.spec.few
    kind, together = vector(tile.real, lanes), max(1, SUMS // rows)
    for number, begin in enumerate(range(0, tile.spec.E, together * lanes)):
        depths = range(begin, min(begin + together * lanes, tile.spec.E), lanes)
        with code.loop(code.index(0), count, 1, [code.number(0.0, kind)] * (rows * len(depths))) as key:
            share = -(-tile.lines("k") * len(depths) * lanes // tile.spec.E)
            line = code.add(code.mul(key.index, code.index(tile.lines("k"))), code.index(number * share))
            tile.prefetch("k", tile.ahead, line, share)
            row, weights_at = values.row(key.index), tile.place(tile.s, key.index)
            elements = [code.get(values.column(row, code.index(depth)), kind) for depth in depths]
            sums = []
            for lane in range(rows):
                weight = code.splat(code.get(code.at(weights_at, lane * tile.size), tile.real, tile.size), lanes)
                for at, element in enumerate(elements):
                    sums.append(code.fma(element, weight, key.carried[lane * len(depths) + at]))
            key.carry(*sums)
        for at, depth in enumerate(depths):
            for step, total in enumerate(_turned(code, tile, key.result[at :: len(depths)])):
                place = tile.place(tile.o, code.index(depth + step))
                tile.put(code.fma(tile.get(place, 0), run.factor(0), total), place, 0)


def _turned(code: Code, tile: Tile, rows: list) -> list:
    """Vectors of keys or depths, one per row, as vectors whose lanes are rows; lanes without a row are finite."""
    lanes = rows[0].type.count
    if len(rows) == 1:  # broadcast from memory, which costs no shuffle
        code.put(rows[0], tile.memory["few"], lanes * tile.size)
        places = [code.at(tile.memory["few"], step * tile.size) for step in range(lanes)]
        return [code.splat(code.get(place, tile.real, tile.size), tile.lanes) for place in places]
    zero = code.number(0.0, rows[0])
    turned = code.transpose([*rows, *[zero] * (lanes - len(rows))])
    return turned if lanes == tile.lanes else [code.shuffle(each, each, list(range(tile.lanes))) for each in turned]
