"""Who may add when: tasks that share a sum add to it in the order of their numbers, whatever the threads do.

A task publishes the tile of queries at which it is; whoever adds to that tile waits until every earlier task of the
same head is past it. Earlier tasks have been taken before, so they are running or done, and nobody waits for ever.
Gradients of tables that a task cannot own are summed in a copy of its own, and copies are added up in the order of the
tasks.
"""

from __future__ import annotations

from llvmlite import ir

from ...code.arguments import Block
from ...code.ir import F64, I32, I64, Code
from ...code.target import Target

__all__ = ["DONE", "Turns"]

DONE = 2**62  # the tile at which a finished task is
PATIENCE = 1023  # looks between two moments in which the processor is given to others


class Turns:
    """progress: per key head and tile of keys, the tile of queries that its task is at. finished: per key head, a
    number of tiles of keys that surely are done. flushed: how many tasks have added up their copies.
    """

    def __init__(self, code: Code, arg: Block, target: Target):
        self.code, self.arg = code, arg
        self.x86 = target.triple.startswith(("x86_64", "i686"))

    def _progress(self, pair, unit):
        code = self.code
        at = code.add(code.mul(pair, self.arg["key_tiles"]), unit)
        return code.at(self.arg.address("progress"), code.mul(at, code.index(8)))

    def _until(self, place, sign: str, value) -> None:
        """Waits until the number there stands in this relation to the value."""
        code = self.code
        opposite = {">": "<=", "==": "!="}[sign]

        def waits(_):
            return code.icmp_signed(opposite, code.load_atomic(place, "acquire", 8, typ=I64), value)

        with code.repeat(waits, [code.index(1)]) as look:
            if self.x86:
                code.external("llvm.x86.sse2.pause", ir.VoidType())
            tired = code.icmp_signed("==", code.and_(look.carried[0], code.index(PATIENCE)), code.index(0))
            with code.when(tired):
                code.external("sched_yield", I32)
            look.carry(code.add(look.carried[0], code.index(1)))

    def enter(self, number, unit, pair) -> None:
        """A task begins: the tiles of keys before its own that are not done are those that it may have to wait for."""
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
        """Everything before this tile has been added."""
        self.code.atomic_rmw("xchg", self.own, tile, "release")

    def wait(self, tile) -> None:
        """Until every earlier task of the same key head is past the tile."""
        with self.code.loop(self.lowest, self.unit) as earlier:
            self._until(self._progress(self.pair, earlier.index), ">", tile)

    def wait_for_heads(self, tile, needed: bool) -> None:
        """Until every earlier task of the same keys is past the tile, where tasks add to one table."""
        if needed:
            with self.code.loop(self.code.index(0), self.pair) as earlier:
                self._until(self._progress(earlier.index, self.unit), ">", tile)

    def clear_copy(self, number):
        """The task's own copy of the gradients of tables, all 0."""
        code, arg = self.code, self.arg
        bytes_ = code.mul(arg["numbers"], code.index(8))
        copy = self.copy = code.at(arg.address("copies"), code.mul(code.srem(number, arg["ring"]), bytes_))
        with code.loop(code.index(0), arg["numbers"]) as each:
            code.put(code.number(0.0, F64), code.at(copy, code.mul(each.index, code.index(8))), 8)
        return copy

    def leave(self, number) -> None:
        """Adds the copy up when it is this task's turn, and ends the task."""
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
