"""The backward kernel: gradients of q, k, v and of tables, without the matrix; the scores are computed once more.

    dV = Pᵀ dO      dP = dO Vᵀ      dS = P ∘ (dP + rest) ∘ ∂s'/∂s      dQ = scale · dS K      dK = scale · dSᵀ Q

A task is a tile of keys of one key head; it holds dK and dV and walks over the tiles of queries that visit it. Lanes are queries:

    Sᵀ[key][lane]   =  K · Qᵀ        dPᵀ[key][lane] = V · dOᵀ        P and dS, element by element (pullback.py)
    dV[key][depth] +=  P · dO        dK[key][depth] += dS · Q        dQᵀ[depth][lane] += Kᵀ · dSᵀ

dQ is shared between the tasks of a head: float32 (float64) in working memory, and the tasks add to a tile of it in the order of
their keys, each waiting until those before it are past that tile (turns.py). So every sum has one order, whatever the threads do.

The kernel runs three times, in phases: `rows` prepares per query rest = dlse - Σ dO · O and its softmax, `keys` is the work,
and `queries` turns dQ into the caller's rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from ..expr import Const, Expr, Table
from .arguments import Block
from .dropout import Dropout
from .formats import Format
from .ir import I64, PTR, Code
from .multiply import GRAIN, Matrix, Multiplier
from .pullback import Pullback
from .staging import Staging
from .target import Target
from .turns import Turns
from .visitors import meeting

__all__ = ["ARRAYS", "KEYS", "PHASES", "Specification", "fixed_slots", "scratch_bytes", "write"]

KEYS = 128  # in a task's tile
PHASES = ("rows", "keys", "queries")
ARRAYS = ("q", "k", "v", "out", "dout", "dq", "dk", "dv")
FIXED = (
    "next", "tasks", "phase",
    *(f"{array}{part}" for array in ARRAYS for part in ("", "_batch", "_head", "_row", "_depth")),
    "top", "total", "dlse", "rest", "softmax", "work",
    "H", "group", "groups", "G", "Q", "K", "scale", "score_factor", "exponent", "start",
    "offsets", "runs", "visitors", "key_tiles", "tiles", "plan_batch", "plan_head",
    "progress", "finished", "flushed", "gathered", "copies", "numbers", "ring",
    "dropout_seed", "dropout_threshold", "dropout_scale",
)  # fmt: skip


@dataclass(frozen=True)
class Specification:
    """What a kernel is specialised to. Everything else is an argument."""

    shape: tuple  # of the expressions (`emit.signature`)
    D: int
    E: int
    dtype: str
    rows: int  # W, a multiple of the vector's lanes
    wide: bool  # integers need 64 bits
    unit: tuple[bool, ...]  # which of ARRAYS lie with depth contiguous
    dropout: bool
    tables: tuple[tuple[int, bool], ...]  # whose gradients are wanted: their numbers, and whether tasks add to them directly


def fixed_slots(spec: Specification) -> tuple[str, ...]:
    """The names of the kernel's own slots: `FIXED`, and per wanted table where its gradient begins."""
    return FIXED + tuple(f"gradient{number}" for number, _ in spec.tables)


def _padded(size: int) -> int:
    return -(-size // GRAIN) * GRAIN


def _regions(spec: Specification, size: int) -> dict[str, tuple[int, int]]:
    """The matrices of a thread's working memory: rows and columns."""
    D, E, W = _padded(spec.D), _padded(spec.E), spec.rows
    return {
        "k": (KEYS, D), "v": (KEYS, E), "dk": (KEYS, D), "dv": (KEYS, E), "q": (W, D), "dout": (W, E), "qt": (D, W),
        "doutt": (E, W), "s": (KEYS, W), "ds": (KEYS, W), "out": (W, E), "room": (1, 1024 // size),
        "bits": (KEYS if spec.dropout else 0, W // size),
    }  # fmt: skip


def scratch_bytes(spec: Specification, size: int) -> int:
    """Working memory of one thread."""
    return sum(rows * columns * size for rows, columns in _regions(spec, size).values())


def write(spec: Specification, target: Target, mask: Expr | None, score: Expr | None, partials: dict[Expr, Expr],
          constants: list[Const], tables: list[Table]) -> ir.Module:  # fmt: skip
    """The kernel `backward(arguments, scratch, budget)` for a specification; the expressions must have its shape."""
    module = ir.Module("regard")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64]), "backward")
    function.attributes.add("nounwind")
    for argument in function.args[:2]:
        argument.add_attribute("noalias")
    code = Code(function.append_basic_block("entry"))
    _Backward(code, spec, target, function.args, mask, score, partials, constants, tables).tasks(function.args[2])
    code.ret_void()
    return module


