"""Gradients of tables to which tasks cannot add directly, because an entry belongs to many rows and keys: float64.

A task sums a block of query positions in its own copy, and adds that to the sum of the block after all earlier tasks;
the sums of the blocks are merged by the caller. Only the span of entries that was added to is moved, so that the time
does not grow with the table. A task ends after all earlier tasks have passed every block, so a copy is free again when
the task that has the same one begins, if there are as many copies as threads.
"""

from __future__ import annotations

import itertools

from llvmlite import ir

from ...code.arguments import Block
from ...code.ir import F64, I32, I64, Code
from ...code.target import Target
from ..parts.tasks import END, merge_complete
from .products import UNROLL, Matrix, Multiplier

DONE = 2**62  # the progress of a finished task
PATIENCE = 1023  # polls after which another thread may run


class OrderedAdds:
    """The slots that it uses: progress: per key head and tile of keys, the turn of its task. finished: per key head, a
    lower bound of the number of leading tiles of keys that are done.
    """

    def __init__(self, code: Code, arg: Block, target: Target):
        self.code, self.arg = code, arg
        self.x86 = target.triple.startswith(("x86_64", "i686"))

    def _progress(self, pair, unit):
        code = self.code
        at = code.add(code.mul(pair, self.arg["key_tiles"]), unit)
        return self.arg.at("progress", at, 8)

    def until(self, place, sign: str, value) -> None:
        """Waits until the number at an address satisfies the comparison with the value."""
        code = self.code
        opposite = {">": "<=", "==": "!="}[sign]

        def unsatisfied(_):
            return code.icmp_signed(opposite, code.load_atomic(place, "acquire", 8, typ=I64), value)

        with code.repeat(unsatisfied, [1]) as poll:
            if self.x86:
                code.external("llvm.x86.sse2.pause", ir.VoidType())
            yields = code.icmp_signed("==", code.and_(poll.carried[0], PATIENCE), 0)
            with code.when(yields):
                code.external("sched_yield", I32)
            poll.carry(code.add(poll.carried[0], 1))

    def enter(self, unit, pair) -> None:
        """Begins a task, and finds the first earlier tile of keys that is not done: it may have to wait for those."""
        code = self.code
        self.unit, self.pair, self.own = unit, pair, self._progress(pair, unit)
        known = self.arg.at("finished", pair, 8)

        def is_done(at):
            progress = code.load_atomic(self._progress(pair, at), "acquire", 8, typ=I64)
            return code.and_(code.icmp_signed("<", at, unit), code.icmp_signed("==", progress, DONE))

        with code.repeat(is_done, [code.load_atomic(known, "acquire", 8, typ=I64)]) as seen:
            seen.carry(code.add(seen.carried[0], 1))
        self.lowest = seen.result[0]
        code.atomic_rmw("xchg", known, self.lowest, "release")

    def reach(self, turn) -> None:
        """Publishes that the task has added everything before this turn."""
        self.code.atomic_rmw("xchg", self.own, turn, "release")

    def wait(self, turn) -> None:
        """Waits until every earlier task of the same key head is past the turn."""
        with self.code.loop(self.lowest, self.unit) as earlier:
            self.until(self._progress(self.pair, earlier.index), ">", turn)

    def wait_for_heads(self, turn) -> None:
        """Waits until every earlier task of the same keys is past the turn."""
        with self.code.loop(0, self.pair) as earlier:
            self.until(self._progress(earlier.index, self.unit), ">", turn)

    def leave(self) -> None:
        """Ends the task."""
        self.code.atomic_rmw("xchg", self.own, self.code.index(DONE), "release")


NO_SPAN = 2**62, -(2**62)  # the first and the last byte offset of no entry
SPAN = 16  # bytes of a span


class TableSums:
    """The slots that it uses: copies: per task in flight (`ring`) `numbers` zeros. blocks: their number. totals: per
    block `numbers` sums. flushed: per block, the number of tasks that have added to it, or passed it.

    tables: their numbers; `gradient{number}` is the byte offset of a table in a copy. memory: an address with `SPAN`
    bytes for each.
    """

    def __init__(self, code: Code, arg: Block, adds: OrderedAdds, tables: list[int], memory):
        self.code, self.arg, self.adds = code, arg, adds
        self.spans = {number: code.at(memory, SPAN * at) for at, number in enumerate(tables)}

    def enter(self, number) -> dict[int, object]:
        """Begins a task; the addresses of the gradients by table."""
        code, arg = self.code, self.arg
        self.number = number
        place = code.mul(code.srem(number, arg["ring"]), code.mul(arg["numbers"], 8))
        self.copy = arg.at("copies", place)
        for table in self.spans:
            self._forget(table)
        return {table: code.at(self.copy, arg[f"gradient{table}"]) for table in self.spans}

    def _forget(self, table: int) -> None:
        for step, value in enumerate(NO_SPAN):
            self.code.put(value, self._edge(table, step), 8)

    def _edge(self, table: int, step: int):
        return self.code.at(self.spans[table], 8 * step)

    def flush(self, block) -> None:
        """Adds the copy to the sums of a block after those of all earlier tasks, and clears it."""
        code, arg = self.code, self.arg
        self._turn(block)
        start = code.mul(block, code.mul(arg["numbers"], 8))
        for table in self.spans:
            first, last = (code.get(self._edge(table, step), I64, 8) for step in range(2))
            with code.loop(first, code.add(last, 1), 8) as each:
                offset = code.add(arg[f"gradient{table}"], each.index)
                own = code.at(self.copy, offset)
                total = arg.at("totals", code.add(start, offset))
                code.put(code.fadd(code.get(total, F64, 8), code.get(own, F64, 8)), total, 8)
                code.put(code.number(0.0, F64), own, 8)
            self._forget(table)
        self._pass(block)

    def leave(self, first, last) -> None:
        """Ends a task that has flushed the blocks first … last: passes all others."""
        code = self.code
        with code.loop(0, self.arg["blocks"]) as block:
            before, after = (code.icmp_signed(sign, block.index, edge) for sign, edge in (("<", first), (">=", last)))
            with code.when(code.or_(before, after)):
                self._turn(block.index)
                self._pass(block.index)

    def _flushed(self, block):
        return self.arg.at("flushed", block, 8)

    def _turn(self, block) -> None:
        """Waits until all earlier tasks have passed a block."""
        self.adds.until(self._flushed(block), "==", self.number)

    def _pass(self, block) -> None:
        code = self.code
        code.atomic_rmw("xchg", self._flushed(block), code.add(self.number, 1), "release")


