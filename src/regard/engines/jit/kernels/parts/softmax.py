"""The running softmax of a tile: maximum, sum and rescale factor of every lane, stored between blocks of keys.

    m' = max(m, block maximum)     α = 2**(exponent · (m - m'))
    p = 2**(exponent · (s - m'))   l' = α l + Σ p

The exponent (scale · log2 e) is positive. The difference is computed first: it is exact for scores near the maximum, so
the largest p is 1 however large the scores are. A lane with only masked keys so far has m = -inf; its shift is 0
instead, which avoids -inf - -inf: p is 0, and so is the final weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...code import special
from ...code.ir import Code, lane_count, vector
from ...code.special import FLOOR, LOG2E
from .dropout import Dropout


def merged(code: Code, left, right, exponent):
    """m and l of two partial results, and the factors of their outputs.

    m = max(m₁, m₂)    a = 2**(exponent · (m₁ - m))    b = 2**(exponent · (m₂ - m))    l = a l₁ + b l₂

    left, right: m and l of each. exponent: that of `Running`. Merging with an empty one (m = -inf, l = 0) is exact.
    """
    maximum = code.larger(left[0], right[0])
    shift = some_number(code, maximum)
    a, b = (special.softmax_exp2(code, code.fsub(each, shift), *exponent) for each, _ in (left, right))
    return maximum, code.fma(right[1], b, code.fmul(left[1], a)), a, b


def some_number(code: Code, maximum):
    """A maximum that can be subtracted: 0 instead of -inf."""
    nothing = code.fcmp_ordered("==", maximum, -math.inf)
    return code.select(nothing, 0.0, maximum)


class Running:
    """Rows of lanes in working memory: m, l, the block's maximum, α, and the shift (m, or 0 where that is -inf).

    exponent: converts a difference of scores to base 2. unit: converts a score to nats (the scale, or 1). widest: the
    most lanes of a vector.
    """

    ROWS = ("maximum", "total", "seen", "alpha", "shift")

    def __init__(self, code: Code, memory, lane_type, vectors: int, exponent, unit, *, widest: int = 1):
        self.code, self.memory, self.type, self.vectors = code, memory, lane_type, vectors
        self.unit, self.lanes = unit, lane_type.count
        self.together = widest // self.lanes if vectors == 1 else 1  # keys in a vector of exponentials
        self.real = lane_type.element
        self.bytes = self.lanes * (4 if str(self.real) == "float" else 8)
        self.exponent = exponent, self._lowest(exponent)

    def _lowest(self, exponent):
        """The difference of scores at and below which the power is 0."""
        return self.code.fdiv(FLOOR[self.real], exponent)

    def _place(self, row: str, number: int):
        return self.code.at(self.memory, self.bytes * (self.ROWS.index(row) * self.vectors + number))

    def _get(self, row: str, number: int):
        return self.code.get(self._place(row, number), self.type, align=self.bytes)

    def _put(self, row: str, number: int, value) -> None:
        self.code.put(value, self._place(row, number), align=self.bytes)

    def begin(self) -> None:
        for number in range(self.vectors):
            self._put("maximum", number, self.code.number(-math.inf, self.type))
            self._put("total", number, self.code.number(0.0, self.type))

    def begin_block(self) -> None:
        for number in range(self.vectors):
            self._put("seen", number, self.code.number(-math.inf, self.type))

    def include(self, number: int, scores: list) -> None:
        """Updates the block's maximum with some scores."""
        seen = self._get("seen", number)
        for s in scores:
            seen = self.code.larger(seen, s)
        self._put("seen", number, seen)

    def set_block_maximum(self, maxima: list) -> None:
        """Sets the block's maximum."""
        for number, value in enumerate(maxima):
            self._put("seen", number, value)

    def end_block(self) -> None:
        """Updates m, shift, α and l after the scores of the block."""
        for number in range(self.vectors):
            self._raise(number, self._get("maximum", number), self._get("seen", number), self.exponent)

    def _raise(self, number: int, before, reached, exponent):
        """Raises the maximum from `before` to at least `reached` and rescales l; returns the shift."""
        code = self.code
        after = code.larger(before, reached)
        shift = some_number(code, after)
        alpha = special.softmax_exp2(code, code.fsub(before, shift), *exponent)
        self._put("maximum", number, after)
        self._put("shift", number, shift)
        self._put("alpha", number, alpha)
        self._put("total", number, code.fmul(self._get("total", number), alpha))
        return shift

    def factor(self, number: int):
        """α of a vector of lanes."""
        return self._get("alpha", number)

    def state(self, number: int):
        """m and l."""
        return self._get("maximum", number), self._get("total", number)

    def restore(self, number: int, maximum, total) -> None:
        """Sets m and l."""
        self._put("maximum", number, maximum)
        self._put("total", number, total)

    def exponentiate(self, scores, count, mark: bool, dropout: Dropout | None, pairs: bool) -> None:
        """Replaces scores by p in place, adds them to l, then applies dropout. mark: p of a masked key is -0, which
        leaves sums unchanged but is distinguishable. pairs: rows 2j and 2j + 1 become row j of words, each p rounded to
        bfloat16.
        """
        code, step = self.code, 2 if pairs else 1
        shifts = [self._get("shift", number) for number in range(self.vectors)]
        if dropout is None and not pairs and not mark and self.together > 1:
            self._exponentiate_together(scores, count)
            return
        zero = code.number(0.0, self.type)
        if pairs:
            odd = code.icmp_signed("==", code.and_(count, 1), 1)
            with code.when(odd):  # the last row is paired with a row of masked keys
                for number in range(self.vectors):
                    code.put(code.number(-math.inf, self.type), self._in_row(scores, count, number), align=self.bytes)
        with code.loop(0, count, step, [zero] * self.vectors) as loop:
            rows = [loop.index, code.add(loop.index, 1)][:step]
            sums = []
            for number, total in enumerate(loop.carried):
                weights = []
                for row in rows:
                    s = code.get(self._in_row(scores, row, number), self.type, align=self.bytes)
                    p = special.softmax_exp2(code, code.fsub(s, shifts[number]), *self.exponent)
                    if mark:
                        p = code.select(code.fcmp_ordered("==", s, -math.inf), -0.0, p)
                    total = code.fadd(total, p)
                    weights.append(p if dropout is None else code.fmul(p, dropout.factor(number, row)))
                sums.append(total)
                words = code.paired(*weights) if pairs else weights[0]
                target = code.sdiv(loop.index, 2) if pairs else loop.index
                code.put(words, self._in_row(scores, target, number), align=self.bytes)
            loop.carry(*sums)
        for number in range(self.vectors):
            self._put("total", number, code.fadd(self._get("total", number), loop.result[number]))

    def _exponentiate_together(self, scores, count) -> None:
        """The same for several keys in a vector, if rows of scores are shorter than vectors; in the same order."""
        code, several = self.code, self.together
        wide = vector(self.real, self.lanes * several)
        lanes = [list(range(step * self.lanes, (step + 1) * self.lanes)) for step in range(several)]
        shift, exponent = self._get("shift", 0), self.exponent
        shifts, wide_exponent = code.tiled(shift, several), tuple(code.tiled(each, several) for each in exponent)
        whole = code.mul(code.sdiv(count, several), several)
        with code.loop(0, whole, several, [code.number(0.0, self.type)]) as loop:
            place = self._in_row(scores, loop.index, 0)
            s = code.get(place, wide, self.bytes)
            p = special.softmax_exp2(code, code.fsub(s, shifts), *wide_exponent)
            code.put(p, place, self.bytes)
            total = loop.carried[0]
            for order in lanes:
                total = code.fadd(total, code.shuffle(p, p, order))
            loop.carry(total)
        with code.loop(whole, count, 1, loop.result) as rest:
            place = self._in_row(scores, rest.index, 0)
            p = special.softmax_exp2(code, code.fsub(code.get(place, self.type, self.bytes), shift), *exponent)
            code.put(p, place, self.bytes)
            rest.carry(code.fadd(rest.carried[0], p))
        self._put("total", 0, code.fadd(self._get("total", 0), rest.result[0]))

    def _in_row(self, base, row, number: int):
        """The address of a vector of a row of scores."""
        code = self.code
        return code.at(code.at(base, row, self.bytes * self.vectors), self.bytes * number)

    def add_sinks(self, sink: Callable, count) -> None:
        """Adds extra logits to the denominator: updates the maximum, now in nats, and l and α with it.

        sink(index, number): a sink in every lane of a vector.
        """
        code = self.code
        factor = code.number(LOG2E, self.type)
        natural = factor, self._lowest(factor)
        self.begin_block()
        with code.loop(0, count) as loop:
            for number in range(self.vectors):
                self.include(number, [sink(loop.index, number)])
        for number in range(self.vectors):
            # The maximum in units of the score is stored in place of the block's maximum, for `finish`.
            before, reached = self._get("maximum", number), self._get("seen", number)
            self._put("seen", number, before)
            self._raise(number, code.fmul(before, self.unit), reached, natural)
        with code.loop(0, count) as loop:
            for number in range(self.vectors):
                p = special.softmax_exp2(
                    code, code.fsub(sink(loop.index, number), self._get("shift", number)), *natural
                )
                self._put("total", number, code.fadd(self._get("total", number), p))

    def normalizers(self) -> list[Callable]:
        """Per vector, a function of a value: α · value / l, rounded like a division; 0 for a fully masked row, with or
        without sinks.
        """
        return [
            self._normalizer(*(self._get(row, number) for row in ("total", "alpha", "seen")))
            for number in range(self.vectors)
        ]

    def normalizer(self, lane) -> Callable:
        """The same function for one lane, of one or more values."""
        offset = self.code.mul(lane, self.bytes // self.lanes)
        return self._normalizer(
            *(
                self.code.get(self.code.at(self._place(row, 0), offset), self.real, self.bytes // self.lanes)
                for row in ("total", "alpha", "seen")
            )
        )

    def _normalizer(self, total, alpha, seen) -> Callable:
        code = self.code
        inverse = code.fdiv(1.0, total)
        nothing = code.fcmp_ordered("==", seen, -math.inf)

        def normalized(value):
            lanes = lane_count(value)
            by, times, factor, none = (code.splat(each, lanes) for each in (total, inverse, alpha, nothing))
            empty = code.and_(none, code.fcmp_ordered("==", value, 0.0))
            value = code.fmul(value, factor)
            rough = code.fmul(value, times)
            # One Newton step removes the error of the rounded inverse, and the sign of a zero; infinities and NaN are
            # not changed.
            fine = code.fma(code.fma(code.fneg(rough), by, value), times, rough)
            finite = code.fcmp_ordered("<", code.abs(rough), math.inf)
            return code.select(empty, 0.0, code.select(finite, fine, rough))

        return normalized

    def finish(self) -> None:
        """After `add_sinks` and `normalizers`: computes the rows lse, top and total for `store`.

        lse = m + ln l, -inf for a fully masked row. A weight is 2**(exponent · (s - top)) / total, which is more
        accurate than using lse.
        """
        code = self.code
        for number in range(self.vectors):
            total, seen = self._get("total", number), self._get("seen", number)
            self._put("maximum", number, code.fadd(self._get("shift", number), special.log(code, total)))
            nothing = code.fcmp_ordered("==", seen, -math.inf)
            self._put("seen", number, code.select(nothing, 0.0, seen))
            # Relative to top, not to the maximum with sinks: infinite where the weights of all keys underflow.
            relative = code.fdiv(total, self._get("alpha", number))
            empty = code.fcmp_ordered("==", total, 0.0)
            self._put("total", number, code.select(empty, math.inf, relative))

    def store(self, row: str, place, rows) -> None:
        """Stores the first `rows` lanes of a row contiguously."""
        code = self.code
        size = self.bytes // self.lanes
        source = self._place(row, 0)
        with code.loop(0, rows) as loop:
            offset = code.mul(loop.index, size)
            code.put(code.get(code.at(source, offset), self.real, size), code.at(place, offset))
