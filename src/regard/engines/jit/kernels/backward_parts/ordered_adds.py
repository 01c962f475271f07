"""Ordered additions: tasks that share a sum add to it in the order of their numbers, independent of the threads.

All tasks number the tiles of queries that they may visit alike; such a number is a turn. A task publishes its turn, and
a task that adds to a tile waits until every earlier task of the same head is past it. Earlier tasks were started
before, so they are running or done, and a deadlock is impossible.
"""

from __future__ import annotations

from llvmlite import ir

from ...code.arguments import Block
from ...code.ir import I32, I64, Code
from ...code.target import Target

DONE = 2**62  # the progress of a finished task
PATIENCE = 1023  # polls after which another thread may run


class OrderedAdds:
    """The slots that it uses: progress: per key head and tile of keys, the turn of its task. finished: per key head, a
    lower bound of the number of leading tiles of keys that are done.
    """

    def __init__(self, code: Code, arg: Block, target: Target):
        self.code, self.arg = code, arg
        self.let_others_run = "SwitchToThread" if "windows" in target.triple else "sched_yield"
        self.x86 = target.triple.startswith(("x86_64", "i686"))

    def _progress(self, pair, unit):
        code = self.code
        at = code.add(code.mul(pair, self.arg["key_tiles"]), unit)
        return code.at(self.arg.address("progress"), code.mul(at, code.index(8)))

    def until(self, place, sign: str, value) -> None:
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
                code.external(self.let_others_run, I32)
            poll.carry(code.add(poll.carried[0], code.index(1)))

    def enter(self, unit, pair) -> None:
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

    def reach(self, turn) -> None:
        """Publishes that the task has added everything before this turn."""
        self.code.atomic_rmw("xchg", self.own, turn, "release")

    def wait(self, turn) -> None:
        """Waits until every earlier task of the same key head is past the turn."""
        with self.code.loop(self.lowest, self.unit) as earlier:
            self.until(self._progress(self.pair, earlier.index), ">", turn)

    def wait_for_heads(self, turn) -> None:
        """Waits until every earlier task of the same keys is past the turn."""
        with self.code.loop(self.code.index(0), self.pair) as earlier:
            self.until(self._progress(earlier.index, self.unit), ">", turn)

    def leave(self) -> None:
        """Ends the task."""
        self.code.atomic_rmw("xchg", self.own, self.code.index(DONE), "release")
