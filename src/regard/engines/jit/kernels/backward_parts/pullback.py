"""The element-wise part of the backward pass: from scores and dP to weights and the gradients of scores and tables.

    P = 2**(exponent · (s' - top)) / total        dS' = P ∘ (dP + rest)        dS = dS' ∘ ∂s'/∂s        s' = score(s)

The partial derivatives are expressions too (`analysis.adjoints`), emitted together with the score, so that common parts
are computed once. A masked pair gets exactly 0, by selection and not by multiplication: -0, which leaves sums unchanged
but is distinguishable from an underflow.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from llvmlite import ir

from .....language.analysis import deciding
from .....language.expr import Const, Expr, Read, Table
from .....language.expr import score as the_score
from ...code import special
from ...code.arguments import Block
from ...code.emit import Emitter
from ...code.ir import F32, F64, I32, I64, Code, element, is_vector, lane_count, vector
from ..parts.dropout import Dropout
from ..parts.table_tiles import TableTiles
from .products import Matrix, Multiplier, fold_lanes, sum_of_lanes
from .table_sums import NO_SPAN


class Expressions(NamedTuple):
    """The expressions of a backward kernel. partials: ∂s'/∂leaf for the score and for the reads of tables that need a
    gradient; constants and tables: the leaves of all expressions, in the order of the argument block.
    """

    mask: Expr | None
    score: Expr | None
    partials: dict[Expr, Expr]
    constants: list[Const]
    tables: list[Table]


def roots(mask: Expr | None, score: Expr | None, partials: dict[Expr, Expr]) -> list[Expr]:
    """Everything that is computed for a pair: mask, score, the partials, and the indices of reads with a gradient."""
    indices = [part for leaf in partials if isinstance(leaf, Read) for part in leaf.index]
    return [*([] if mask is None else [mask]), *([] if score is None else [score, *partials.values(), *indices])]


class Pullback:
    """Mask, score and partial derivatives on lanes; parts that depend on the query alone are computed once per visit,
    parts that depend on the key alone once per key.

    gradients: per table that needs one the address of its gradient, float64. spans: per table the address of the first
    and the last byte offset that was added to, if they are needed. room: working memory for two vectors of float64.
    squares: that of `TableTiles`.
    """

    def __init__(
        self,
        code: Code,
        tools: Multiplier,
        arg: Block,
        expressions: Expressions,
        *,
        vectors: int,
        room,
        squares,
        dropout: Dropout | None,
    ):
        mask, score, partials, *_ = expressions
        self.code, self.tools, self.vectors, self.arg = code, tools, vectors, arg
        self.mask, self.score, self.partials = mask, score, partials
        self.room, self.dropout = room, dropout
        self.factor, self.exponent = (arg.factor(name, tools.type) for name in ("score_factor", "exponent"))
        self.lowest = code.fdiv(special.FLOOR[tools.type.element], self.exponent)
        self.real, self.lanes, self.type = tools.type.element, tools.lanes, tools.type
        self.whole = arg.whole
        decides = frozenset().union(*(deciding(root) for root in (score, *partials.values())))
        self.rules = roots(None, score, partials)
        self.parts = [
            (Emitter(code, F64, arg), [] if mask is None else [mask]),
            (Emitter(code, self.real, arg, decides), self.rules),
        ]
        self.squares = TableTiles(code, roots(mask, score, partials), lanes=self.lanes, vectors=vectors, memory=squares)
        self.gradients: dict[int, Any] = {}
        self.spans: dict[int, Any] = {}

    @property
    def reads(self) -> list[Read]:
        return [leaf for leaf in self.partials if isinstance(leaf, Read)]

    def open(self, b, h, first, exist) -> None:
        """Computes the parts that depend on the visit only: on batch, head, and the query position of every lane.

        first: the position of lane 0. exist: the lanes that have a row, (first, one past the last).
        """
        code, lanes = self.code, self.lanes
        place = b, h
        b, h, first = map(self.arg.narrowed, (b, h, first))
        self.exist, self.scopes, queries = exist, [], []
        for number in range(self.vectors):
            steps = ir.Constant(vector(self.whole, lanes), [number * lanes + lane for lane in range(lanes)])
            query = code.add(code.splat(first, lanes), steps)
            queries.append(query)
            scopes = [emitter.scope(batch=b, head=h, query=query) for emitter, _ in self.parts]
            for scope, (_, roots) in zip(scopes, self.parts, strict=True):
                for root in roots:
                    scope.prepare(root)
                    self.squares.open(number, scope, root)
            self.scopes.append(scopes)
        steps = [
            ir.Constant(vector(I32, lanes), [number * lanes + lane for lane in range(lanes)])
            for number in range(self.vectors)
        ]
        # One unsigned comparison: lanes before the first one wrap around.
        begin, count = (
            code.splat(code.trunc(part, I32), lanes)
            for part in (exist[0], code.larger_int(code.sub(exist[1], exist[0]), 0))
        )
        self.dead = [code.icmp_unsigned(">=", code.sub(step, begin), count) for step in steps]
        if self.dropout is not None:
            self.dropout.open(place[0], [place[1]] * self.vectors, queries)

    def apply(
        self,
        *,
        scores: Matrix,
        dp: Matrix,
        p: Matrix,
        ds: Matrix,
        rows: Matrix,
        base,
        first,
        last,
        end,
        masked: bool,
    ) -> None:
        """Rows first … last of P and dS from those of S and dP, and rows up to `end` as if masked; adds to gradients of
        tables.

        base: the key of row 0. rows: three rows of lanes: the maximum that is subtracted from a score, the inverse of
        the total, and rest.
        """
        code, tools = self.code, self.tools
        with code.loop(last, end) as loop:
            for matrix in (p, ds):
                for number in range(self.vectors):
                    self._put(code.number(-0.0, self.type), matrix, loop.index, number)
        if self.dropout is not None:
            self.dropout.draw(code.add(base, first), code.sub(last, first))
        wide = vector(I64, self.lanes)
        spans = [code.number(value, wide) for _ in self.spans for value in NO_SPAN]
        wanted = [root for at, (_, some) in enumerate(self.parts) if at or masked for root in some]

        def pull(begin, stop, spans: list) -> list:
            """Some of the rows; returns the spans of tables."""
            with code.loop(begin, stop, 1, spans) as loop:
                position = code.add(base, loop.index)
                key = self.arg.narrowed(position)
                s_at, dp_at = (tools.place(part, loop.index) for part in (scores, dp))
                rows_at = tools.place(rows, code.index(0))
                shared: list[dict] = [{} for _ in self.parts]
                contributions: list[tuple[Any, Any, Any]] = []
                for number, scopes in enumerate(self.scopes):
                    logit = tools.get(s_at, number)
                    logit = logit if self.score is None else code.fmul(logit, self.factor)
                    inner = [
                        self._scope(scope, some if at or masked else [], (number, position, key), known)
                        for at, (scope, (_, some), known) in enumerate(zip(scopes, self.parts, shared, strict=True))
                    ]
                    rule = inner[1].scope(score=logit)
                    logit = logit if self.score is None else self._number(rule.value(self.score))
                    removed = code.or_(code.fcmp_ordered("==", logit, -math.inf), self.dead[number])
                    if masked:
                        removed = code.or_(
                            removed, code.not_(code.splat(inner[0].value(self.parts[0][1][0]), self.lanes))
                        )
                    kept = None if self.dropout is None else self.dropout.factor(number, code.sub(loop.index, first))
                    weight, slope = self._weight(logit, number, tools.get(dp_at, number), rows_at, rows.row, kept)
                    nothing = code.number(-0.0, weight)
                    self._put(code.select(removed, nothing, weight), p, loop.index, number)

                    def through(partial: Expr, slope=slope, removed=removed, rule=rule, nothing=nothing):
                        """The gradient of a leaf, given ∂s'/∂leaf."""
                        value = slope if _is_one(partial) else code.fmul(slope, self._number(rule.value(partial)))
                        return code.select(removed, nothing, value)

                    kind = self.partials.get(the_score)
                    self._put(nothing if kind is None else through(kind), ds, loop.index, number)
                    for read in self.reads:
                        contributions.append((read, self._offset(read, rule), through(self.partials[read])))
                self._scatter(contributions)
                loop.carry(*self._extended(loop.carried, contributions))
            return loop.result

        if not self.squares.needed(wanted):
            spans = pull(first, last, spans)
        else:
            with code.loop(first, last, self.lanes, spans) as some:
                self.squares.load(code.add(base, some.index), wanted)
                stop = code.smaller_int(code.add(some.index, self.lanes), last)
                some.carry(*pull(some.index, stop, some.carried))
            spans = some.result
        for at, place in enumerate(self.spans.values()):
            for step, pick in enumerate((code.smaller_int, code.larger_int)):
                edge = code.at(place, 8 * step)
                found = fold_lanes(code, spans[2 * at + step], pick)
                code.put(pick(code.get(edge, I64, 8), found), edge, 8)

    def _put(self, value, matrix: Matrix, row, number: int) -> None:
        """Stores a vector of P or dS, as bfloat16 if the products use pairs."""
        code, tools = self.code, self.tools
        if not tools.pairs:
            tools.put(value, tools.place(matrix, row), number)
            return
        place = code.at(tools.place(matrix, row), 2 * self.lanes * number)
        code.put(code.brain(value), place, 2 * self.lanes)

    def _scope(self, scope: Emitter, roots: list[Expr], place: tuple[int, Any, Any], shared: dict) -> Emitter:
        """The scope of a vector and a key; values that are the same for all lanes are computed for the first vector.

        place: the vector, and the position of the key in 64 bits and in the width of integers.
        """
        number, position, key = place
        inner = scope.scope(key=key)
        known = set(inner.values)
        inner.values.update(shared)
        for root in roots:
            inner.values.update(self.squares.elements(number, position, inner, root))
            inner.prepare(root)
        shared |= {name: value for name, value in inner.values.items() if name not in known and not is_vector(value)}
        return inner

    def _weight(self, logit, number: int, dp, rows_at, step: int, kept):
        """P and P ∘ (dP + rest) of a vector; with dropout, P and dP are multiplied by the dropout factors."""
        code, tools = self.code, self.tools
        shift, inverse, rest = (tools.get(rows_at, number, row * step) for row in range(3))
        x = code.fsub(logit, shift)
        x = code.select(code.fcmp_ordered(">", x, 0.0), 0.0, x)  # positive only by rounding errors
        weight = code.fmul(special.softmax_exp2(code, x, self.exponent, self.lowest), inverse)
        slope = code.fmul(weight, code.fadd(dp if kept is None else code.fmul(dp, kept), rest))
        return weight if kept is None else code.fmul(weight, kept), slope

    def _number(self, value):
        """A number in every lane, in the float type of the kernel."""
        code, value = self.code, self.code.splat(value, self.lanes)
        if element(value) in (F32, F64):
            convert = code.fptrunc if self.real == F32 else code.fpext
            return value if element(value) == self.real else convert(value, self.type)
        return code.sitofp(value, self.type)

    # tables -----------------------------------------------------------------------------------------------------------

    def _offset(self, read: Read, rule: Emitter):
        """The byte offset of the gradient entry that is read: a vector only if it differs between lanes."""
        code = self.code
        number = self.arg.table(read.table)
        sizes = self.arg.tables[number][1]
        total: Any = code.index(0)
        widths = [*sizes[:-1], self.arg[f"width{number}"]]
        for part, size, width in zip(read.index, sizes, widths, strict=True):
            value = rule.value(part)
            lanes = lane_count(value)
            wide = value if element(value) == I64 else code.sext(value, vector(I64, lanes))
            top = code.splat(code.sub(size, 1), lanes)
            wide = code.smaller_int(code.larger_int(wide, 0), top)
            count = max(lanes, lane_count(total))
            total = code.mul(code.splat(total, count), code.splat(width, count))
            total = code.add(total, code.splat(wide, count))
        return code.mul(total, 8)

    def _extended(self, spans: list, contributions: list) -> list:
        """The spans of tables, lane by lane, with the entries of contributions."""
        code, spans = self.code, list(spans)
        for read, offset, _ in contributions:
            if id(read.table) in self.spans:
                at = 2 * list(self.spans).index(id(read.table))
                wide = code.splat(offset, self.lanes)
                spans[at : at + 2] = code.smaller_int(spans[at], wide), code.larger_int(spans[at + 1], wide)
        return spans

    def _scatter(self, contributions: list) -> None:
        """Adds contributions to the gradients of tables, vector by vector; lanes without a row are skipped."""
        code, room = self.code, self.room
        for at, (read, offset, value) in enumerate(contributions):
            number, base = at // len(self.reads), self.gradients[id(read.table)]
            begin, end = (code.sub(edge, number * self.lanes) for edge in self.exist)
            wide = value if self.real == F64 else code.fpext(value, vector(F64, self.lanes))
            if not is_vector(offset):
                steps = ir.Constant(vector(I64, self.lanes), list(range(self.lanes)))
                here = code.and_(
                    code.icmp_signed(">=", steps, code.splat(begin, self.lanes)),
                    code.icmp_signed("<", steps, code.splat(end, self.lanes)),
                )
                total = sum_of_lanes(code, code.select(here, wide, 0.0))
                place = code.at(base, offset)
                code.put(code.fadd(code.get(place, F64, 8), total), place, 8)
                continue
            code.put(wide, room, 8)
            offsets = code.at(room, 8 * self.lanes)
            code.put(offset, offsets, 8)
            alive = code.larger_int(begin, 0), code.smaller_int(end, self.lanes)
            with code.loop(*alive) as lane:
                step = code.mul(lane.index, 8)
                place = code.at(base, code.get(code.at(offsets, step), I64, 8))
                code.put(code.fadd(code.get(place, F64, 8), code.get(code.at(room, step), F64, 8)), place, 8)


def _is_one(partial: Expr) -> bool:
    return isinstance(partial, Const) and partial.value == 1
