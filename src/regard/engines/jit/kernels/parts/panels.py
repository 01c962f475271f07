"""The elements of k and v in the layout of the products: in place, or from a panel, a converted copy of the block.

    float32, float64        in place, with any strides
    16 bit                  widened to float32, once per block
    bfloat16, by pairs      k in place: two adjacent elements of a row are a word;
                            v interleaved: two adjacent keys are a word
    8 bits with scales      multiplied by the scale of the row and rounded to the dtype: the numbers of `KVCache.keys`

A panel costs a few percent of the time of the products that read it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...code.formats import Format, stored
from ...code.ir import BYTE, F32, F64, I16, I32, Code, Word, vector
from .tile import SCALES, Tile, in_place, steps


class Keys:
    """k for dot products: rows of steps, where a step is one element or a pair."""

    def __init__(self, code: Code, tile: Tile):
        self.code, self.tile, self.form = code, tile, tile.form
        self.placed = in_place(tile.spec, tile.form, "k")
        self.steps = steps(tile.spec.D, tile.form)

    def stage(self, count) -> None:
        """Fills the panel with some rows, if there is one."""
        if self.placed:
            return
        code, tile, D = self.code, self.tile, self.tile.spec.D
        with code.loop(0, count) as key:
            target = self._panel_row(key.index)
            _fill_row(code, tile, "k", key.index, target, D)
            if self.form.pairs and D % 2:
                code.put(code.index(0, I16), code.at(target, 2 * D))

    def row(self, key):
        return self.tile.row("k", key) if self.placed else self._panel_row(key)

    def _panel_row(self, key):
        return self.code.at(self.tile.memory["k"], key, self.form.size * self.steps)

    def stride(self):
        """Bytes from a row to the next."""
        return self.tile.arg["k_row"] if self.placed else self.form.size * self.steps

    def step(self, row, number):
        """The address of a step of a row."""
        code, tile = self.code, self.tile
        if self.placed and not self.form.pairs:
            return tile.column(row, "k", number)
        return code.at(row, number, self.form.size)

    def element(self, place, further: int):
        """The step `further` steps after an address, broadcast to every lane."""
        code, tile = self.code, self.tile
        if self.placed and not self.form.pairs:
            distance = tile.form.itemsize * further if tile.unit("k") else code.mul(further, tile.step("k"))
            return code.splat(code.get(code.at(place, distance), tile.real), tile.lanes)
        return _from_panel(code, tile, place, further)


class Values:
    """v for weighted sums: per step (a key, or a pair of keys) a row of E elements."""

    def __init__(self, code: Code, tile: Tile):
        self.code, self.tile, self.form = code, tile, tile.form
        self.placed = in_place(tile.spec, tile.form, "v")

    def stage(self, count) -> None:
        """Fills the panel with some rows, if there is one; an odd last key is paired with zeros."""
        if self.placed:
            return
        code, tile, E = self.code, self.tile, self.tile.spec.E
        if not self.form.pairs:
            with code.loop(0, count) as key:
                _fill_row(code, tile, "v", key.index, self._panel_row(key.index), E)
            return
        whole = code.sdiv(count, 2)
        with code.loop(0, whole) as pair:
            low, high = (code.add(code.mul(pair.index, 2), part) for part in (0, 1))
            self._interleave(low, high, self._panel_row(pair.index))
        with code.when(code.icmp_signed("!=", code.mul(whole, 2), count)):
            self._interleave(code.mul(whole, 2), None, self._panel_row(whole))

    def _interleave(self, low, high, target) -> None:
        """Interleaves the rows of two keys into words; without a second key, one row and zeros."""
        code, tile, E = self.code, self.tile, self.tile.spec.E
        lanes = 2 * tile.form.target.lanes(4)  # the widest, whatever the tile has
        squares = E // lanes * lanes if tile.unit("v") else 0
        read_low = _elements(code, tile, "v", low)
        read_high = None if high is None else _elements(code, tile, "v", high)
        nothing = code.number(0, vector(I16, lanes))
        with code.loop(0, squares, lanes) as depth:
            a = read_low(depth.index, lanes)
            b = read_high(depth.index, lanes) if read_high else nothing
            place = code.at(target, depth.index, 4)
            for half in (0, 1):
                order = [(half * lanes + place) // 2 + lanes * (place % 2) for place in range(lanes)]
                code.put(code.shuffle(a, b, order), code.at(place, 2 * lanes * half))
        with code.loop(squares, E) as depth:
            a = code.zext(read_low(depth.index, 1), I32)
            b = code.zext(read_high(depth.index, 1), I32) if read_high else code.index(0, I32)
            word = code.or_(a, code.shl(b, 16))
            code.put(word, code.at(target, depth.index, 4))

    def row(self, step):
        return self.tile.row("v", step) if self.placed else self._panel_row(step)

    def _panel_row(self, step):
        return self.code.at(self.tile.memory["v"], step, self.form.size * self.tile.spec.E)

    def column(self, row, depth):
        """The address of an element of a row."""
        return self.tile.column(row, "v", depth) if self.placed else self.code.at(row, depth, self.form.size)

    def element(self, place, further: int):
        """The element `further` elements after an address, broadcast to every lane."""
        code, tile = self.code, self.tile
        if not self.placed:
            return _from_panel(code, tile, place, further)
        distance = tile.form.itemsize * further if tile.unit("v") else code.mul(further, tile.step("v"))
        return code.splat(code.get(code.at(place, distance), tile.real), tile.lanes)


def _from_panel(code: Code, tile: Tile, place, further: int):
    """A number or a pair, broadcast; a pair that is multiplied by one vector only stays in memory."""
    if tile.form.pairs and tile.vectors == 1:
        return Word(place, 4 * further)
    return code.splat(code.get(code.at(place, tile.size * further), tile.real), tile.lanes)


def _elements(code: Code, tile: Tile, name: str, key) -> Callable[[Any, int], Any]:
    """read(depth, lanes): adjacent elements of a row of k or v, in the type in which its dtype is stored."""
    if tile.spec.quantized:
        return _eight_bits(code, tile.form, tile.row(name, key), tile.row(SCALES[name], key))
    row, kind = tile.row(name, key), stored(tile.form.name)
    return lambda depth, lanes: code.get(tile.column(row, name, depth), vector(kind, lanes))


def _eight_bits(code: Code, form: Format, row, scale_at) -> Callable[[Any, int], Any]:
    """read(depth, lanes): adjacent elements of a row, in the type in which its dtype is stored.

    row, scale_at: the addresses of its integers and of its scale.
    """
    scale = code.get(scale_at, F32)

    def read(depth, lanes: int = 1):
        integers = code.get(code.at(row, depth), vector(BYTE, lanes))
        value = code.fmul(code.sitofp(integers, vector(F32, lanes)), code.splat(scale, lanes))
        if form.wide:
            return code.fpext(value, vector(F64, lanes)) if form.real == F64 else value
        # One instruction instead of ten; it makes denormals 0, as the products of pairs do with what they read.
        return code.brain(value) if form.pairs and lanes > 1 else form.rounded(code, value)

    return read


def _fill_row(code: Code, tile: Tile, name: str, key, target, depth: int) -> None:
    """A row of k or v for products: as it is for pairs, otherwise in the type that kernels compute in."""
    form, read = tile.form, _elements(code, tile, name, key)
    size = form.itemsize if form.pairs else form.size
    lanes = form.target.lanes(size)  # the widest, whatever the tile has
    squares = depth // lanes * lanes if tile.unit(name) else 0
    for start, stop, some in ((0, squares, lanes), (squares, depth, 1)):
        with code.loop(start, stop, some) as loop:
            found = read(loop.index, some)
            value = found if form.pairs or form.wide else form.widened(code, found)
            code.put(value, code.at(target, loop.index, size))