BLOCK = 1024  # query positions of a partial sum; a multiple of the rows of every tile


class PartialSums:
    """The stack of a task.

    base: the address of the lowest entry. state: an address with 16 bytes. keys: rows of an entry's two matrices, which
    have D and E columns. scale: of dK, in every lane.
    """

    def __init__(self, code: Code, tools: Multiplier, *, base, state, keys: int, D: int, E: int, scale):
        self.code, self.tools, self.base = code, tools, base
        self.levels, self.block = state, code.at(state, 8)
        self.keys, self.D, self.E, self.scale = keys, D, E, scale
        self.bytes = keys * (D + E) * tools.size

    def entry(self, number) -> tuple[Matrix, Matrix]:
        """dK and dV of an entry."""
        code, size = self.code, self.tools.size
        at = code.at(self.base, number, self.bytes)
        return Matrix(at, self.D * size), Matrix(code.at(at, self.keys * self.D * size), self.E * size)

    def begin(self, rows) -> None:
        """An empty stack. rows: of the tile, in use: a multiple of GRAIN; the others are neither read nor written."""
        code, self.rows = self.code, rows
        code.put(0, self.levels, 8)
        code.put(END, self.block, 8)  # no block is open

    def open(self, block) -> None:
        """Makes a block, which must not be before the one that is open, the one that is summed."""
        code = self.code
        with code.when(code.icmp_signed("!=", code.get(self.block, I64, 8), block)):
            self._close(block)
            code.put(block, self.block, 8)
            self._clear(self._depth())

    def current(self) -> tuple[Matrix, Matrix]:
        """dK and dV of the open block."""
        return self.entry(self._depth())

    def finish(self) -> tuple[Matrix, Matrix]:
        """The sums over all blocks."""
        code = self.code
        with code.if_else(code.icmp_signed("!=", code.get(self.block, I64, 8), END)) as (then, otherwise):
            with then:
                self._close(END)
            with otherwise:
                self._clear(code.index(0))
        return self.entry(code.index(0))

    def any(self):
        """Whether a block was opened; once all of them are closed."""
        return self.code.icmp_signed("!=", self.code.get(self.levels, I64, 8), 0)

    def _depth(self):
        """The number of partial sums below the open block."""
        return self.code.intrinsic("ctpop", self.code.get(self.levels, I64, 8))

    def _clear(self, number) -> None:
        zero = self.code.number(0.0, self.tools.type)
        for matrix in self.entry(number):
            for place in self._vectors(matrix):
                self.tools.put(zero, place, 0)

    def _close(self, following) -> None:
        """Completes the open block, if there is one, and merges what is complete before the following block."""
        code = self.code
        this, levels = (code.get(place, I64, 8) for place in (self.block, self.levels))
        with code.when(code.icmp_signed("!=", this, END)):
            self._scale(self.entry(self._depth())[0])
            code.put(merge_complete(code, levels, this, following, self._merge), self.levels, 8)

    def _scale(self, matrix: Matrix) -> None:
        """dK times the scale. It is done per block, so that the results of calls are partial sums too."""
        for place in self._vectors(matrix):
            value = self.code.fmul(self.tools.get(place, 0), self.scale)
            self.tools.put(self.code.fadd(value, 0.0), place, 0)  # -0 becomes 0

    def _merge(self, number) -> None:
        """Adds entry number + 1 to entry number."""
        tools = self.tools
        for place in itertools.chain(*map(self._vectors, self.entry(number))):
            other = tools.get(self.code.at(place, self.bytes), 0)
            tools.put(self.code.fadd(tools.get(place, 0), other), place, 0)

    def _vectors(self, matrix: Matrix):
        """The places of all vectors in the rows in use, which are a multiple of UNROLL vectors."""
        code, size = self.code, self.tools.lanes * self.tools.size
        with code.loop(0, code.mul(self.rows, matrix.row), UNROLL * size) as part:
            for step in range(UNROLL):
                yield code.at(matrix.base, code.add(part.index, step * size))
