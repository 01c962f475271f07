"""The backward kernel: gradients of q, k, v and of tables, without storing the matrix; the scores are recomputed.

    dV = Pᵀ dO      dP = dO Vᵀ      dS = P ∘ (dP + rest) ∘ ∂s'/∂s      dQ = scale · dS K      dK = scale · dSᵀ Q

A task is a tile of keys of one key head; it sums dK and dV over the tiles of queries that visit it, block of positions
by block, and in a block head by head (table_sums.py). Lanes are queries:

    Sᵀ[key][lane]   =  K · Qᵀ        dPᵀ[key][lane] = V · dOᵀ        P and dS, element by element (pullback.py)
    dV[key][depth] +=  P · dO        dK[key][depth] += dS · Q        dQᵀ[depth][lane] += Kᵀ · dSᵀ

dQ is shared by the tasks of a head: it is float32 (float64) in working memory, and the tasks add to a tile of it in the
order of their keys, each waiting until earlier tasks are past that tile (table_sums.py). Tiles of queries begin at
multiples of their rows, counted from position 0, and sums run over chains of the smallest tile. So the order of every
sum is fixed by positions: it depends neither on the threads nor on the rows of a tile or of the call.

The kernel runs three times, in phases: `rows` computes rest = dlse - Σ dO · O and the softmax statistics of each query,
`keys` computes the gradients, and `queries` writes dQ to the caller's array.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from llvmlite import ir

from ..code.arguments import Block
from ..code.formats import LOST, Format
from ..code.ir import I64, Code
from ..code.target import Target
from .backward_parts.few_rows import FewRows
from .backward_parts.products import CHAIN, GRAIN, UNROLL, Matrix, Multiplier
from .backward_parts.pullback import Expressions, Pullback
from .backward_parts.staging import Staging
from .backward_parts.table_sums import BLOCK, OrderedAdds, PartialSums, TableSums
from .backward_specification import ARRAYS, KEYS, PHASES, Specification, fixed_slots, padded, regions
from .parts.dropout import Dropout
from .parts.plan_by_key import KeySpan, visited_keys
from .parts.tasks import begun, each_task


def write(spec: Specification, target: Target, expressions: Expressions) -> ir.Module:
    """The kernel `backward(arguments, scratch, budget)` for a specification; the expressions must have its shape."""
    module, code, arguments = begun("backward")
    kernel = _Backward(code, spec, target, arguments, expressions)
    with each_task(code, kernel.arg, arguments[2]) as number:
        kernel.task(number)
    code.ret_void()
    return module


class RowTile(NamedTuple):
    """A tile of query rows: batch entry, head, its number over all heads, the row of its first lane (negative if that
    is before the first row), and the lanes that have a row (the first, and one past the last).
    """

    b: ir.Value
    h: ir.Value
    number: ir.Value
    first: ir.Value
    exist: tuple[ir.Value, ir.Value]


class Turn(NamedTuple):
    """When a tile is visited: its number in the order of visits, and that of the last head's visit to the same rows."""

    own: ir.Value
    last: ir.Value