class _Backward:
    """The loop nest, from the outside in."""

    def __init__(self, code: Code, spec: Specification, target: Target, args, mask, score, partials, constants, tables):
        self.code, self.spec = code, spec
        form = Format(spec.dtype, target)
        self.real, self.size = form.real, form.size
        self.arg = arg = Block(code, args[0], constants, tables, spec.wide, fixed_slots(spec))
        self.multiply = tools = Multiplier(code, target, self.real, self.size)
        self.lanes, self.vectors = tools.lanes, spec.rows // tools.lanes
        self.room, offset = {}, 0
        for name, (rows, columns) in _regions(spec, self.size).items():
            self.room[name] = Matrix(code.at(args[1], offset), columns * self.size)
            offset += rows * columns * self.size
        self.staging = Staging(code, tools, form, arg, dict(zip(ARRAYS, spec.unit, strict=True)))
        self.turns = Turns(code, arg, target)
        self.scale = arg.factor("scale", tools.type)
        dropout = None
        if spec.dropout:
            dropout = Dropout(code, target, arg, tools.type, self.vectors, self.room["bits"].base)
        self.pullback = Pullback(code, tools, self.vectors, arg, mask, score, partials, constants, tables, spec.wide,
                                 self.room["room"].base, dropout)  # fmt: skip
        self.tables = dict(enumerate(tables))
        self.mask = mask

    def tasks(self, budget) -> None:
        """Tasks are taken from a shared counter until none is left, or the budget is used up."""
        code, counter = self.code, self.arg.address("next")

        def take(left):
            # With nothing left in the budget nothing is taken: what is taken must be done.
            one = code.select(code.icmp_signed(">", left, code.index(0)), code.index(1), code.index(0))
            return code.atomic_rmw("add", counter, one, "monotonic")

        def goes_on(number, left):
            return code.and_(code.icmp_signed("<", number, self.arg["tasks"]), code.icmp_signed(">", left, code.index(0)))

        with code.repeat(goes_on, [take(budget), budget]) as taken:
            number, left = taken.carried
            for at, name in enumerate(PHASES):
                with code.when(code.icmp_signed("==", self.arg["phase"], code.index(at))):
                    getattr(self, name)(number)
            left = code.sub(left, code.index(1))
            taken.carry(take(left), left)

    # places ---------------------------------------------------------------------------------------------------------------------

    def _row(self, name: str, b, head, row):
        """The address of a row of one of the caller's arrays."""
        code, offset = self.code, self.code.index(0)
        for part, number in (("_batch", b), ("_head", head), ("_row", row)):
            offset = code.add(offset, code.mul(number, self.arg[name + part]))
        return code.at(self.arg.address(name), offset)

    def _place(self, name: str, number, count: int, size: int | None = None):
        """The address of what belongs to a number, in an array of `count` elements each."""
        return self.code.at(self.arg.address(name), self.code.mul(number, self.code.index(count * (size or self.size))))

    def _tile(self, number):
        """A task of rows: its batch entry and head, the pair of them as a number, its first row and how many rows it has."""
        code, arg = self.code, self.arg
        pair, tile = code.sdiv(number, arg["tiles"]), code.srem(number, arg["tiles"])
        first = code.mul(tile, code.index(self.spec.rows))
        count = code.smaller_int(code.sub(arg["Q"], first), code.index(self.spec.rows))
        return code.sdiv(pair, arg["H"]), code.srem(pair, arg["H"]), pair, first, count

    # phases ---------------------------------------------------------------------------------------------------------------------

    def rows(self, number) -> None:
        """Per row of a tile: the shift that its scores are taken from, the inverse of its total, and rest."""
        code, spec, staging = self.code, self.spec, self.staging
        b, h, pair, first, count = self._tile(number)
        for name in ("out", "dout"):
            staging.load(name, self._row(name, b, h, first), count, spec.E, self.room[name], spec.rows)
        found = self._place("softmax", number, 3 * spec.rows)
        zero, one = code.number(0.0, self.real), code.number(1.0, self.real)
        with code.loop(code.index(0), code.index(spec.rows)) as row:
            exists = code.icmp_signed("<", row.index, count)
            at = code.select(exists, code.add(code.mul(pair, self.arg["Q"]), code.add(first, row.index)), code.index(0))
            top, total, dlse = (code.get(self._place(name, at, 1), self.real, self.size) for name in ("top", "total", "dlse"))
            nothing = code.fcmp_ordered("==", top, code.number(float("-inf"), top))
            empty = code.or_(code.fcmp_ordered("==", total, zero), code.not_(exists))
            delta = staging.dot(self.room["out"], self.room["dout"], row.index, _padded(spec.E))
            rest = code.fsub(dlse, delta)
            values = (code.select(nothing, zero, top), code.select(empty, zero, code.fdiv(one, total)),
                      code.select(exists, rest, zero))  # fmt: skip
            for step, value in enumerate(values):
                place = code.at(found, code.mul(code.add(row.index, code.index(step * spec.rows)), code.index(self.size)))
                code.put(value, place, self.size)
            with code.when(exists):
                code.put(rest, self._place("rest", at, 1), self.size)

    def queries(self, number) -> None:
        """A tile of dQᵀ becomes rows of dq."""
        spec = self.spec
        b, h, _, first, count = self._tile(number)
        work = Matrix(self._place("work", number, _padded(spec.D) * spec.rows), spec.rows * self.size)
        self.staging.transpose(work, self.room["q"], _padded(spec.D), spec.rows)
        self.staging.store("dq", self._row("dq", b, h, first), self.room["q"], count, spec.D, self.scale)

    def keys(self, number) -> None:
        """A tile of keys, and all tiles of queries that visit it."""
        code, arg, spec, staging = self.code, self.arg, self.spec, self.staging
        unit, pair = code.sdiv(number, arg["groups"]), code.srem(number, arg["groups"])
        b, g = code.sdiv(pair, arg["G"]), code.srem(pair, arg["G"])
        first = code.mul(unit, code.index(KEYS))
        count = code.smaller_int(code.sub(arg["K"], first), code.index(KEYS))
        whole = []
        for name, depth in (("k", spec.D), ("v", spec.E)):
            staging.load(name, self._row(name, b, g, first), count, depth, self.room[name], KEYS)
            whole.append(staging.finite(self.room[name], KEYS, _padded(depth)))
            staging.clear(self.room[f"d{name}"], KEYS, _padded(depth))
        self.finite_keys = code.and_(*whole)
        self._find_gradients(number)
        self.turns.enter(number, unit, pair)
        group = code.add(code.mul(b, arg["plan_batch"]), code.mul(code.mul(g, arg["group"]), arg["plan_head"]))
        with code.loop(code.index(0), arg["group"], 1, [arg["tiles"], code.index(0)]) as head:
            at = code.add(group, code.mul(head.index, arg["plan_head"]))
            found = code.at(arg.address("visitors"), code.mul(code.add(code.mul(at, arg["key_tiles"]), unit), code.index(16)))
            begin, end = code.get(found, I64, 8), code.get(code.at(found, 8), I64, 8)
            head.carry(code.smaller_int(head.carried[0], begin), code.larger_int(head.carried[1], end))
        with code.loop(*head.result) as tile:
            self.turns.reach(tile.index)
            with code.loop(code.index(0), arg["group"]) as head:
                at = code.add(group, code.mul(head.index, arg["plan_head"]))
                keys = meeting(code, arg, at, tile.index, first, code.add(first, count))
                with code.when(code.icmp_signed("<", keys[0], keys[1])):
                    h = code.add(code.mul(g, arg["group"]), head.index)
                    self.visit(b, h, tile.index, first, *keys)
        for name, depth, factor in (("dk", spec.D, self.scale), ("dv", spec.E, None)):
            staging.store(name, self._row(name, b, g, first), self.room[name], count, depth, factor)
        self.turns.leave(number)

    def _find_gradients(self, number) -> None:
        """Where the gradients of tables are summed: in place, or in this task's own copy."""
        code, arg = self.code, self.arg
        copy = self.turns.clear_copy(number)
        for table, direct in self.spec.tables:
            base = arg.address(f"gradient{table}") if direct else code.at(copy, arg[f"gradient{table}"])
            self.pullback.gradients[id(self.tables[table])] = base

    # a visit --------------------------------------------------------------------------------------------------------------------

    def visit(self, b, h, tile, base, first, last, mixed) -> None:
        """A tile of queries meets keys first … last of the task's tile, which begins at key `base`."""
        code, arg, spec, room, multiply = self.code, self.arg, self.spec, self.room, self.multiply
        D, E, W, zero = _padded(spec.D), _padded(spec.E), spec.rows, code.index(0)
        row = code.mul(tile, code.index(W))
        count = code.smaller_int(code.sub(arg["Q"], row), code.index(W))
        number = code.add(code.mul(code.add(code.mul(b, arg["H"]), h), arg["tiles"]), tile)
        whole = [self.finite_keys]
        for name, depth in (("q", spec.D), ("dout", spec.E)):
            self.staging.load(name, self._row(name, b, h, row), count, depth, room[name], W)
            whole.append(self.staging.transpose(room[name], room[f"{name}t"], W, _padded(depth)))
        finite = code.and_(code.and_(*whole[:2]), whole[2])
        first, last = code.sub(first, base), code.sub(last, base)
        keys = first, code.and_(code.add(last, code.index(GRAIN - 1)), code.index(-GRAIN))
        multiply(room["s"], room["k"], room["qt"], W, keys, (zero, code.index(D)), anew=True)
        multiply(room["ds"], room["v"], room["doutt"], W, keys, (zero, code.index(E)), anew=True)
        start = code.get(code.at(arg.address("start"), code.mul(b, code.index(8))), I64, 8)
        self.turns.wait_for_heads(tile, any(direct for _, direct in spec.tables))
        self.pullback.open(b, h, code.add(start, row), count)
        softmax = Matrix(self._place("softmax", number, 3 * W), W * self.size)
        if self.mask is None:
            self.pullback.apply(room["s"], room["ds"], softmax, base, first, last, masked=False)
        else:
            with code.if_else(mixed) as (then, otherwise):
                with then:
                    self.pullback.apply(room["s"], room["ds"], softmax, base, first, last, masked=True)
                with otherwise:
                    self.pullback.apply(room["s"], room["ds"], softmax, base, first, last, masked=False)
        work = Matrix(self._place("work", number, D * W), W * self.size)
        with code.if_else(finite) as (then, otherwise):
            with then:
                self._gather(work, tile, keys, (first, last), count, careful=False)
            with otherwise:
                self._gather(work, tile, keys, (first, last), count, careful=True)

    def _gather(self, work: Matrix, tile, rows, keys, count, careful: bool) -> None:
        """dV, dK and dQ take in a visit. careful: without the products of removed pairs, because 0 · NaN is NaN."""
        code, room, multiply = self.code, self.room, self.multiply
        D, E, W, queries = _padded(self.spec.D), _padded(self.spec.E), self.spec.rows, (code.index(0), count)

        def by_key(row, term, column):
            return self._removed(code.get(multiply.place(room["s"], row, term), self.real, self.size))

        def by_lane(row, term, column):
            return self._removed(multiply.get(multiply.place(room["s"], term, column), 0))

        multiply(room["dv"], room["s"], room["dout"], E, rows, queries, removed=by_key if careful else None)
        multiply(room["dk"], room["ds"], room["q"], D, rows, queries, removed=by_key if careful else None)
        self.turns.wait(tile)
        multiply(work, room["k"], room["ds"], W, (code.index(0), code.index(D)), keys, turned=True, chain=None,
                 removed=by_lane if careful else None)  # fmt: skip

    def _removed(self, weight):
        """Whether a weight is the -0 of a removed pair."""
        bits = self.code.as_bits(weight)
        return self.code.icmp_unsigned("==", bits, self.code.whole(-(2 ** (8 * self.size - 1)), bits))
