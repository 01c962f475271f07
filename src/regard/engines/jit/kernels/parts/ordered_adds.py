"""Ordered additions: tasks that share a sum add to it in the order of their numbers, independent of the threads.

A task publishes its current tile of queries; a task that adds to a tile waits until every earlier task of the same head
is past it. Earlier tasks were started before, so they are running or done, and a deadlock is impossible. Gradients of
tables that tasks cannot add to directly are summed in one copy per task, and the copies are added in the order of the
tasks.
"""

from __future__ import annotations

from llvmlite import ir

from ...code.arguments import Block
from ...code.ir import F64, I32, I64, Code
from ...code.target import Target

__all__ = ["DONE", "OrderedAdds"]

DONE = 2**62  # the progress of a finished task
PATIENCE = 1023  # polls between two calls of sched_yield


class OrderedAdds:
    """The slots that it uses: progress: per key head and tile of keys, the current tile of queries of its task.
    finished: per key head, a lower bound of the number of leading tiles of keys that are done. flushed: the number of
    tasks that have added their copies.
    """

    def __init__(self, code: Code, arg: Block, target: Target):
        self.code, self.arg = code, arg
        self.x86 = target.triple.startswith(("x86_64", "i686"))

    def _progress(self, pair, unit):
        code = self.code
        at = code.add(code.mul(pair, self.arg["key_tiles"]), unit)
        return code.at(self.arg.address("progress"), code.mul(at, code.index(8)))

    def _until(self, place, sign: str, value) -> None:
        """Waits until the number at an address satisfies the comparison with the value."""
        code = self.code
        opposite = {">": "<=", "==": "!="}[sign]

        def unsatisfied(_):
            return code.icmp_signed(opposite, code.load_atomic(place, "acquire", 8, typ=I64), value)

        with code.repeat(unsatisfied, [code.index(1)]) as poll:
            if self.x86:
                code.external("llvm.x86.sse2.pause", ir.VoidType())
            yields = code.icmp_signed("==", code.and_(poll.carried[0], code.index(PATIENCE)), code.index(0))
            with code.when(yields):
                code.external("sched_yield", I32)
            poll.carry(code.add(poll.carried[0], code.index(1)))

    def enter(self, number, unit, pair) -> None:
        """Begins a task, and finds the first earlier tile of keys that is not done: it may have to wait for those."""
        code = self.code
        self.unit, self.pair, self.own = unit, pair, self._progress(pair, unit)
        known = code.at(self.arg.address("finished"), code.mul(pair, code.index(8)))

        def is_done(at):
            progress = code.load_atomic(self._progress(pair, at), "acquire", 8, typ=I64)
            return code.and_(code.icmp_signed("<", at, unit), code.icmp_signed("==", progress, code.index(DONE)))

        with code.repeat(is_done, [code.load_atomic(known, "acquire", 8, typ=I64)]) as seen:
            seen.carry(code.add(seen.carried[0], code.index(1)))
        self.lowest = seen.result[0]
        code.atomic_rmw("xchg", known, self.lowest, "release")

    def reach(self, tile) -> None:
        """Publishes that the task has added everything before this tile."""
        self.code.atomic_rmw("xchg", self.own, tile, "release")

    def wait(self, tile) -> None:
        """Waits until every earlier task of the same key head is past the tile."""
        with self.code.loop(self.lowest, self.unit) as earlier:
            self._until(self._progress(self.pair, earlier.index), ">", tile)

    def wait_for_heads(self, tile, needed: bool) -> None:
        """Waits until every earlier task of the same keys is past the tile, if tasks add to one table."""
        if needed:
            with self.code.loop(self.code.index(0), self.pair) as earlier:
                self._until(self._progress(earlier.index, self.unit), ">", tile)

    def clear_copy(self, number):
        """The task's copy of the gradients of tables, set to 0."""
        code, arg = self.code, self.arg
        bytes_ = code.mul(arg["numbers"], code.index(8))
        copy = self.copy = code.at(arg.address("copies"), code.mul(code.srem(number, arg["ring"]), bytes_))
        with code.loop(code.index(0), arg["numbers"]) as each:
            code.put(code.number(0.0, F64), code.at(copy, code.mul(each.index, code.index(8))), 8)
        return copy

    def leave(self, number) -> None:
        """Adds the copy to the total after those of all earlier tasks, and ends the task."""
        code, arg = self.code, self.arg
        with code.when(code.icmp_signed(">", arg["numbers"], code.index(0))):
            flushed = arg.address("flushed")
            self._until(flushed, "==", number)
            with code.loop(code.index(0), arg["numbers"]) as each:
                offset = code.mul(each.index, code.index(8))
                total = code.at(arg.address("gathered"), offset)
                code.put(code.fadd(code.get(total, F64, 8), code.get(code.at(self.copy, offset), F64, 8)), total, 8)
            code.atomic_rmw("xchg", flushed, code.add(number, code.index(1)), "release")
        code.atomic_rmw("xchg", self.own, code.index(DONE), "release")
