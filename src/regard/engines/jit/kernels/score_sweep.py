"""Base class of kernels that read only scores: tasks from the counter, a tile of query rows, the scores of a block.

The subclasses of `Sweep` define what a task does (statistics_rows.py, statistics_keys.py). Their argument blocks begin
with the slots of every kernel, followed by additional ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir

from ....language.expr import Const, Expr, Table
from ..code.arguments import FIXED, Block
from ..code.ir import I32, I64
from ..code.target import Target
from .forward import PIECE
from .parts.panels import Keys
from .parts.plan_by_key import visited_keys
from .parts.rules import Rules
from .parts.softmax import Running
from .parts.tasks import END, begun, each_task, going_on, merge_complete
from .parts.tile import BLOCK, Memory, Specification, Tile


class Frame(NamedTuple):
    """The input of code generation for such a kernel. sets: further masks, which the subclass applies."""

    spec: Specification
    target: Target
    mask: Expr | None
    score: Expr | None
    sets: tuple[Expr, ...]
    constants: list[Const]
    tables: list[Table]


class Sweep:
    """The base class of a kernel void(arguments, scratch, budget)."""

    def __init__(self, name: str, frame: Frame, own: tuple[str, ...], memory: dict[str, int]):
        """own: the names of the additional slots; memory: all working memory, bytes by name."""
        spec, target, mask, score, _, constants, tables = frame
        self.module, self.code, (arguments, scratch, self.budget) = begun(name)
        code = self.code
        self.arg = arg = Block(code, arguments, constants, tables, spec.wide, FIXED + own)
        self.tile = tile = Tile(code, spec, target, arg, Memory(code, scratch, memory))
        self.rules = Rules(code, tile, mask, score)
        exponent, unit = (arg.factor(name, tile.type) for name in ("exponent", "unit"))
        self.run = Running(code, tile.memory["running"], tile.type, tile.vectors, exponent, unit)
        self.keys = Keys(code, tile)

    def written(self) -> ir.Module:
        """The complete kernel."""
        with each_task(self.code, self.arg, self.budget) as number:
            self.task(number)
        self.code.ret_void()
        return self.module

    def task(self, number) -> None:
        raise NotImplementedError

    def set_head(self, pair) -> None:
        """Sets the batch entry and head (pair = b · H + h), and its group in the plan."""
        code, arg = self.code, self.arg
        self.pair, self.b, self.h = pair, code.sdiv(pair, arg["heads"]), code.srem(pair, arg["heads"])
        self.group = code.add(code.mul(self.b, arg["plan_batch"]), code.mul(self.h, arg["plan_head"]))

    def enter(self, which) -> None:
        """Sets the tile of the head, and loads its queries into lanes."""
        code, arg, tile = self.code, self.arg, self.tile
        row = code.mul(which, tile.spec.rows)
        tile.enter(self.b, self.h, row, code.smaller_int(code.sub(arg["Q"], row), tile.spec.rows))
        tile.load_queries()
        start = code.get(arg.at("start", self.b, 8), I64, 8)
        self.row, self.position = row, code.add(start, row)
        self.rules.open(self.b, self.h, self.position)

    def scores(self, first, count, mixed) -> None:
        """Sᵀ of some keys of a block, -inf where masked."""
        self.rules.scores(self.keys, self.run, first, count, mixed)

    def each_piece(self, which, begin: Callable, block: Callable, merge: Callable) -> None:
        """Sums over the keys that a tile visits, as a tree of pieces of PIECE keys (tasks.py); the result is entry 0 of
        the stack of partial sums.

        begin(place): begins an empty sum as an entry of the stack. block(first, count, mixed): adds keys to it, in one
        step between two multiples of BLOCK, so the sums of a row are split at the same keys, whatever the other rows of
        its tile visit. merge(place): merges entry place + 1 into entry place.
        """
        code, arg = self.code, self.arg
        # A key of END means that there is none; END / PIECE is beyond every piece too.
        place = code.mul(code.add(code.mul(self.group, arg["tiles"]), which), 8)
        offsets = arg.at("offsets", place)
        first_run, last_run = code.get(offsets, I64, 8), code.get(code.at(offsets, 8), I64, 8)
        carry = [*self.visited(first_run, last_run, 0), 0]

        def continues(run, key, levels):
            return code.and_(code.icmp_signed("<", key, END), going_on(code, arg))

        with code.repeat(continues, carry) as pieces:
            run, key, levels = pieces.carried
            piece, end = code.sdiv(key, PIECE), self.border(key, PIECE)
            begin(code.intrinsic("ctpop", levels))
            with code.repeat(lambda run, key: code.icmp_signed("<", key, end), [run, key]) as blocks:
                run, key = blocks.carried
                border = self.border(key, BLOCK)
                first, last, mixed = visited_keys(code, arg, self.group, which, key, border)
                block(first, code.sub(last, first), mixed)
                blocks.carry(*self.visited(run, last_run, border))
            run, key = blocks.result
            following = code.sdiv(key, PIECE)  # beyond every piece if no key follows
            pieces.carry(run, key, merge_complete(code, levels, piece, following, merge))
        with code.when(code.icmp_signed("==", pieces.result[2], 0)):  # no keys
            begin(code.index(0))

    def border(self, key, size: int):
        """The first multiple of `size` after a key."""
        code = self.code
        return code.mul(code.add(code.sdiv(key, size), 1), size)

    def visited(self, run, last_run, reached) -> tuple:
        """The first key of the runs from `reached` on, and its run; the key is END if there is none."""
        code = self.code

        def edge(run, part: int):
            """The first key of a run (0), or one past its last (1); of the first run of the plan, if it is not one."""
            safe = code.select(code.icmp_signed("<", run, last_run), run, 0)
            at = self.arg.at("runs", code.add(code.mul(safe, 12), 4 * part))
            return code.sext(code.get(at, I32, 4), I64)

        def over(run):
            """Whether a run exists and ends before `reached`."""
            return code.and_(code.icmp_signed("<", run, last_run), code.icmp_signed("<=", edge(run, 1), reached))

        with code.repeat(over, [run]) as skipped:
            skipped.carry(code.add(skipped.carried[0], 1))
        run = skipped.result[0]
        exists = code.icmp_signed("<", run, last_run)
        return run, code.select(exists, code.larger_int(edge(run, 0), reached), END)
