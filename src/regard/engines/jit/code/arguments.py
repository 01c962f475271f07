"""The argument block: the arguments of a kernel call, as 64-bit slots with names that engine and kernel share.

First the slots of `FIXED`, of which the first two are the same for every kernel (`launch.py`): the address of the task
counter, and the number of tasks. Then the constants of the expressions (integers, or the bit patterns of float64), then
per table its address and the (size, stride in bytes) of each axis.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from ....common.arrays import address
from ....language.expr import Const, Table
from ....language.problem import Problem
from ...plan import Plan
from .ir import F32, F64, I32, I64, PTR, Code
from .special import LOG2E

FIXED = (
    "next", "tasks",
    *(
        f"{array}{part}"
        for array in ("q", "k", "v", "out", "k_scales", "v_scales")
        for part in ("", "_batch", "_head", "_row", "_depth")
    ),
    "lse", "top", "total", "lost", "heads", "group", "same", "rows", "Q", "K", "score_factor", "exponent", "unit",
    "start", "offsets", "runs", "order", "tiles", "plan_batch", "plan_head",
    "sinks", "sink_count", "pieces", "parts", "left", "pages", "pages_batch", "page",
    "dropout_seed", "dropout_threshold", "dropout_scale", "dropout_batch", "dropout_head",
    "first_piece",
)  # fmt: skip

NO_RUNS = np.zeros((1, 3), np.int32)  # a kernel reads the first run before it tests whether there is one


def pack(
    problem: Problem,
    plan: Plan,
    constants: list[Const],
    tables: list[Table],
    fixed: tuple[str, ...] = FIXED,
    **given,
) -> np.ndarray:
    """The block for one call of a kernel with these slots, and then those of its expressions.

    given: slots by name: arrays (stored as addresses), integers or floats; they must outlive the block. Slots that
    follow from the problem and its plan need not be given, and others are 0.
    """
    B, H, Q, _ = problem.q.shape
    G, K = problem.k.shape[1:3]
    scaled = factors(problem)
    slots: dict[str, Any] = {
        "heads": H,
        "H": H,
        "group": H // G,
        "groups": B * G,
        "G": G,
        "rows": Q,
        "Q": Q,
        "K": K,
        "scale": float(problem.scale),
        "score_factor": scaled.score,
        "exponent": scaled.exponent,
        "unit": scaled.unit,
        "start": problem.query_start,
        "offsets": plan.offsets,
        "runs": plan.runs if len(plan.runs) else NO_RUNS,
        "order": plan.order,
        "tiles": plan.order.shape[1],
        "plan_batch": (H if plan.per_head else 1) if plan.per_batch else 0,
        "plan_head": int(plan.per_head),
        "tasks": B * H * plan.order.shape[1],
    }
    for name, array in (("q", problem.q), ("k", problem.k), ("v", problem.v), *given.items()):
        slots[name] = array
        if f"{name}_row" in fixed:
            parts = zip(("_batch", "_head", "_row", "_depth"), array.strides, strict=True)
            slots |= {f"{name}{part}": stride for part, stride in parts}
    assert given.keys() <= set(fixed), given.keys() - set(fixed)
    return np.array([slot(slots.get(name, 0)) for name in fixed] + leaves(constants, tables), np.int64)


def leaves(constants: list[Const], tables: list[Table]) -> list[int]:
    """The slots after the fixed ones: the constants and tables of the expressions in this call."""
    slots = [bits(node.value) if node.kind == "float" else int(node.value) for node in constants]
    for table in tables:
        slots.append(address(table.array))
        for size, stride in zip(table.array.shape, table.array.strides, strict=True):
            slots += [size, stride]
    return slots


def plain(problem: Problem) -> bool:
    """Whether the scale can be merged into the exponent of the softmax, so that dot products are scores."""
    # The maximum is taken before scaling, so the scale must be positive; a tiny one would underflow, and 0 · -inf is
    # NaN.
    return problem.score is None and problem.scale > 1e-30


class Factors(NamedTuple):
    """Where the scale is applied: the variable of a score expression is `score` times a dot product; a weight is
    2**(exponent · (s - m)); and `unit` converts s to nats.
    """

    score: float
    exponent: float
    unit: float


def factors(problem: Problem) -> Factors:
    """The factors of a problem. The dot product of unscaled rows is rounded once less than that of scaled rows."""
    scale = problem.scale
    if plain(problem):
        return Factors(score=1.0, exponent=scale * LOG2E, unit=scale)
    return Factors(score=scale, exponent=LOG2E, unit=1.0)


def slot(value) -> int:
    """The content of a slot: the address of an array, the bit pattern of a float, or an integer."""
    return address(value) if isinstance(value, np.ndarray) else bits(value) if isinstance(value, float) else value


def bits(value: float) -> int:
    return struct.unpack("<q", struct.pack("<d", value))[0]


class Block:
    """The argument block as a kernel reads it: slots by name, constants and tables by number.

    wide: whether the integers of the expressions (`whole`) need 64 bits. fixed: the names of the slots of this kernel.
    """

    def __init__(
        self,
        code: Code,
        pointer,
        constants: list[Const],
        tables: list[Table],
        wide: bool,
        fixed: tuple[str, ...] = FIXED,
    ):
        self.code, self.pointer, self.fixed, self.leaves = code, pointer, fixed, tables
        self.whole = I64 if wide else I32
        self.numbers = {id(node): number for number, node in enumerate(constants)}
        self.slots = {name: self._slot(number) for number, name in enumerate(fixed)}
        self.constants: dict[tuple[int, Any], ir.Value] = {}
        for number, node in enumerate(constants):
            place = len(fixed) + number
            if node.kind == "float":
                double = self._slot(place, F64)
                self.constants |= {(number, F64): double, (number, F32): code.fptrunc(double, F32)}
            elif node.kind == "int":
                whole = self._slot(place)
                self.constants[number, self.whole] = self.narrowed(whole)
        self.tables: list[tuple[Any, list, list]] = []
        place = len(fixed) + len(constants)
        for table in tables:
            pointer_to = code.inttoptr(self._slot(place), PTR)
            sizes = [self._slot(place + 1 + 2 * axis) for axis in range(table.array.ndim)]
            strides = [self._slot(place + 2 + 2 * axis) for axis in range(table.array.ndim)]
            self.tables.append((pointer_to, sizes, strides))
            place += 1 + 2 * table.array.ndim

    def narrowed(self, value):
        """A 64-bit integer as wide as those of the expressions."""
        return value if self.whole == I64 else self.code.trunc(value, self.whole)

    def table(self, table: Table) -> int:
        """The number of a table."""
        return next(number for number, known in enumerate(self.leaves) if known is table)

    def _slot(self, number: int, type=I64):
        return self.code.get(self.code.at(self.pointer, 8 * number), type, align=8)

    def __getitem__(self, name: str):
        return self.slots[name]

    def address(self, name: str):
        return self.code.inttoptr(self.slots[name], PTR)

    def at(self, name: str, number, size=1):
        """The address of an entry of an array, of so many bytes each."""
        return self.code.at(self.address(name), number, size)

    def factor(self, name: str, type) -> ir.Value:
        """A float64 slot as numbers of a type, in every lane."""
        value = self._slot(self.fixed.index(name), F64)
        return self.code.splat(value if type.element == F64 else self.code.fptrunc(value, F32), type.count)
