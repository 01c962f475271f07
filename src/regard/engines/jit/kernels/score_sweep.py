"""Base class of kernels that read only scores: tasks from the counter, a tile of query rows, the scores of a block.

The subclasses of `Sweep` define what a task does (statistics_rows.py, statistics_keys.py). Their argument blocks begin
with the slots of every kernel, followed by additional ones.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from ....language.expr import Const, Expr, Table
from ..code.arguments import FIXED, Block
from ..code.ir import I32, I64
from ..code.target import Target
from .parts.panels import Keys
from .parts.plan_by_key import visited_keys
from .parts.rules import Rules
from .parts.softmax import Running
from .parts.tasks import begun, each_task
from .parts.tile import BLOCK, Memory, Specification, Tile

__all__ = ["Frame", "Sweep"]


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
        self.rules = Rules(code, tile, mask=mask, score=score, constants=constants, tables=tables)
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
        row = code.mul(which, code.index(tile.spec.rows))
        tile.enter(self.b, self.h, row, code.smaller_int(code.sub(arg["Q"], row), code.index(tile.spec.rows)))
        tile.load_queries()
        start = code.get(code.at(arg.address("start"), code.mul(self.b, code.index(8))), I64, 8)
        self.row, self.position = row, code.add(start, row)
        self.rules.open(self.b, self.h, self.position)

    def scores(self, first, count, mixed) -> None:
        """Sᵀ of some keys of a block, -inf where masked."""
        self.rules.scores(self.keys, self.run, first, count, mixed)

    def each_block(self, which, do) -> None:
        """do(first, count, mixed) for the keys that a tile visits, in one step between two multiples of BLOCK.

        So the sums of a row are split at the same keys, whatever the other rows of its tile visit.
        """
        code, arg = self.code, self.arg
        place = code.mul(code.add(code.mul(self.group, arg["tiles"]), which), code.index(8))
        offsets = code.at(arg.address("offsets"), place)
        first_run, last_run = code.get(offsets, I64, 8), code.get(code.at(offsets, 8), I64, 8)
        with code.loop(first_run, last_run, 1, [code.index(0)]) as run:
            at = code.at(arg.address("runs"), code.mul(run.index, code.index(12)))
            begin, end = (code.sext(code.get(code.at(at, 4 * part), I32, 4), I64) for part in range(2))
            with code.repeat(
                lambda at: code.icmp_signed("<", at, end), [code.larger_int(begin, run.carried[0])]
            ) as blocks:
                at = blocks.carried[0]
                border = code.mul(code.add(code.sdiv(at, code.index(BLOCK)), code.index(1)), code.index(BLOCK))
                first, last, mixed = visited_keys(code, arg, self.group, which, at, border)
                do(first, code.sub(last, first), mixed)
                blocks.carry(border)
            run.carry(blocks.result[0])
