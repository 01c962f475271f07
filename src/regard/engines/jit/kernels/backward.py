"""The backward kernel: gradients of q, k, v and of tables, without storing the matrix; the scores are recomputed.

    dV = Pᵀ dO      dP = dO Vᵀ      dS = P ∘ (dP + rest) ∘ ∂s'/∂s      dQ = scale · dS K      dK = scale · dSᵀ Q

A task is a tile of keys of one key head; it accumulates dK and dV over the tiles of queries that visit it. Lanes are
queries:

    Sᵀ[key][lane]   =  K · Qᵀ        dPᵀ[key][lane] = V · dOᵀ        P and dS, element by element (backward_tile.py)
    dV[key][depth] +=  P · dO        dK[key][depth] += dS · Q        dQᵀ[depth][lane] += Kᵀ · dSᵀ

dQ is shared by the tasks of a head: it is float32 (float64) in working memory, and the tasks add to a tile of it in the
order of their keys, each waiting until earlier tasks are past that tile (ordered_adds.py). So the order of every sum is
deterministic, independent of the threads.

The kernel runs three times, in phases: `rows` computes rest = dlse - Σ dO · O and the softmax statistics of each query,
`keys` computes the gradients, and `queries` writes dQ to the caller's array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from ..code.arguments import Block
from ..code.formats import LOST, Format
from ..code.ir import I64, Code
from ..code.target import Target
from .parts.backward_tile import Expressions, Pullback
from .parts.dropout import Dropout
from .parts.ordered_adds import OrderedAdds
from .parts.plan_by_key import KeySpan, visited_keys
from .parts.scratch_product import CHAIN, GRAIN, Matrix, Multiplier
from .parts.staging import Staging
from .parts.tasks import begun, each_task

__all__ = ["ARRAYS", "KEYS", "PHASES", "Specification", "fixed_slots", "padded", "scratch_bytes", "write"]

KEYS = 128  # in a task's tile
PHASES = ("rows", "keys", "queries")
ARRAYS = ("q", "k", "v", "out", "dout", "dq", "dk", "dv")
FIXED = (
    "next", "tasks", "phase",
    *(f"{array}{part}" for array in ARRAYS for part in ("", "_batch", "_head", "_row", "_depth")),
    "top", "total", "lost", "dlse", "rest", "softmax", "work",
    "H", "group", "groups", "G", "Q", "K", "scale", "score_factor", "exponent", "start",
    "offsets", "runs", "tile_ranges", "key_tiles", "tiles", "plan_batch", "plan_head",
    "progress", "finished", "flushed", "gathered", "copies", "numbers", "ring",
    "dropout_seed", "dropout_threshold", "dropout_scale", "dropout_batch", "dropout_head",
)  # fmt: skip


@dataclass(frozen=True)
class Specification:
    """The compile-time parameters of a kernel. Everything else is an argument."""

    shape: tuple  # of the expressions (`emit.signature`)
    D: int
    E: int
    dtype: str
    rows: int  # W, a multiple of the vector's lanes
    wide: bool  # integers need 64 bits
    unit: tuple[bool, ...]  # which of ARRAYS have a contiguous depth axis
    dropout: bool
    # The tables that need a gradient: their numbers, and whether tasks add to the gradients directly.
    tables: tuple[tuple[int, bool], ...]


def fixed_slots(spec: Specification) -> tuple[str, ...]:
    """The names of the kernel's slots: `FIXED`, and per table with a gradient the address and row stride of that."""
    return FIXED + tuple(f"{part}{number}" for number, _ in spec.tables for part in ("gradient", "width"))


