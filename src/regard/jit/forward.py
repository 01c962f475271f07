"""The forward kernel: streaming softmax with queries in the lanes ("transposed flash").

    out[row] = Σ_key exp(s[row, key] - lse[row]) · v[key],    s = score(scale · q[row]·k[key]) where mask, else -inf

A task is a tile of W query rows of one head. Its queries are transposed once, Qᵀ[depth][lane], and then for each block of keys:

    Sᵀ[key][lane]  =  K · Qᵀ          one key element, broadcast, times vectors of queries; key_tile x vectors accumulators
    score and mask                    on lanes; a full block does not mention the mask
    m, α, p, l                        the running softmax of `softmax.py`; everything is vertical
    Oᵀ[depth][lane] = α Oᵀ + Vᵀ · P   one value element, broadcast, times vectors of probabilities

What is read: q, k, v exactly once per visited element, in place, with any strides; nothing beyond the first and last key of a
run. What is never read: keys of tiles that the plan leaves out. Blocks begin at multiples of BLOCK keys, and a row sums its keys
one after the other, so its result does not depend on its neighbours, the batch or the threads.

0 · NaN is NaN, so a value that a row may not see could reach it in a mixed block. No check is paid for beforehand: a tile whose
output is not finite is done once more, carefully, with those products left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ..expr import Const, Expr, Table
from .emit import Arguments, Emitter
from .ir import F32, F64, I32, I64, PTR, Code, vector
from .softmax import Running
from .special import LOG2E
from .target import Target

__all__ = ["BLOCK", "FIXED", "Specification", "scratch_bytes", "write"]

BLOCK = 64  # keys between two updates of the running maximum: S (BLOCK x W floats) stays in the first-level cache

# The argument block: 64-bit slots in this order, then the constants, then per table a pointer and (size, stride) per axis.
FIXED = (
    *(f"{array}{part}" for array in ("q", "k", "v", "out") for part in ("", "_batch", "_head", "_row", "_depth")),
    "lse", "H", "group", "Q", "K", "scale", "start", "offsets", "runs", "order", "tiles", "plan_batch", "plan_head",
    "sinks", "sink_count", "next", "tasks",
)  # fmt: skip


@dataclass(frozen=True)
class Specification:
    """What a kernel is specialised to. Everything else is an argument."""

    shape: tuple  # of the expressions (`emit.signature`)
    D: int
    E: int
    rows: int  # W, a multiple of the vector's lanes
    wide: bool  # integers need 64 bits
    unit: tuple[bool, bool, bool, bool]  # q, k, v, out lie with depth contiguous
    score: bool
    mask: bool


def scratch_bytes(spec: Specification) -> int:
    """Working memory of one thread: Qᵀ, S, Oᵀ and a few rows."""
    return 4 * spec.rows * (spec.D + BLOCK + spec.E + 8)


def write(
    spec: Specification, target: Target, mask: Expr | None, score: Expr | None, constants: list[Const], tables: list[Table]
) -> ir.Module:
    """The kernel `forward(arguments, scratch)` for a specification; the expressions must have its shape."""
    module = ir.Module("regard")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR]), "forward")
    function.attributes.add("nounwind")
    for argument in function.args:
        argument.add_attribute("noalias")
    code = Code(function.append_basic_block("entry"))
    kernel = _Forward(code, spec, target, mask, score, constants, tables, *function.args)
    kernel.tasks()
    code.ret_void()
    return module


class _Forward:
    """The loop nest, from the outside in."""

    def __init__(self, code: Code, spec, target: Target, mask, score, constants, tables, arguments, scratch):
        self.code, self.spec, self.mask, self.score = code, spec, mask, score
        self.constants, self.tables, self.arguments = constants, tables, arguments
        self.lanes = target.lanes(4)
        self.vectors = spec.rows // self.lanes
        # Fewer vectors leave registers for more keys (and more depths) at once.
        self.key_tile = target.key_tile * target.query_vectors // self.vectors
        self.depth_tile = target.depth_tile * target.query_vectors // self.vectors
        self.lane_type = vector(F32, self.lanes)
        self.row_bytes = 4 * spec.rows
        self.qt = scratch
        self.s = code.at(self.qt, spec.D * self.row_bytes)
        self.o = code.at(self.s, BLOCK * self.row_bytes)
        self.run = Running(code, code.at(self.o, spec.E * self.row_bytes), self.lane_type, self.vectors)
        self.arg = {name: self._slot(number) for number, name in enumerate(FIXED)}
        self._prepare_expressions()

    # arguments ----------------------------------------------------------------------------------------------------------------

    def _slot(self, number: int, type=I64):
        return self.code.get(self.code.at(self.arguments, 8 * number), type, align=8)

    def _pointer(self, name: str):
        return self.code.inttoptr(self.arg[name], PTR)

    def _prepare_expressions(self) -> None:
        """Constants and tables, loaded once per call."""
        loaded: dict[tuple[int, Any], Any] = {}

        def constant(number: int, kind):
            if (number, kind) not in loaded:
                at = len(FIXED) + number
                if kind in (F32, F64):
                    double = self._slot(at, F64)
                    loaded[number, kind] = double if kind == F64 else self.code.fptrunc(double, F32)
                else:
                    loaded[number, kind] = self._slot(at) if kind == I64 else self.code.trunc(self._slot(at), I32)
            return loaded[number, kind]

        shown: list[Any] = []
        at = len(FIXED) + len(self.constants)
        for table in self.tables:
            pointer = self.code.inttoptr(self._slot(at), PTR)
            axes = [(self._slot(at + 1 + 2 * axis), self._slot(at + 2 + 2 * axis)) for axis in range(table.array.ndim)]
            shown.append((pointer, [size for size, _ in axes], [stride for _, stride in axes]))
            at += 1 + 2 * table.array.ndim
        numbers = {id(node): number for number, node in enumerate(self.constants)}
        whole = I64 if self.spec.wide else I32
        for node in self.constants:
            if node.kind != "bool":
                for kind in (F32, F64) if node.kind == "float" else (whole,):
                    constant(numbers[id(node)], kind)
        arguments = Arguments(lambda number, kind: loaded[number, kind], shown.__getitem__)
        self.mask_rule = Emitter(self.code, F64, whole, arguments, numbers, self.tables)
        self.score_rule = Emitter(self.code, F32, whole, arguments, numbers, self.tables)

    # the loop nest ------------------------------------------------------------------------------------------------------------

    def tasks(self) -> None:
        """Tiles are taken from a shared counter until none is left."""
        code, counter = self.code, self._pointer("next")

        def take():
            return code.atomic_rmw("add", counter, code.int(1), "monotonic")

        with code.repeat(lambda number: code.icmp_signed("<", number, self.arg["tasks"]), [take()]) as taken:
            (number,) = taken.carried
            self.tile(number)
            taken.carry(take())

    def tile(self, number) -> None:
        """One task: which head and rows it is, and what the plan says about its keys."""
        code, arg = self.code, self.arg
        pair, place = code.sdiv(number, arg["tiles"]), code.srem(number, arg["tiles"])
        b, h = code.sdiv(pair, arg["H"]), code.srem(pair, arg["H"])
        g = code.sdiv(h, arg["group"])
        plan = code.add(code.mul(b, arg["plan_batch"]), code.mul(h, arg["plan_head"]))
        first_tile = code.mul(plan, arg["tiles"])
        order = code.at(self._pointer("order"), code.mul(code.add(first_tile, place), code.int(4)))
        tile = code.sext(code.get(order, I32, 4), I64)
        offsets = code.at(self._pointer("offsets"), code.mul(code.add(first_tile, tile), code.int(8)))
        runs = code.get(offsets, I64, 8), code.get(code.at(offsets, 8), I64, 8)
        self.row = code.mul(tile, code.int(self.spec.rows))
        self.rows = code.smaller_int(code.sub(arg["Q"], self.row), code.int(self.spec.rows))
        self.q, self.out = (self._rows(name, b, h, self.row) for name in ("q", "out"))
        self.k, self.v = (self._rows(name, b, g, None) for name in ("k", "v"))
        self.pair, self.h = pair, h
        self.load_queries()
        start = code.get(code.at(self._pointer("start"), code.mul(b, code.int(8))), I64, 8)
        self._open_rules(b, h, code.add(start, self.row))
        # A second, careful attempt only where the first is not finite.
        with code.repeat(lambda attempt, attempts: code.icmp_signed("<", attempt, attempts), [code.int(0), code.int(1)]) as tried:
            attempt = tried.carried[0]
            self.careful = code.icmp_signed("==", attempt, code.int(1))
            self.run.begin()
            self._zero_output()
            self.blocks(*runs)
            finite = self.finish()
            again = code.and_(code.not_(finite), code.icmp_signed("==", attempt, code.int(0)))
            tried.carry(code.add(attempt, code.int(1)), code.select(again, code.int(2), code.int(1)))

    def _rows(self, name: str, b, head, row):
        code, arg = self.code, self.arg
        offset = code.add(code.mul(b, arg[f"{name}_batch"]), code.mul(head, arg[f"{name}_head"]))
        if row is not None:
            offset = code.add(offset, code.mul(row, arg[f"{name}_row"]))
        return code.at(self._pointer(name), offset)

    def _open_rules(self, b, h, first) -> None:
        """What the rules can know once per tile: batch, head, and the query position of every lane."""
        code, whole = self.code, self.mask_rule.whole
        b, h, first = (value if whole == I64 else code.trunc(value, whole) for value in (b, h, first))
        self.tile_rules = []
        for number in range(self.vectors):
            steps = ir.Constant(vector(whole, self.lanes), [number * self.lanes + lane for lane in range(self.lanes)])
            query = code.add(code.splat(first, self.lanes), steps) if self.lanes > 1 else first
            rules = [rule.scope(batch=b, head=h, query=query) for rule in (self.mask_rule, self.score_rule)]
            for rule, root in zip(rules, (self.mask, self.score), strict=True):
                if root is not None:
                    rule.prepare(root)
            self.tile_rules.append(rules)

    def load_queries(self) -> None:
        """Qᵀ[depth][lane], times the scale, a square of lanes x lanes elements at a time."""
        code, spec, lanes = self.code, self.spec, self.lanes
        scale = self._slot(FIXED.index("scale"), F64)
        if not spec.score:  # logits in units of log 2, so that exp is 2**x
            scale = code.fmul(scale, ir.Constant(F64, LOG2E))
        scale = code.splat(code.fptrunc(scale, F32), lanes)
        squares = spec.D // lanes * lanes if spec.unit[0] else 0
        with code.loop(code.int(0), code.int(spec.rows), lanes) as group:
            rows = self._lane_rows("q", group.index)
            with code.loop(code.int(0), code.int(squares), lanes) as depth:
                found = [code.get(code.at(row, code.mul(depth.index, code.int(4))), self.lane_type) for row in rows]
                for step, column in enumerate(code.transpose(found)):
                    place = self._lane_place(self.qt, code.add(depth.index, code.int(step)), group.index)
                    code.put(code.fmul(column, scale), place, align=4 * lanes)
            with code.loop(code.int(squares), code.int(spec.D)) as depth:
                offset = code.mul(depth.index, self.arg["q_depth"])
                column = code.gathered([code.get(code.at(row, offset), F32) for row in rows])
                code.put(code.fmul(column, scale), self._lane_place(self.qt, depth.index, group.index), align=4 * lanes)

    def _lane_rows(self, which: str, first) -> list:
        """Where the rows of `lanes` lanes lie; a lane past the last row stands for the last row, and is never stored."""
        code, last = self.code, self.code.sub(self.rows, self.code.int(1))
        rows = [code.smaller_int(code.add(first, code.int(lane)), last) for lane in range(self.lanes)]
        return [code.at(getattr(self, which), code.mul(row, self.arg[f"{which}_row"])) for row in rows]

    def _lane_place(self, base, row, lane):
        return self.code.at(self._place(base, row, 0), self.code.mul(lane, self.code.int(4)))

    def _zero_output(self) -> None:
        code = self.code
        with code.loop(code.int(0), code.int(self.spec.E)) as depth:
            for number in range(self.vectors):
                self._put(self.o, depth.index, number, code.number(0.0, self.lane_type))

    def blocks(self, first_run, last_run) -> None:
        """The runs of the plan, cut at multiples of BLOCK; what falls into the same block is done together."""
        code = self.code

        def read(run):
            at = code.at(self._pointer("runs"), code.mul(run, code.int(12)))
            return [code.sext(code.get(code.at(at, 4 * part), I32, 4), I64) for part in range(3)]

        with code.when(code.icmp_signed("<", first_run, last_run)):
            first, last, mixed = read(first_run)
            carry = [first_run, first, last, mixed]
            with code.repeat(lambda run, *_: code.icmp_signed("<", run, last_run), carry) as taken:
                run, first, last, mixed = taken.carried
                border = code.mul(code.add(code.sdiv(first, code.int(BLOCK)), code.int(1)), code.int(BLOCK))

                def next_first(run):
                    """Where the following run begins; past every border if there is none."""
                    inside = code.icmp_signed("<", code.add(run, code.int(1)), last_run)
                    safe = code.select(inside, code.add(run, code.int(1)), run)
                    return code.select(inside, read(safe)[0], code.int(2**62))

                def joins(run, last, mixed):
                    ends_here = code.icmp_signed("<", last, border)
                    return code.and_(ends_here, code.icmp_signed("<", next_first(run), border))

                with code.repeat(joins, [run, last, mixed]) as joined:
                    following = code.add(joined.carried[0], code.int(1))
                    further = read(following)
                    # Unless both parts are full and touch, the mask decides.
                    touch = code.icmp_signed("==", further[0], joined.carried[1])
                    both = code.or_(joined.carried[2], further[2])
                    joined.carry(following, further[1], code.select(touch, both, code.int(1)))
                run, last, mixed = joined.result
                end = code.smaller_int(last, border)
                self.block(first, end, code.icmp_signed("!=", mixed, code.int(0)))
                used_up = code.icmp_signed("<=", last, border)
                following = code.add(run, code.int(1))
                exists = code.and_(used_up, code.icmp_signed("<", following, last_run))
                fresh = read(code.select(exists, following, run))
                taken.carry(
                    code.select(used_up, following, run),
                    code.select(used_up, fresh[0], end),
                    code.select(used_up, fresh[1], last),
                    code.select(used_up, fresh[2], mixed),
                )

    def block(self, first, end, mixed) -> None:
        """Keys first … end of one block: scores, running softmax, output."""
        code = self.code
        count = code.sub(end, first)
        self.run.begin_block()
        self._in_tiles(count, self.key_tile, lambda key, keys: self.multiply_keys(first, key, keys))
        if self.spec.mask or self.spec.score:
            if self.spec.score and self.spec.mask:
                with code.if_else(mixed) as (then, otherwise):
                    with then:
                        self.apply_rules(first, count, masked=True)
                    with otherwise:
                        self.apply_rules(first, count, masked=False)
            elif self.spec.score:
                self.apply_rules(first, count, masked=False)
            else:
                with code.when(mixed):
                    self.apply_rules(first, count, masked=True)
        self.run.raise_maximum()
        with code.if_else(self.careful) as (then, otherwise):
            with then:
                self.run.exponentiate(self.s, self.row_bytes, count, mark=True)
                self.add_values_carefully(first, count)
            with otherwise:
                self.run.exponentiate(self.s, self.row_bytes, count, mark=False)
                self._depth_tiles(lambda depth, depths: self.add_values(first, count, depth, depths))

    def _in_tiles(self, count, tile: int, body) -> None:
        """body(index, tile) over whole tiles, then body(index, 1) over the rest."""
        code = self.code
        whole = code.mul(code.sdiv(count, code.int(tile)), code.int(tile))
        with code.loop(code.int(0), whole, tile) as loop:
            body(loop.index, tile)
        if tile > 1:
            with code.loop(whole, count) as loop:
                body(loop.index, 1)

    def _depth_tiles(self, body) -> None:
        code, tile = self.code, self.depth_tile
        whole = self.spec.E // tile * tile
        if whole:
            with code.loop(code.int(0), code.int(whole), tile) as loop:
                body(loop.index, tile)
        if self.spec.E - whole:
            body(code.int(whole), self.spec.E - whole)

    def _get(self, base, row, number: int):
        return self.code.get(self._place(base, row, number), self.lane_type, align=4 * self.lanes)

    def _put(self, base, row, number: int, value) -> None:
        self.code.put(value, self._place(base, row, number), align=4 * self.lanes)

    def _place(self, base, row, number: int):
        code = self.code
        offset = code.mul(row, code.int(self.row_bytes))
        return code.at(base, code.add(offset, code.int(4 * self.lanes * number)))

    def _near(self, place, rows: int, number: int):
        """A vector a fixed number of rows and vectors from a place."""
        return self.code.get(self.code.at(place, rows * self.row_bytes + 4 * self.lanes * number), self.lane_type, 4 * self.lanes)

    def _column(self, row_pointer, depth, which: str):
        step = self.code.int(4) if self._unit(which) else self.arg[f"{which}_depth"]
        return self.code.at(row_pointer, self.code.mul(depth, step))

    def _element(self, place, steps: int, which: str):
        """The element of a key or value row some steps from a place, broadcast to all lanes."""
        code = self.code
        further = 4 * steps if self._unit(which) else code.mul(code.int(steps), self.arg[f"{which}_depth"])
        return code.splat(code.get(code.at(place, further), F32), self.lanes)

    def _unit(self, which: str) -> bool:
        return self.spec.unit[("q", "k", "v", "out").index(which)]

    def _row_pointer(self, which: str, row):
        code = self.code
        return code.at(getattr(self, which), code.mul(row, self.arg[f"{which}_row"]))

    def multiply_keys(self, first, key, keys: int) -> None:
        """Sᵀ[key … key+keys] = K · Qᵀ, each a chain over depth; the maximum of every lane on the way."""
        code, spec, vectors = self.code, self.spec, self.vectors
        rows = [self._row_pointer("k", code.add(first, code.add(key, code.int(step)))) for step in range(keys)]
        unroll = next(step for step in (4, 2, 1) if spec.D % step == 0)
        zero = code.number(0.0, self.lane_type)
        with code.loop(code.int(0), code.int(spec.D), unroll, [zero] * (keys * vectors)) as loop:
            sums = list(loop.carried)
            queries_at = self._place(self.qt, loop.index, 0)
            elements_at = [self._column(row, loop.index, "k") for row in rows]
            for step in range(unroll):
                queries = [self._near(queries_at, step, number) for number in range(vectors)]
                for row in range(keys):
                    element = self._element(elements_at[row], step, "k")
                    for number in range(vectors):
                        at = row * vectors + number
                        sums[at] = code.fma(element, queries[number], sums[at])
            loop.carry(*sums)
        for row in range(keys):
            for number in range(vectors):
                self._put(self.s, code.add(key, code.int(row)), number, loop.result[row * vectors + number])
        for number in range(vectors):
            self.run.see(number, [loop.result[row * vectors + number] for row in range(keys)])

    def apply_rules(self, first, count, masked: bool) -> None:
        """The score expression, then the mask, on every lane of the block; the maximum anew."""
        code, whole = self.code, self.mask_rule.whole
        self.run.begin_block()
        minus = code.number(-math.inf, self.lane_type)
        with code.loop(code.int(0), count) as loop:
            position = code.add(first, loop.index)
            key = position if whole == I64 else code.trunc(position, whole)
            shared: list[dict] = [{}, {}]  # what depends on the key alone is worked out once for all vectors
            for number, rules in enumerate(self.tile_rules):
                mask_rule, score_rule = (rule.scope(key=key) for rule in rules)
                for rule, known in zip((mask_rule, score_rule), shared, strict=True):
                    rule.values.update(known)
                s = self._get(self.s, loop.index, number)
                if self.score is not None:
                    known = set(score_rule.values)
                    score_rule.prepare(self.score)
                    shared[1].update(_uniform(score_rule.values, known))
                    s = self._new_score(score_rule, s)
                if masked and self.mask is not None:
                    known = set(mask_rule.values)
                    allowed = mask_rule.value(self.mask)
                    shared[0].update(_uniform(mask_rule.values, known))
                    s = code.select(code.splat(allowed, self.lanes), s, minus)
                self._put(self.s, loop.index, number, s)
                self.run.see(number, [s])

    def _new_score(self, rule: Emitter, s):
        """The user's expression of the scaled logit, in units of log 2."""
        code = self.code
        found = rule.scope(score=s).value(self.score)
        if found.type not in (F32, self.lane_type):  # an integer expression
            found = code.sitofp(found, vector(F32, found.type.count) if isinstance(found.type, ir.VectorType) else F32)
        found = code.splat(found, self.lanes)
        return code.fmul(found, code.number(LOG2E, found))

    def add_values(self, first, count, depth, depths: int) -> None:
        """Oᵀ[depth … depth+depths] = α Oᵀ + Σ over the block of V · P; the block is summed from 0, which rounds less."""
        code, vectors = self.code, self.vectors
        zero = code.number(0.0, self.lane_type)
        with code.loop(code.int(0), count, 1, [zero] * (depths * vectors)) as loop:
            weights_at = self._place(self.s, loop.index, 0)
            weights = [self._near(weights_at, 0, number) for number in range(vectors)]
            elements_at = self._column(self._row_pointer("v", code.add(first, loop.index)), depth, "v")
            sums = []
            for row in range(depths):
                element = self._element(elements_at, row, "v")
                sums += [code.fma(element, weights[n], loop.carried[row * vectors + n]) for n in range(vectors)]
            loop.carry(*sums)
        for row in range(depths):
            for number in range(vectors):
                self._add_to_output(code.add(depth, code.int(row)), number, loop.result[row * vectors + number])

    def add_values_carefully(self, first, count) -> None:
        """The same sums in the same order, without the products of removed keys (which are marked by -0)."""
        code, vectors = self.code, self.vectors
        zero = code.number(0.0, self.lane_type)
        with code.loop(code.int(0), code.int(self.spec.E)) as depth:
            with code.loop(code.int(0), count, 1, [zero] * vectors) as loop:
                row_pointer = self._row_pointer("v", code.add(first, loop.index))
                element = self._element(self._column(row_pointer, depth.index, "v"), 0, "v")
                sums = []
                for number in range(vectors):
                    weight, before = self._get(self.s, loop.index, number), loop.carried[number]
                    bits = code.as_bits(weight)
                    removed = code.icmp_unsigned("==", bits, code.whole(-(2**31), bits))
                    sums.append(code.select(removed, before, code.fma(element, weight, before)))
                loop.carry(*sums)
            for number in range(vectors):
                self._add_to_output(depth.index, number, loop.result[number])

    def _add_to_output(self, depth, number: int, total) -> None:
        kept = self._get(self.o, depth, number)
        self._put(self.o, depth, number, self.code.fma(kept, self.run.factor(number), total))

    def finish(self):
        """out = Oᵀ / l, lse; true if everything written is finite."""
        code, spec = self.code, self.spec
        self.run.add_sinks(self._pointer("sinks"), code.mul(self.h, self.arg["sink_count"]), self.arg["sink_count"])
        inverse = self.run.normalizers()
        zero = code.number(0.0, self.lane_type)
        with code.loop(code.int(0), code.int(spec.E), 1, [zero] * self.vectors) as depth:
            checks = []
            for number in range(self.vectors):
                value = code.fmul(self._get(self.o, depth.index, number), inverse[number])
                self._put(self.o, depth.index, number, value)
                checks.append(code.fma(value, zero, depth.carried[number]))  # 0, or NaN once a value is not finite
            depth.carry(*checks)
        self.store_output()
        first = code.add(code.mul(self.pair, self.arg["Q"]), self.row)
        self.run.store_lse(code.at(self._pointer("lse"), code.mul(first, code.int(4))), self.rows)
        total = depth.result[0]
        for check in depth.result[1:]:
            total = code.fadd(total, check)
        finite = code.fcmp_ordered("==", total, zero)
        if self.lanes == 1:
            return finite
        bits = code.bitcast(finite, ir.IntType(self.lanes))
        return code.icmp_unsigned("==", bits, ir.Constant(ir.IntType(self.lanes), -1))


    def store_output(self) -> None:
        """Oᵀ back to rows: squares of lanes x lanes where all lanes have a row, single elements for the rest."""
        code, spec, lanes = self.code, self.spec, self.lanes
        squares = spec.E // lanes * lanes if spec.unit[3] else 0
        with code.loop(code.int(0), self.rows, lanes) as group:
            full = code.icmp_signed("<=", code.add(group.index, code.int(lanes)), self.rows)
            done = code.select(full, code.int(squares), code.int(0))
            rows = self._lane_rows("out", group.index)
            with code.loop(code.int(0), done, lanes) as depth:
                columns = []
                for step in range(lanes):
                    place = self._lane_place(self.o, code.add(depth.index, code.int(step)), group.index)
                    columns.append(code.get(place, self.lane_type, align=4 * lanes))
                for row, value in zip(rows, code.transpose(columns), strict=True):
                    code.put(value, code.at(row, code.mul(depth.index, code.int(4))))
            end = code.smaller_int(code.add(group.index, code.int(lanes)), self.rows)
            with code.loop(group.index, end) as row:
                target = code.at(self.out, code.mul(row.index, self.arg["out_row"]))
                with code.loop(done, code.int(spec.E)) as depth:
                    value = code.get(self._lane_place(self.o, depth.index, row.index), F32, 4)
                    code.put(value, code.at(target, code.mul(depth.index, self.arg["out_depth"])))


def _uniform(values: dict, known: set) -> dict:
    """Newly computed scalars: the same for every vector of the tile."""
    return {name: value for name, value in values.items() if name not in known and not isinstance(value.type, ir.VectorType)}
