"""The two matrix products of a block of keys, computed in register tiles: broadcast elements times vectors of lanes.

    Sᵀ[key][lane]    =  Σ_depth  k[key][depth] · Qᵀ[depth][lane]
    Oᵀ[depth][lane]  =  α Oᵀ[depth][lane]  +  Σ_key  v[key][depth] · P[key][lane]

Sums are computed in short chains (a stretch of depth, a block of keys) that are then added, which has smaller rounding
errors than one long chain. The order does not depend on the tile, so a lane's result does not depend on how keys are
grouped. With the bfloat16 dot-product instruction, a step of either sum is two elements of depth or two keys.
"""

from __future__ import annotations

from llvmlite import ir

from ...code.ir import I1, I16, I32, Code, Word, vector
from .panels import Keys, Values
from .softmax import Running
from .tile import BLOCK, Tile

# Elements of a dot product per chain: at D 64 and 128, 20 to 40 % less error for one percent more time.
STRETCH = 32


def multiply(code: Code, tile: Tile, element, lanes, total):
    """total + element · lanes, or the same for pairs."""
    return code.dot_pairs(element, lanes, total) if tile.form.pairs else code.fma(element, lanes, total)


def multiply_keys(code: Code, tile: Tile, run: Running, keys: Keys, count) -> None:
    """Sᵀ of the first `count` keys of the block; also updates the maximum of every lane."""
    for start, stop, some in _pieces(code, count, tile.key_tile):
        with code.loop(start, stop, some) as loop:
            _multiply(code, tile, run, keys, loop.index, some)


def _multiply(code: Code, tile: Tile, run: Running, keys: Keys, key, some: int) -> None:
    """Some rows of Sᵀ, one stretch of depth after another."""
    place = tile.place(tile.s, key)
    rows = [keys.row(code.add(key, step)) for step in range(some)]
    # The rounding of bfloat16 is so coarse that the error of long chains is negligible.
    stretch = keys.steps // 4 * 4 if tile.form.pairs else STRETCH
    entire = keys.steps // stretch * stretch if stretch else 0
    if entire:
        with code.loop(0, entire, stretch) as part:
            end = code.add(part.index, stretch)
            begins = code.icmp_signed("==", part.index, 0)
            unroll = 4 if some > 1 else 1
            dots = _dots(code, tile, keys, rows=rows, key=key, start=part.index, end=end, unroll=unroll)
            _add(code, tile, place, begins, dots)
    if entire < keys.steps:
        begins = ir.Constant(I1, int(entire == 0))
        dots = _dots(code, tile, keys, rows=rows, key=key, start=entire, end=keys.steps, unroll=1)
        _add(code, tile, place, begins, dots)
    for number in range(tile.vectors):
        run.include(number, [tile.get(place, number, row) for row in range(some)])