def regions(spec: Specification, form: Format) -> dict[str, tuple[int, int]]:
    """The matrices of a thread's working memory: rows, and bytes of a row. Names that end in `t` are transposed; those
    in `p` have pairs of rows interleaved.
    """
    D, E, W, size, step = (
        *(padded(depth, form) for depth in (spec.D, spec.E)),
        spec.rows,
        form.size,
        2 if form.pairs else 1,
    )
    narrow = size // step
    found = {
        "k": (KEYS, D * narrow),
        "v": (KEYS, E * narrow),
        "q": (W, D * narrow),
        "dout": (W, E * narrow),
        "qt": (D // step, W * size),
        "doutt": (E // step, W * size),
        "s": (KEYS, W * size),
        "ds": (KEYS, W * size),
        "dk": (KEYS, D * size),
        "dv": (KEYS, E * size),
        "out": (W, E * size),
        "room": (1, 1024),
        "bits": (KEYS if spec.dropout else 0, W),
    }
    if form.pairs:
        found |= {
            "kp": (KEYS // 2, D * size),
            "qp": (W // 2, D * size),
            "doutp": (W // 2, E * size),
            "weights": (KEYS, W * narrow),
            "slopes": (KEYS, W * narrow),
            "slopesp": (KEYS // 2, W * size),
        }
    return found


def padded(depth: int, form: Format) -> int:
    """The depth padded to a multiple of the register tiles, as in working memory."""
    grain = 2 * GRAIN if form.pairs else GRAIN
    return -(-depth // grain) * grain


def scratch_bytes(spec: Specification, form: Format) -> int:
    """Working memory of one thread."""
    return sum(rows * row for rows, row in regions(spec, form).values())


def write(spec: Specification, target: Target, expressions: Expressions) -> ir.Module:
    """The kernel `backward(arguments, scratch, budget)` for a specification; the expressions must have its shape."""
    module, code, arguments = begun("backward")
    kernel = _Backward(code, spec, target, arguments, expressions)
    with each_task(code, kernel.arg, arguments[2]) as number:
        kernel.task(number)
    code.ret_void()
    return module


class RowTile(NamedTuple):
    """A tile of query rows: batch entry, head, both as one number (`pair`), the first row, and the number of rows."""

    b: ir.Value
    h: ir.Value
    pair: ir.Value
    first: ir.Value
    count: ir.Value


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
        self.adds = OrderedAdds(code, arg, target)
        self.scale = arg.factor("scale", tools.type)
        dropout = None
        if spec.dropout:
            dropout = Dropout(code, target, arg, tools.type, self.vectors, self.room["bits"].base)
        self.pullback = Pullback(
            code,
            tools,
            arg,
            expressions,
            vectors=self.vectors,
            wide=spec.wide,
            room=self.room["room"].base,
            dropout=dropout,
        )
        self.tables = dict(enumerate(expressions.tables))
        self.mask = expressions.mask

    def task(self, number) -> None:
        """One task of the current phase."""
        for at, name in enumerate(PHASES):
            with self.code.when(self.code.icmp_signed("==", self.arg["phase"], self.code.index(at))):
                getattr(self, name)(number)

    # places -----------------------------------------------------------------------------------------------------------

    def _row(self, name: str, b, head, row):
        """The address of a row of one of the caller's arrays."""
        code, offset = self.code, self.code.index(0)
        for part, number in (("_batch", b), ("_head", head), ("_row", row)):
            offset = code.add(offset, code.mul(number, self.arg[name + part]))
        return code.at(self.arg.address(name), offset)

    def _place(self, name: str, number, count: int):
        """The address of entry `number` in an array of `count` elements per entry."""
        return self.code.at(self.arg.address(name), self.code.mul(number, self.code.index(count * self.size)))

    def _tile(self, number) -> RowTile:
        """The tile of rows of a task."""
        code, arg = self.code, self.arg
        pair, tile = code.sdiv(number, arg["tiles"]), code.srem(number, arg["tiles"])
        first = code.mul(tile, code.index(self.spec.rows))
        count = code.smaller_int(code.sub(arg["Q"], first), code.index(self.spec.rows))
        return RowTile(code.sdiv(pair, arg["H"]), code.srem(pair, arg["H"]), pair, first, count)

    # phases -----------------------------------------------------------------------------------------------------------

    def rows(self, number) -> None:
        """Per row of a tile: the maximum that is subtracted from its scores, the inverse of its total, and rest."""
        code, arg, spec, staging = self.code, self.arg, self.spec, self.staging
        b, h, pair, first, count = self._tile(number)
        parts = self.room["out"], self.room["dv"]
        for name, into in zip(("out", "dout"), parts, strict=True):
            at = self._row(name, b, h, first)
            staging.load(name, at, count, depth=spec.E, into=into, rows=spec.rows, padded=self.E)
        if not self.form.wide:
            with code.when(code.icmp_signed("!=", arg["lost"], code.index(0))):
                width = spec.E * LOST
                before = code.add(code.mul(pair, arg["Q"]), first)
                at = code.at(arg.address("lost"), code.mul(before, code.index(width)))
                staging.add_lost(at, count, spec.E, parts[0])
        found = self._place("softmax", number, 3 * spec.rows)
        zero, one = code.number(0.0, self.real), code.number(1.0, self.real)
        with code.loop(code.index(0), code.index(spec.rows)) as row:
            exists = code.icmp_signed("<", row.index, count)
            at = code.select(exists, code.add(code.mul(pair, self.arg["Q"]), code.add(first, row.index)), code.index(0))
            top, total, dlse = (
                code.get(self._place(name, at, 1), self.real, self.size) for name in ("top", "total", "dlse")
            )
            nothing = code.fcmp_ordered("==", top, code.number(float("-inf"), top))
            empty = code.or_(code.fcmp_ordered("==", total, zero), code.not_(exists))
            delta = staging.dot(*parts, row.index, self.E)
            rest = code.fsub(dlse, delta)
            values = (
                code.select(nothing, zero, top),
                code.select(empty, zero, code.fdiv(one, total)),
                code.select(exists, rest, zero),
            )
            for step, value in enumerate(values):
                place = code.at(
                    found, code.mul(code.add(row.index, code.index(step * spec.rows)), code.index(self.size))
                )
                code.put(value, place, self.size)
            with code.when(exists):
                code.put(rest, self._place("rest", at, 1), self.size)

    def queries(self, number) -> None:
        """Writes a tile of dQᵀ to rows of dq."""
        spec = self.spec
        tile = self._tile(number)
        work = Matrix(self._place("work", number, self.D * spec.rows), spec.rows * self.size)
        self.staging.transpose(work, self.room["dk"], self.D, spec.rows)
        at = self._row("dq", tile.b, tile.h, tile.first)
        self.staging.store("dq", at, self.room["dk"], tile.count, spec.D, self.scale)

    def keys(self, number) -> None:
        """A tile of keys, and all tiles of queries that visit it."""
        code, arg, spec, staging = self.code, self.arg, self.spec, self.staging
        unit, pair = code.sdiv(number, arg["groups"]), code.srem(number, arg["groups"])
        b, g = code.sdiv(pair, arg["G"]), code.srem(pair, arg["G"])
        first = code.mul(unit, code.index(KEYS))
        count = code.smaller_int(code.sub(arg["K"], first), code.index(KEYS))
        whole = []
        for name, depth, width in (("k", spec.D, self.D), ("v", spec.E, self.E)):
            at, room = self._row(name, b, g, first), self.room[name]
            staging.load(name, at, count, depth=depth, into=room, rows=KEYS, padded=width, narrow=self.form.pairs)
            whole.append(staging.finite(self.room[name], KEYS, width // self.step))
            staging.clear(self.room[f"d{name}"], KEYS, width)
        if self.form.pairs:
            staging.pair_up(self.room["k"], self.room["kp"], code.index(0), code.index(KEYS), self.D)
        self.finite_keys = code.and_(*whole)
        self._set_gradients(number)
        self.adds.enter(number, unit, pair)
        group = code.add(code.mul(b, arg["plan_batch"]), code.mul(code.mul(g, arg["group"]), arg["plan_head"]))
        with code.loop(code.index(0), arg["group"], 1, [arg["tiles"], code.index(0)]) as head:
            at = code.add(group, code.mul(head.index, arg["plan_head"]))
            found = code.at(
                arg.address("tile_ranges"), code.mul(code.add(code.mul(at, arg["key_tiles"]), unit), code.index(16))
            )
            begin, end = code.get(found, I64, 8), code.get(code.at(found, 8), I64, 8)
            head.carry(code.smaller_int(head.carried[0], begin), code.larger_int(head.carried[1], end))
        with code.loop(*head.result) as tile:
            self.adds.reach(tile.index)
            with code.loop(code.index(0), arg["group"]) as head:
                at = code.add(group, code.mul(head.index, arg["plan_head"]))
                keys = visited_keys(code, arg, at, tile.index, first, code.add(first, count))
                with code.when(code.icmp_signed("<", keys.first, keys.last)):
                    h = code.add(code.mul(g, arg["group"]), head.index)
                    self.visit(b, h, tile.index, first, keys)
        for name, depth, factor in (("dk", spec.D, self.scale), ("dv", spec.E, None)):
            staging.store(name, self._row(name, b, g, first), self.room[name], count, depth, factor)
        self.adds.leave(number)

    def _set_gradients(self, number) -> None:
        """Sets where the gradients of tables are summed: in place, or in the copy of this task."""
        code, arg = self.code, self.arg
        copy = self.adds.clear_copy(number)
        for table, direct in self.spec.tables:
            base = arg.address(f"gradient{table}") if direct else code.at(copy, arg[f"gradient{table}"])
            self.pullback.gradients[id(self.tables[table])] = base

    # a visit ----------------------------------------------------------------------------------------------------------

    def visit(self, b, h, tile, base, keys: KeySpan) -> None:
        """One tile of queries with those keys of the task's tile that it visits; base: the first key of that tile."""
        code, arg, spec, room, multiply = self.code, self.arg, self.spec, self.room, self.multiply
        W, step, pairs, zero = spec.rows, self.step, self.form.pairs, code.index(0)
        row = code.mul(tile, code.index(W))
        count = code.smaller_int(code.sub(arg["Q"], row), code.index(W))
        number = code.add(code.mul(code.add(code.mul(b, arg["H"]), h), arg["tiles"]), tile)
        finite = self.finite_keys
        for name, depth, width in (("q", spec.D, self.D), ("dout", spec.E, self.E)):
            at, into = self._row(name, b, h, row), room[name]
            self.staging.load(name, at, count, depth=depth, into=into, rows=W, padded=width, narrow=pairs)
            self.staging.transpose(room[name], room[f"{name}t"], W, width // step)
            if pairs:
                self.staging.pair_up(room[name], room[f"{name}p"], zero, code.index(W), width)
            finite = code.and_(finite, self.staging.finite(room[name], W, width // step))
        first, last = code.sub(keys.first, base), code.sub(keys.last, base)
        end = code.and_(code.add(last, code.index(GRAIN - 1)), code.index(-GRAIN))
        # The rounding of bfloat16 is so coarse that the error of long chains is negligible.
        chain = None if pairs else CHAIN
        terms = zero, code.index(self.D // step)
        multiply(room["s"], room["k"], room["qt"], W, (first, end), terms, overwrite=True, chain=chain)
        terms = zero, code.index(self.E // step)
        multiply(room["ds"], room["v"], room["doutt"], W, (first, end), terms, overwrite=True, chain=chain)
        start = code.get(code.at(arg.address("start"), code.mul(b, code.index(8))), I64, 8)
        self.adds.wait_for_heads(tile, any(direct for _, direct in spec.tables))
        self.pullback.open(b, h, code.add(start, row), count)
        softmax = Matrix(self._place("softmax", number, 3 * W), W * self.size)
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
        work = Matrix(self._place("work", number, self.D * W), W * self.size)
        with code.if_else(finite) as (then, otherwise):
            for branch, careful in ((then, False), (otherwise, True)):
                with branch:
                    self._gather(work, tile, p, ds, (first, end), careful)

    def _gather(self, work: Matrix, tile, p: Matrix, ds: Matrix, keys, careful: bool) -> None:
        """Adds a visit to dV, dK and dQ. careful: omits the products of masked pairs, because 0 · NaN is NaN."""
        code, room, multiply, step, pairs = self.code, self.room, self.multiply, self.step, self.form.pairs
        queries = code.index(0), code.index(self.spec.rows // step)
        # The smallest tile is one chain, so that results do not depend on the number of rows of a tile.
        chain, by_key, by_lane = 2 * self.lanes // step, "a" if careful else "", "b" if careful else ""
        multiply(room["dv"], p, room["doutp" if pairs else "dout"], self.E, keys, queries, chain=chain, marked=by_key)
        multiply(room["dk"], ds, room["qp" if pairs else "q"], self.D, keys, queries, chain=chain, marked=by_key)
        self.adds.wait(tile)
        terms = tuple(code.ashr(end, code.index(1)) for end in keys) if pairs else keys
        multiply(
            work,
            room["kp" if pairs else "k"],
            room["slopesp"] if pairs else ds,
            self.spec.rows,
            (code.index(0), code.index(self.D)),
            terms,
            transposed=True,
            chain=None,
            marked=by_lane,
        )
