"""Gradients of tables to which tasks cannot add directly, because an entry belongs to many rows and keys: float64.

A task sums a block of query positions in its own copy, and adds that to the sum of the block after all earlier tasks;
the sums of the blocks are merged by the caller. Only the span of entries that was added to is moved, so that the time
does not grow with the table. A task ends after all earlier tasks have passed every block, so a copy is free again when
the task that has the same one begins, if there are as many copies as threads.
"""

from __future__ import annotations

from ...code.arguments import Block
from ...code.ir import F64, I64, Code
from .ordered_adds import OrderedAdds

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
        place = code.mul(code.srem(number, arg["ring"]), code.mul(arg["numbers"], code.index(8)))
        self.copy = code.at(arg.address("copies"), place)
        for table in self.spans:
            self._forget(table)
        return {table: code.at(self.copy, arg[f"gradient{table}"]) for table in self.spans}

    def _forget(self, table: int) -> None:
        for step, value in enumerate(NO_SPAN):
            self.code.put(self.code.index(value), self._edge(table, step), 8)

    def _edge(self, table: int, step: int):
        return self.code.at(self.spans[table], 8 * step)

    def flush(self, block) -> None:
        """Adds the copy to the sums of a block after those of all earlier tasks, and clears it."""
        code, arg = self.code, self.arg
        self._turn(block)
        start = code.mul(block, code.mul(arg["numbers"], code.index(8)))
        for table in self.spans:
            first, last = (code.get(self._edge(table, step), I64, 8) for step in range(2))
            with code.loop(first, code.add(last, code.index(1)), 8) as each:
                offset = code.add(arg[f"gradient{table}"], each.index)
                own = code.at(self.copy, offset)
                total = code.at(arg.address("totals"), code.add(start, offset))
                code.put(code.fadd(code.get(total, F64, 8), code.get(own, F64, 8)), total, 8)
                code.put(code.number(0.0, F64), own, 8)
            self._forget(table)
        self._pass(block)

    def leave(self, first, last) -> None:
        """Ends a task that has flushed the blocks first … last: passes all others."""
        code = self.code
        with code.loop(code.index(0), self.arg["blocks"]) as block:
            before, after = (code.icmp_signed(sign, block.index, edge) for sign, edge in (("<", first), (">=", last)))
            with code.when(code.or_(before, after)):
                self._turn(block.index)
                self._pass(block.index)

    def _flushed(self, block):
        return self.code.at(self.arg.address("flushed"), self.code.mul(block, self.code.index(8)))

    def _turn(self, block) -> None:
        """Waits until all earlier tasks have passed a block."""
        self.adds.until(self._flushed(block), "==", self.number)

    def _pass(self, block) -> None:
        code = self.code
        code.atomic_rmw("xchg", self._flushed(block), code.add(self.number, code.index(1)), "release")