def _dots(code: Code, tile: Tile, keys: Keys, *, rows: list, key, start, end, unroll: int) -> list:
    """Sums over start … end of depth, for all rows and vectors; each iteration prefetches a share of the values."""
    vectors = tile.vectors
    share = -(-tile.lines("v") * len(rows) * unroll // keys.steps)
    zero = code.number(0.0, tile.type)
    with code.loop(start, end, unroll, [zero] * (len(rows) * vectors)) as loop:
        rounds = code.udiv(loop.index, unroll)
        first = code.add(code.mul(key, tile.lines("v")), code.mul(rounds, share))
        tile.prefetch("v", tile.block["v"], first, share)
        sums = list(loop.carried)
        queries_at = tile.place(tile.qt, loop.index)
        elements_at = [keys.step(row, loop.index) for row in rows]
        for step in range(unroll):
            queries = [tile.get(queries_at, number, step) for number in range(vectors)]
            for row in range(len(rows)):
                element = keys.element(elements_at[row], step)
                for number in range(vectors):
                    at = row * vectors + number
                    sums[at] = multiply(code, tile, element, queries[number], sums[at])
        loop.carry(*sums)
    return loop.result


def _add(code: Code, tile: Tile, place, begins, values: list) -> None:
    """Adds to rows of Sᵀ, or overwrites them if `begins`."""
    for at, value in enumerate(values):
        row, number = divmod(at, tile.vectors)
        before = code.select(begins, 0.0, tile.get(place, number, row))
        tile.put(code.fadd(before, value), place, number, row)


def add_values(code: Code, tile: Tile, run: Running, values: Values, count) -> None:
    """Adds a block of `count` steps to Oᵀ."""
    vectors, zero = tile.vectors, code.number(0.0, tile.type)
    for start, stop, depths in _pieces(code, tile.spec.E, tile.depth_tile, tile.spec.E % tile.depth_tile):
        # Each iteration prefetches a share of the next block's keys.
        most = BLOCK // 2 if tile.form.pairs else BLOCK
        share = -(-tile.lines("k") * BLOCK * depths // (most * tile.spec.E))
        with code.loop(start, stop, depths) as depth:
            before = code.mul(code.sdiv(depth.index, depths), most)
            with code.loop(0, count, 1, [zero] * (depths * vectors)) as loop:
                tile.prefetch("k", tile.ahead, code.mul(code.add(before, loop.index), share), share)
                weights_at = tile.place(tile.s, loop.index)
                weights = [tile.get(weights_at, number) for number in range(vectors)]
                elements_at = values.column(values.row(loop.index), depth.index)
                sums = []
                for row in range(depths):
                    element = values.element(elements_at, row)
                    sums += [
                        multiply(code, tile, element, weights[n], loop.carried[row * vectors + n])
                        for n in range(vectors)
                    ]
                loop.carry(*sums)
            _add_to_output(code, tile, run, depth.index, loop.result)


def add_values_carefully(code: Code, tile: Tile, run: Running, values: Values, count) -> None:
    """The same sums in the same order, without the products of masked keys (which are marked by a weight of -0)."""
    vectors, zero = tile.vectors, code.number(0.0, tile.type)
    with code.loop(0, tile.spec.E) as depth:
        with code.loop(0, count, 1, [zero] * vectors) as loop:
            element = values.element(values.column(values.row(loop.index), depth.index), 0)
            weights_at = tile.place(tile.s, loop.index)
            loop.carry(
                *(
                    _careful(code, tile, element, tile.get(weights_at, number), before)
                    for number, before in enumerate(loop.carried)
                )
            )
        _add_to_output(code, tile, run, depth.index, loop.result)


def _careful(code: Code, tile: Tile, element, weight, before):
    if not tile.form.pairs:
        bits = code.as_bits(weight)
        removed = code.icmp_unsigned("==", bits, -(2 ** (8 * tile.size - 1)))
        return code.select(removed, before, code.fma(element, weight, before))
    if isinstance(element, Word):
        element = code.splat(code.get(code.at(*element), I32), tile.lanes)
    halves = vector(I16, 2 * tile.lanes)
    removed = code.icmp_unsigned("==", code.bitcast(weight, halves), -(2**15))
    kept = code.select(removed, 0, code.bitcast(element, halves))
    return multiply(code, tile, code.bitcast(kept, vector(I32, tile.lanes)), weight, before)


def _add_to_output(code: Code, tile: Tile, run: Running, depth, sums) -> None:
    place = tile.place(tile.o, depth)
    for at, total in enumerate(sums):
        row, number = divmod(at, tile.vectors)
        tile.put(code.fma(tile.get(place, number, row), run.factor(number), total), place, number, row)


def _pieces(code: Code, count, size: int, rest: int = 1):
    """(start, stop, step) for whole pieces of a count, then for the remainder, in steps of `rest` (0: no remainder)."""
    whole = code.mul(code.sdiv(count, size), size)
    yield 0, whole, size
    if size > 1 and rest:
        yield whole, count, rest