class _Backward:
    """The loop nest, from the outside in."""

    def __init__(self, code: Code, spec: Specification, target: Target, args, expressions: Expressions):
        self.code, self.spec = code, spec
        self.form = form = Format(spec.dtype, target)
        self.D, self.E = padded(spec.D, form), padded(spec.E, form)
        self.real, self.size, self.step = form.real, form.size, 2 if form.pairs else 1
        leaves = expressions.constants, expressions.tables
        self.arg = arg = Block(code, args[0], *leaves, spec.wide, fixed_slots(spec))
        self.multiply = tools = Multiplier(code, target, form)
        self.lanes, self.vectors = tools.lanes, spec.rows // tools.lanes
        self.room, offset = {}, 0
        for name, (rows, row) in regions(spec, form).items():
            self.room[name] = Matrix(code.at(args[1], offset), row)
            offset += rows * row
        self.staging = Staging(code, tools, form, arg, dict(zip(ARRAYS, spec.unit, strict=True)))
        self.scale = arg.factor("scale", tools.type)
        self.sums = PartialSums(
            code,
            tools,
            base=code.at(args[1], offset),
            state=self.room["state"].base,
            keys=KEYS,
            D=self.D,
            E=self.E,
            scale=self.scale,
        )
        # Also the working memory of the other phases.
        self.room["dk"], self.room["dv"] = self.sums.entry(code.index(0))
        self.adds = OrderedAdds(code, arg, target)
        apart = [table for table, direct in spec.tables if not direct]
        self.copies = TableSums(code, arg, self.adds, apart, self.room["spans"].base) if apart else None
        dropout = None
        if spec.dropout:
            dropout = Dropout(code, target, arg, tools.type, self.vectors, self.room["bits"].base)
        self.pullback = Pullback(
            code,
            tools,
            arg,
            expressions,
            vectors=self.vectors,
            room=self.room["room"].base,
            squares=self.room["squares"].base,
            dropout=dropout,
        )
        self.tables = dict(enumerate(expressions.tables))
        self.mask = expressions.mask

    def task(self, number) -> None:
        """One task of the current phase."""
        for at, name in enumerate(PHASES):
            with self.code.when(self.code.icmp_signed("==", self.arg["phase"], at)):
                getattr(self, name)(number)

    # places -----------------------------------------------------------------------------------------------------------

    def _row(self, name: str, b, head, row):
        """The address of a row of one of the caller's arrays."""
        code, offset = self.code, 0
        for part, number in (("_batch", b), ("_head", head), ("_row", row)):
            offset = code.add(offset, code.mul(number, self.arg[name + part]))
        return self.arg.at(name, offset)

    def _place(self, name: str, number, count: int):
        """The address of entry `number` in an array of `count` elements per entry."""
        return self.arg.at(name, number, count * self.size)

    def _of_entry(self, name: str, b):
        """The number of a batch entry in an array of int64."""
        return self.code.get(self.arg.at(name, b, 8), I64, 8)

    def _tile(self, b, h, tile) -> RowTile:
        """A tile of rows of a head."""
        code, arg, W = self.code, self.arg, self.spec.rows
        number = code.add(code.mul(code.add(code.mul(b, arg["H"]), h), arg["tiles"]), tile)
        first = code.sub(code.mul(tile, W), self._of_entry("lead", b))
        begin = code.larger_int(code.neg(first), 0)
        return RowTile(b, h, number, first, (begin, code.smaller_int(code.sub(arg["Q"], first), W)))

    def _tile_of(self, number) -> RowTile:
        """The tile of rows of a task."""
        code, arg = self.code, self.arg
        pair, tile = code.sdiv(number, arg["tiles"]), code.srem(number, arg["tiles"])
        return self._tile(code.sdiv(pair, arg["H"]), code.srem(pair, arg["H"]), tile)

    # phases -----------------------------------------------------------------------------------------------------------

    def rows(self, number) -> None:
        """Per row of a tile: the maximum that is subtracted from its scores, the inverse of its total, and rest."""
        code, arg, spec, staging = self.code, self.arg, self.spec, self.staging
        b, h, _, first, exist = self._tile_of(number)
        before = code.add(code.mul(code.add(code.mul(b, arg["H"]), h), arg["Q"]), first)
        parts = self.room["out"], self.room["dv"]
        for name, into in zip(("out", "dout"), parts, strict=True):
            at = self._row(name, b, h, first)
            staging.load(name, at, exist, depth=spec.E, into=into, rows=spec.rows, padded=self.E)
        if not self.form.wide:
            with code.when(code.icmp_signed("!=", arg["lost"], 0)):
                at = arg.at("lost", before, spec.E * LOST)
                staging.add_lost(at, exist, spec.E, parts[0])
        found = self._place("softmax", number, 3 * spec.rows)
        with code.loop(0, spec.rows) as row:
            exists = code.and_(code.icmp_signed(">=", row.index, exist[0]), code.icmp_signed("<", row.index, exist[1]))
            at = code.select(exists, code.add(before, row.index), 0)
            top, total, dlse = (
                code.get(self._place(name, at, 1), self.real, self.size) for name in ("top", "total", "dlse")
            )
            nothing = code.fcmp_ordered("==", top, float("-inf"))
            empty = code.or_(code.fcmp_ordered("==", total, 0.0), code.not_(exists))
            rest = code.fsub(dlse, staging.dot(*parts, row.index, self.E))
            values = (
                code.select(nothing, 0.0, top),
                code.select(empty, 0.0, code.fdiv(1.0, total)),
                code.select(exists, rest, 0.0),
            )
            for step, value in enumerate(values):
                place = code.mul(code.add(row.index, step * spec.rows), self.size)
                code.put(value, code.at(found, place), self.size)
            with code.when(exists):
                code.put(rest, self._place("rest", at, 1), self.size)

    def queries(self, number) -> None:
        """Writes a tile of dQᵀ to rows of dq."""
        spec = self.spec
        tile = self._tile_of(number)
        work = Matrix(self._place("work", number, self.D * spec.rows), spec.rows * self.size)
        self.staging.transpose(work, self.room["dk"], self.D, spec.rows)
        at = self._row("dq", tile.b, tile.h, tile.first)
        self.staging.store("dq", at, self.room["dk"], tile.exist, spec.D, self.scale)

    def keys(self, number) -> None:
        """A tile of keys, and all tiles of queries that visit it."""
        code, arg, spec, staging = self.code, self.arg, self.spec, self.staging
        unit, pair = self._task_place(number)
        b, g = code.sdiv(pair, arg["G"]), code.srem(pair, arg["G"])
        first = code.mul(unit, KEYS)
        exist = 0, code.smaller_int(code.sub(arg["K"], first), KEYS)
        some = code.and_(code.add(exist[1], GRAIN - 1), -GRAIN)  # rows of the tile in use
        whole = []
        for name, depth, width in (("k", spec.D, self.D), ("v", spec.E, self.E)):
            at, room = self._row(name, b, g, first), self.room[name]
            staging.load(name, at, exist, depth=depth, into=room, rows=some, padded=width, narrow=self.form.pairs)
            whole.append(staging.finite(self.room[name], some, width // self.step))
        if self.form.pairs:
            staging.pair_up(self.room["k"], self.room["kp"], 0, some, self.D)
        self.finite_keys = code.and_(*whole)
        self._set_gradients(number)
        self.adds.enter(unit, pair)
        self.sums.begin(some)
        self._visits(b, g, unit, first)
        sums = zip(("dk", "dv"), self.sums.finish(), (spec.D, spec.E), strict=True)
        with code.when(self.sums.any()) if spec.partial else contextlib.nullcontext():
            for name, matrix, depth in sums:
                staging.store(name, self._row(name, b, g, first), matrix, exist, depth, None, exact=spec.partial)
        self.adds.leave()

    def _task_place(self, number):
        """The tile of keys and the key head (over all batch entries) of a task.

        Tasks that wait for one another should not run at the same time: those of one head add to the same dQ, and those
        of one tile of keys to the same entries of a table, each after all heads of the group before it.
        """
        code, arg = self.code, self.arg
        if any(direct for _, direct in self.spec.tables):
            return code.srem(number, arg["key_tiles"]), code.sdiv(number, arg["key_tiles"])
        return code.sdiv(number, arg["groups"]), code.srem(number, arg["groups"])

    def _set_gradients(self, number) -> None:
        """Sets where the gradients of tables are summed: in place, or in the copy of this task."""
        copies = self.copies.enter(number) if self.copies else {}
        for table, direct in self.spec.tables:
            name = id(self.tables[table])
            self.pullback.gradients[name] = self.arg.address(f"gradient{table}") if direct else copies[table]
            if self.copies and not direct:
                self.pullback.spans[name] = self.copies.spans[table]

    def _visits(self, b, g, unit, base) -> None:
        """All visits of a task: for each block of positions, for each head of the group, its tiles in that block."""
        code, arg, W = self.code, self.arg, self.spec.rows
        plan = code.add(code.mul(b, arg["plan_batch"]), code.mul(code.mul(g, arg["group"]), arg["plan_head"]))
        begin, end = self._tile_range(plan, unit)
        last_key = code.smaller_int(code.add(base, KEYS), arg["K"])
        # Tiles are counted from that of the first row, of which this is the number counted from position 0.
        origin = code.sub(self._of_entry("start", b), self._of_entry("lead", b))
        origin = code.ashr(origin, W.bit_length() - 1)
        tiles = BLOCK // W
        shift = (BLOCK // W).bit_length() - 1
        earliest = code.ashr(origin, shift)
        blocks = (
            code.ashr(code.add(origin, begin), shift),
            code.add(code.ashr(code.add(origin, code.sub(end, 1)), shift), 1),
        )
        number = None
        if self.copies:  # the number of the first block in the sums of tables
            number = code.sub(self._of_entry("block", b), earliest)
        with code.loop(*blocks) as block:
            from_ = code.sub(code.shl(block.index, shift), origin)
            span = code.larger_int(begin, from_), code.smaller_int(end, code.add(from_, tiles))
            rounds = code.mul(code.sub(block.index, earliest), arg["group"])

            def turn(head, tile, rounds=rounds, from_=from_):
                return code.add(code.mul(code.add(rounds, head), tiles), code.sub(tile, from_))

            with code.loop(0, arg["group"]) as head, code.loop(*span) as tile:
                now = Turn(turn(head.index, tile.index), turn(code.sub(arg["group"], 1), tile.index))
                self.adds.reach(now.own)
                at = code.add(plan, code.mul(head.index, arg["plan_head"]))
                keys = visited_keys(code, arg, at, tile.index, base, last_key)
                with code.when(code.icmp_signed("<", keys.first, keys.last)):
                    self.sums.open(block.index)
                    h = code.add(code.mul(g, arg["group"]), head.index)
                    self.visit(self._tile(b, h, tile.index), base, keys, now)
            if self.copies:
                self.copies.flush(code.add(number, block.index))
        if self.copies:
            self.copies.leave(*(code.add(number, edge) for edge in blocks))

    def _tile_range(self, plan, unit):
        """The first tile of queries that visits a tile of keys, and one past the last, over all heads of a group."""
        code, arg = self.code, self.arg
        with code.loop(0, arg["group"], 1, [arg["tiles"], 0]) as head:
            at = code.add(plan, code.mul(head.index, arg["plan_head"]))
            place = code.mul(code.add(code.mul(at, arg["key_tiles"]), unit), 16)
            found = arg.at("tile_ranges", place)
            begin, end = code.get(found, I64, 8), code.get(code.at(found, 8), I64, 8)
            head.carry(code.smaller_int(head.carried[0], begin), code.larger_int(head.carried[1], end))
        return head.result

    # a visit ----------------------------------------------------------------------------------------------------------

    def visit(self, rows: RowTile, base, keys: KeySpan, turn: Turn) -> None:
        """One tile of queries with those keys of the task's tile that it visits; base: the first key of that tile."""
        code, spec, room, multiply = self.code, self.spec, self.room, self.multiply
        W, step, pairs = spec.rows, self.step, self.form.pairs
        finite = self.finite_keys
        for name, depth, width in (("q", spec.D, self.D), ("dout", spec.E, self.E)):
            at, into = self._row(name, rows.b, rows.h, rows.first), room[name]
            self.staging.load(name, at, rows.exist, depth=depth, into=into, rows=W, padded=width, narrow=pairs)
            if not spec.few:
                self.staging.transpose(room[name], room[f"{name}t"], W, width // step)
            if pairs:
                self.staging.pair_up(room[name], room[f"{name}p"], 0, W, width)
            finite = code.and_(finite, self.staging.finite(room[name], W, width // step))
        first, last = code.sub(keys.first, base), code.sub(keys.last, base)
        end = code.and_(code.add(last, GRAIN - 1), -GRAIN)
        # The rounding of bfloat16 is so coarse that the error of long chains is negligible.
        chain = None if pairs else CHAIN
        few = FewRows(code, multiply, spec.few, rows.exist[0], room["room"].base) if spec.few else None
        for out, one, other, depth in (("s", "k", "q", self.D), ("ds", "v", "dout", self.E)):
            if few:
                few.dots(room[out], room[one], room[other], (first, end), depth)
                continue
            terms, turned = (0, depth // step), room[f"{other}t"]
            multiply(room[out], room[one], turned, W, (first, end), terms, overwrite=True, chain=chain)
        if any(direct for _, direct in spec.tables):
            self.adds.wait_for_heads(turn.last)
        self.pullback.open(rows.b, rows.h, code.add(self._of_entry("start", rows.b), rows.first), rows.exist)
        softmax = Matrix(self._place("softmax", rows.number, 3 * W), W * self.size)
        p, ds = (room["weights"], room["slopes"]) if pairs else (room["s"], room["ds"])

        def pull(masked: bool) -> None:
            self.pullback.apply(
                scores=room["s"],
                dp=room["ds"],
                p=p,
                ds=ds,
                rows=softmax,
                base=base,
                first=first,
                last=last,
                end=end,
                masked=masked,
            )

        if self.mask is None:
            pull(False)
        else:
            with code.if_else(keys.mixed) as (then, otherwise):
                for branch, masked in ((then, True), (otherwise, False)):
                    with branch:
                        pull(masked)
        if pairs:
            self.staging.pair_up(ds, room["slopesp"], first, end, W)
        work = Matrix(self._place("work", rows.number, self.D * W), W * self.size)
        with code.if_else(finite) as (then, otherwise):
            for branch, careful in ((then, False), (otherwise, True)):
                with branch:
                    if careful or not few:
                        self._gather(work, turn, p, ds, (first, end), rows.exist, careful=careful)
                        continue
                    dk, dv = self.sums.current()
                    few.outer(dv, p, room["dout"], (first, end), self.E)
                    few.outer(dk, ds, room["q"], (first, end), self.D)
                    self.adds.wait(turn.own)
                    few.inner(work, ds, room["k"], (first, end), self.D)

    def _gather(self, work: Matrix, turn: Turn, p: Matrix, ds: Matrix, keys, exist, *, careful: bool) -> None:
        """Adds a visit to dV, dK and dQ. careful: omits the products of masked pairs, because 0 · NaN is NaN."""
        code, room, multiply, step, pairs = self.code, self.room, self.multiply, self.step, self.form.pairs
        # The smallest tile is one chain, so that results do not depend on the number of rows of a tile; rows that do
        # not exist add nothing to it.
        chain, by_key, by_lane = 2 * self.lanes // step, "a" if careful else "", "b" if careful else ""
        begin = code.and_(exist[0], -chain * step)
        end = code.and_(code.add(exist[1], UNROLL * step - 1), -UNROLL * step)
        queries = tuple(code.ashr(edge, step - 1) for edge in (begin, end))
        dk, dv = self.sums.current()
        multiply(dv, p, room["doutp" if pairs else "dout"], self.E, keys, queries, chain=chain, marked=by_key)
        multiply(dk, ds, room["qp" if pairs else "q"], self.D, keys, queries, chain=chain, marked=by_key)
        self.adds.wait(turn.own)
        terms = tuple(code.ashr(end, 1) for end in keys) if pairs else keys
        multiply(
            work,
            room["kp" if pairs else "k"],
            room["slopesp"] if pairs else ds,
            self.spec.rows,
            (0, self.D),
            terms,
            transposed=True,
            chain=None,
            marked=by_lane,
        )
