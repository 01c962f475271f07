"""The two matrix products of a block of keys for few query rows, which would leave most lanes of a tile idle.

    scores    lanes are keys: squares of K are transposed in registers, and multiplied by broadcast elements of q
    output    lanes are depths: rows of V times broadcast probabilities

Every sum has the terms and the order that it has in products.py, so the results have the same bits: one row of decoding
and a row of a prefill are equal (law 11). Scores and sums are then transposed to the layout of the tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...code.formats import Format
from ...code.ir import PIECE, Code, vector
from ...code.target import Target
from .panels import Keys, Values
from .products import STRETCH
from .softmax import Running
from .tile import Tile

MOST = 8  # rows; with more of them, tiles whose lanes are queries are as fast (bench/LOG.md)
SUMS = 16  # registers for sums over keys
CHAINS = 4  # independent sums over depth: enough to hide their latency
CROWDED = 2048  # bytes between rows of k, of which a first-level cache has room for 16 or fewer: they are copied first
NARROW = 32  # bytes of a vector of keys: exchanges between pieces of wider ones take longer


def suits(rows: int, depths: tuple[int, int], unit: tuple[bool, ...], form: Format, target: Target) -> bool:
    """Whether a call has few rows, and keys and values whose rows can be read as vectors. unit: see `Specification`."""
    lanes = target.lanes(form.size)
    adjacent = not form.wide or (unit[1] and unit[2])  # other formats are widened into panels, whose rows are adjacent
    return rows <= min(MOST, lanes) and not form.pairs and adjacent and all(depth % lanes == 0 for depth in depths)


def multiply_keys(code: Code, tile: Tile, run: Running, keys: Keys, count) -> None:
    """Sᵀ of the first `count` keys of the block; also updates the maximum of every row."""
    lanes, several = _keys_in_vector(tile), max(1, CHAINS // tile.spec.few)
    whole = code.mul(code.sdiv(count, several * lanes), several * lanes)
    maxima = [code.number(-math.inf, vector(tile.real, lanes))] * tile.spec.few
    with code.loop(0, whole, several * lanes, maxima) as loop:
        firsts = [code.add(loop.index, number * lanes) for number in range(several)]
        places = [_whole_vector(tile, keys, first) for first in firsts]
        loop.carry(*_multiply(code, tile, firsts, places, loop.carried))
    with code.loop(whole, count, lanes, loop.result) as rest:
        places = [_last_vector(tile, keys, rest.index, count)]
        rest.carry(*_multiply(code, tile, [rest.index], places, rest.carried))
    run.set_block_maximum([_in_lanes(code, tile, [code.reduced(each, code.larger) for each in rest.result])])


def _multiply(code: Code, tile: Tile, firsts: list, places: list, maxima: list) -> list:
    """Sᵀ of some vectors of keys, whose sums are independent; returns the larger of `maxima` and the scores.

    firsts: the first key of each vector. places: per vector, the addresses of its keys at some depth.
    """
    scores = _dots(code, tile, firsts[0], places)
    for first, found in zip(firsts, scores, strict=True):
        maxima = [*map(code.larger, maxima, found)]
        code.put(_in_turn(code, tile, found), tile.place(tile.s, first))
    return maxima


def _dots(code: Code, tile: Tile, first, places: list) -> list[list]:
    """Per vector of keys, its products with every row."""
    lanes, rows, piece = _keys_in_vector(tile), tile.spec.few, PIECE // tile.size
    zeros = [code.number(0.0, vector(tile.real, lanes))] * (rows * len(places))
    entire = tile.spec.D // STRETCH * STRETCH

    def chain(start, stretch: int) -> list:
        """The products over a stretch of depth, as one chain from zero."""
        sums = list(zeros)
        for step in range(0, stretch, piece):
            depth = code.add(start, step)
            _ask_for_values(code, tile, first, lanes * len(places), depth)
            begin = code.mul(depth, tile.size)
            columns = [code.columns(at(begin), tile.real) for at in places]
            for further in range(piece):
                queries = tile.place(tile.qt, code.add(depth, further))
                for row in range(rows):
                    query = code.splat(code.get(code.at(queries, row * tile.size), tile.real, tile.size), lanes)
                    for number, found in enumerate(columns):
                        sums[number * rows + row] = code.fma(found[further], query, sums[number * rows + row])
        return sums

    scores = zeros
    if entire:
        with code.loop(0, entire, STRETCH, scores) as part:
            part.carry(*map(code.fadd, part.carried, chain(part.index, STRETCH)))
        scores = part.result
    if entire < tile.spec.D:
        scores = [*map(code.fadd, scores, chain(entire, tile.spec.D - entire))]
    return [scores[start : start + rows] for start in range(0, len(scores), rows)]


def _keys_in_vector(tile: Tile) -> int:
    """Keys per vector of scores: narrow ones, because exchanges between pieces of wide ones take longer."""
    return min(NARROW // tile.size, tile.form.target.lanes(tile.size))


def _whole_vector(tile: Tile, keys: Keys, first) -> Callable[[Any], list]:
    """The addresses of a vector of keys, `begin` bytes into their rows: few registers hold what they are made of."""
    code, base, stride = tile.code, keys.step(keys.row(first), tile.code.index(0)), keys.stride()
    odd = {number: code.mul(stride, number) for number in range(1, _keys_in_vector(tile), 2)}

    def at(begin) -> list:
        places = [code.at(base, begin)]
        for key in range(1, _keys_in_vector(tile)):
            twos = (key & -key).bit_length() - 1
            places.append(code.at(places[0], code.shl(odd[key >> twos], twos)))
        return places

    return at


def _last_vector(tile: Tile, keys: Keys, first, stop) -> Callable[[Any], list]:
    """The same where some keys of the vector may not exist; the last one that does replaces them."""
    code, last = tile.code, tile.code.sub(stop, 1)
    numbers = [code.smaller_int(code.add(first, key), last) for key in range(_keys_in_vector(tile))]
    rows = [keys.step(keys.row(number), code.index(0)) for number in numbers]
    return lambda begin: [code.at(row, begin) for row in rows]


def _ask_for_values(code: Code, tile: Tile, first, keys: int, depth) -> None:
    """Prefetches the values of some keys, a share in each step of depth."""
    piece, lines = PIECE // tile.size, tile.lines("v")
    share = -(-keys * lines * piece // tile.spec.D)
    step = code.udiv(depth, piece)
    line = code.add(code.mul(first, lines), code.mul(step, share))
    tile.prefetch("v", tile.block["v"], line, share)


def add_values(code: Code, tile: Tile, run: Running, values: Values, count) -> None:
    """Adds a block of `count` keys to Oᵀ."""
    lanes, rows = tile.form.target.lanes(tile.size), tile.spec.few
    kind, together = vector(tile.real, lanes), max(1, SUMS // rows)
    for number, begin in enumerate(range(0, tile.spec.E, together * lanes)):
        depths = range(begin, min(begin + together * lanes, tile.spec.E), lanes)
        with code.loop(0, count, 1, [code.number(0.0, kind)] * (rows * len(depths))) as key:
            share = -(-tile.lines("k") * len(depths) * lanes // tile.spec.E)
            line = code.add(code.mul(key.index, tile.lines("k")), number * share)
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
            total, place = _in_turn(code, tile, key.result[at :: len(depths)]), tile.place(tile.o, code.index(depth))
            factor = code.tiled(run.factor(0), lanes)
            code.put(code.fma(code.get(place, total.type), factor, total), place)


def _in_turn(code: Code, tile: Tile, rows: list):
    """Vectors of keys or depths, one per row, in the layout of the tile: their first elements, then the second …

    Lanes without a row repeat the last one, so they are as finite as it is.
    """
    rows = [rows[min(lane, len(rows) - 1)] for lane in range(tile.lanes)]
    while len(rows) > 1:
        lanes, half = rows[0].type.count, len(rows) // 2
        order = [part * lanes + lane for lane in range(lanes) for part in (0, 1)]
        rows = [code.shuffle(*pair, order) for pair in zip(rows[:half], rows[half:], strict=True)]
    return rows[0]


def _in_lanes(code: Code, tile: Tile, values: list):
    """One number per row as a vector of rows; lanes without a row repeat the last one."""
    return code.gathered([values[min(lane, len(values) - 1)] for lane in range(tile.lanes)])
