"""The running softmax of a tile: maximum, sum and rescale factor of every lane, kept between blocks of keys.

    m' = max(m, block maximum)     α = 2**(exponent · (m - m'))
    p = 2**(exponent · (s - m'))   l' = α l + Σ p

The exponent (scale · log2 e) is positive. The difference comes first: it is exact where it matters, so the largest p is 1 however
large the scores are. A lane that has seen nothing has m = -inf; its shift is 0 instead, so that -inf - -inf never happens: p is
0, and so is the final weight.
"""

from __future__ import annotations

import math

from . import special
from .ir import F32, Code

__all__ = ["Running"]


class Running:
    """Rows of lanes in scratch memory: m, l, the block's maximum, α, and the shift (m, or 0 where that is -inf).

    exponent: from a difference of scores to base 2. unit: from a score to a natural logarithm (the scale, or 1).
    """

    ROWS = ("maximum", "total", "seen", "alpha", "shift")

    def __init__(self, code: Code, memory, lane_type, vectors: int, exponent, unit):
        self.code, self.memory, self.type, self.vectors = code, memory, lane_type, vectors
        self.unit = unit
        self.exponent = exponent, code.fdiv(code.number(-127.0, lane_type), exponent)  # and from where on its power is 0
        self.lanes = lane_type.count

    def _place(self, row: str, number: int):
        return self.code.at(self.memory, 4 * self.lanes * (self.ROWS.index(row) * self.vectors + number))

    def _get(self, row: str, number: int):
        return self.code.get(self._place(row, number), self.type, align=4 * self.lanes)

    def _put(self, row: str, number: int, value) -> None:
        self.code.put(value, self._place(row, number), align=4 * self.lanes)

    def begin(self) -> None:
        for number in range(self.vectors):
            self._put("maximum", number, self.code.number(-math.inf, self.type))
            self._put("total", number, self.code.number(0.0, self.type))

    def begin_block(self) -> None:
        for number in range(self.vectors):
            self._put("seen", number, self.code.number(-math.inf, self.type))

    def see(self, number: int, scores: list) -> None:
        """Takes scores into the block's maximum."""
        seen = self._get("seen", number)
        for s in scores:
            seen = self.code.larger(seen, s)
        self._put("seen", number, seen)

    def replace_seen(self, maxima: list) -> None:
        """The block's maximum, found elsewhere."""
        for number, value in enumerate(maxima):
            self._put("seen", number, value)

    def end_block(self) -> None:
        """After the block's scores are known: m, shift, α, and α l."""
        for number in range(self.vectors):
            self._raise(number, self._get("maximum", number), self._get("seen", number), self.exponent)

    def _raise(self, number: int, before, reached, exponent) -> None:
        code = self.code
        after = code.larger(before, reached)
        nothing = code.fcmp_ordered("==", after, code.number(-math.inf, after))
        shift = code.select(nothing, code.number(0.0, after), after)
        alpha = special.softmax_exp2(code, code.fsub(before, shift), *exponent)
        self._put("maximum", number, after)
        self._put("shift", number, shift)
        self._put("alpha", number, alpha)
        self._put("total", number, code.fmul(self._get("total", number), alpha))

    def factor(self, number: int):
        """α of a vector of lanes."""
        return self._get("alpha", number)

    def exponentiate(self, scores, row_bytes: int, count, mark: bool) -> None:
        """Scores become p in place, and l grows by them. mark: a removed key's p is -0, which adds nothing but can be told."""
        code = self.code
        shifts = [self._get("shift", number) for number in range(self.vectors)]
        zero = code.number(0.0, self.type)
        with code.loop(code.index(0), count, 1, [zero] * self.vectors) as loop:
            row = code.at(scores, code.mul(loop.index, code.index(row_bytes)))
            sums = []
            for number in range(self.vectors):
                place = code.at(row, 4 * self.lanes * number)
                s = code.get(place, self.type, align=4 * self.lanes)
                p = special.softmax_exp2(code, code.fsub(s, shifts[number]), *self.exponent)
                if mark:
                    p = code.select(code.fcmp_ordered("==", s, code.number(-math.inf, s)), code.number(-0.0, s), p)
                code.put(p, place, align=4 * self.lanes)
                sums.append(code.fadd(loop.carried[number], p))
            loop.carry(*sums)
        for number in range(self.vectors):
            self._put("total", number, code.fadd(self._get("total", number), loop.result[number]))

    def add_sinks(self, sinks, first, count) -> None:
        """Extra logits in the denominator: the maximum, now a natural logarithm, rises to them; l and α follow."""
        code = self.code
        natural = code.number(special.LOG2E, self.type), code.number(-127 / special.LOG2E, self.type)

        def sink(index):
            at = code.at(sinks, code.mul(code.add(first, index), code.index(4)))
            return code.splat(code.get(at, F32, 4), self.lanes)

        self.begin_block()
        with code.loop(code.index(0), count) as loop:
            for number in range(self.vectors):
                self.see(number, [sink(loop.index)])
        for number in range(self.vectors):
            self._raise(number, code.fmul(self._get("maximum", number), self.unit), self._get("seen", number), natural)
        with code.loop(code.index(0), count) as loop:
            for number in range(self.vectors):
                p = special.softmax_exp2(code, code.fsub(sink(loop.index), self._get("shift", number)), *natural)
                self._put("total", number, code.fadd(self._get("total", number), p))

    def normalized(self, value, number: int):
        """α · value / l, rounded like a division; 0 where l is 0."""
        code = self.code
        total, value = self._get("total", number), code.fmul(value, self._get("alpha", number))
        zero = code.number(0.0, total)
        inverse = code.fdiv(code.number(1.0, total), total)
        rough = code.fmul(value, inverse)
        # One step of Newton takes away what the rounded inverse left; a value that is not finite stays what it is.
        fine = code.fma(code.fma(code.fneg(rough), total, value), inverse, rough)
        finite = code.fcmp_ordered("<", code.abs(rough), code.number(math.inf, rough))
        return code.select(code.fcmp_ordered("==", total, zero), zero, code.select(finite, fine, rough))

    def store_lse(self, place, rows) -> None:
        """lse = m + ln l for the first `rows` lanes, after `add_sinks`; -inf where nothing was seen."""
        code = self.code
        for number in range(self.vectors):
            lse = code.fadd(self._get("shift", number), special.log(code, self._get("total", number)))
            self._put("seen", number, lse)
        source = self._place("seen", 0)
        with code.loop(code.index(0), rows) as loop:
            offset = code.mul(loop.index, code.index(4))
            code.put(code.get(code.at(source, offset), F32, 4), code.at(place, offset))
