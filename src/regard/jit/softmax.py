"""The running softmax of a tile: maximum, sum and rescale factor of every lane, kept between blocks of keys.

    m' = max(m, block maximum)      α = 2**(m - m')      p = 2**(s - m')      l' = α l + Σ p

Logits are in units of log 2. A lane that has seen nothing has m = -inf; its shift is 0 instead, so that -inf - -inf never
happens, p is 0 and the final weight is 0.
"""

from __future__ import annotations

import math

from llvmlite import ir

from . import special
from .ir import F32, Code

__all__ = ["Running"]


class Running:
    """Rows of lanes in scratch memory: m, l, the block's maximum, α, and the shift m' (0 where m' is -inf)."""

    ROWS = ("maximum", "total", "seen", "alpha", "shift")

    def __init__(self, code: Code, memory, lane_type, vectors: int):
        self.code, self.memory, self.type, self.vectors = code, memory, lane_type, vectors
        self.lanes = getattr(lane_type, "count", 1)

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

    def raise_maximum(self) -> None:
        """After the block's scores are known: m', α, the shift, and l·α."""
        code = self.code
        nothing = code.number(-math.inf, self.type)
        for number in range(self.vectors):
            before = self._get("maximum", number)
            after = code.larger(before, self._get("seen", number))
            shift = code.select(code.fcmp_ordered("==", after, nothing), code.number(0.0, after), after)
            alpha = special.softmax_exp2(code, code.fsub(before, shift))
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
                p = special.softmax_exp2(code, code.fsub(s, shifts[number]))
                if mark:
                    p = code.select(code.fcmp_ordered("==", s, code.number(-math.inf, s)), code.number(-0.0, s), p)
                code.put(p, place, align=4 * self.lanes)
                sums.append(code.fadd(loop.carried[number], p))
            loop.carry(*sums)
        for number in range(self.vectors):
            self._put("total", number, code.fadd(self._get("total", number), loop.result[number]))

    def add_sinks(self, sinks, first, count) -> None:
        """Extra logits in the denominator: the maximum rises to them, l is rescaled, α brings the output along."""
        code = self.code
        to_log2 = ir.Constant(F32, special.LOG2E)

        def sink(index):
            at = code.at(sinks, code.mul(code.add(first, index), code.index(4)))
            return code.splat(code.fmul(code.get(at, F32, 4), to_log2), self.lanes)

        self.begin_block()
        with code.loop(code.index(0), count) as loop:
            for number in range(self.vectors):
                self.see(number, [sink(loop.index)])
        self.raise_maximum()
        with code.loop(code.index(0), count) as loop:
            for number in range(self.vectors):
                p = special.softmax_exp2(code, code.fsub(sink(loop.index), self._get("shift", number)))
                self._put("total", number, code.fadd(self._get("total", number), p))

    def normalizers(self) -> list:
        """α / l of every lane, 0 where l is 0: what the output is multiplied by at the end."""
        code, found = self.code, []
        for number in range(self.vectors):
            total = self._get("total", number)
            zero = code.number(0.0, total)
            inverse = code.fdiv(self._get("alpha", number), total)
            found.append(code.select(code.fcmp_ordered("==", total, zero), zero, inverse))
        return found

    def store_lse(self, place, rows) -> None:
        """lse = (m + log2 l) · ln 2 for the first `rows` lanes; -inf where nothing was seen."""
        code = self.code
        for number in range(self.vectors):
            lse = code.fadd(self._get("shift", number), special.log2(code, self._get("total", number)))
            self._put("seen", number, code.fmul(lse, code.number(math.log(2), lse)))
        source = self._place("seen", 0)
        with code.loop(code.index(0), rows) as loop:
            offset = code.mul(loop.index, code.index(4))
            code.put(code.get(code.at(source, offset), F32, 4), code.at(place, offset))
