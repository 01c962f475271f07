"""Engine selection on the CPU, and the errors of an invalid choice; gpu/entry.py does the same for other devices."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import NamedTuple

from ..common.errors import Reason, Refused, did_you_mean, refuse
from ..common.public import Engine
from ..language.problem import Problem

ENGINES = ("jit", "reference", "sdpa")
ONE_CALL = 1 << 18  # pairs below which NumPy is faster than compiling a kernel


class Explained(NamedTuple):
    """How a call would be computed: the problem, the engine and the reasons for it, the tile size (rows, keys), whether
    empty tiles are skipped, the instruction set of the compiled engine, and bytes of q, k and v on another device.
    """

    problem: Problem
    engine: str
    why: list[str]
    tile: tuple[int, int]
    skips: bool
    target: str | None = None
    read: dict[str, int] | None = None


def choose(problem: Problem, engine: str = "auto", *, among: Sequence[str] = ENGINES, where="attention"):
    """(engine that will run, reasons); raises `Refused` with every reason if the requested engine cannot solve it."""
    known(engine, among, where)
    if engine == "auto":
        against = why_not(problem, "jit")
        _small_enough(problem, where)
        return ("reference", against) if against else ("jit", ["the compiled engine supports this problem"])
    possible(engine, why_not(problem, engine), where)
    return engine, ["requested explicitly"]


def of_one_call(pairs: int) -> Engine:
    """The engine for a call that is not repeated, with so many pairs of a query and a key in all heads."""
    return "reference" if pairs <= ONE_CALL else "auto"


def _small_enough(problem: Problem, where: str) -> None:
    """Raises `Refused` for rules that are too large to compile: the reference would need an array per operation."""
    from . import jit

    for given in jit.too_large(problem):
        raise refuse(
            where,
            "the rule is too large to be compiled",
            given,
            f"{jit.LARGEST:,} operations or fewer",
            'compute it once, and read it: table(array)[query, key]; or use engine="reference", if Q · K is small',
        )


def why_not(problem: Problem, engine: str) -> list[str]:
    """Every reason why an engine cannot solve the problem; empty if it can."""
    if engine == "jit":
        from . import jit

        return jit.why_not(problem)
    if engine == "sdpa":
        if importlib.util.find_spec("torch") is None:
            return ["torch is not installed"]
        from . import sdpa

        return sdpa.why_not(problem)
    return []


def known(engine, among: Sequence[str], where: str, what: str = "no such engine") -> None:
    """Raises `Refused` unless `engine` is "auto" or one of these names."""
    names = ("auto", *among)
    if not isinstance(engine, str) or engine not in names:
        raise refuse(where, what, f"engine={engine!r}", f"one of {', '.join(names)}", did_you_mean(str(engine), names))


def possible(engine: str, against: list[str], where: str) -> None:
    """Raises `Refused` if there are reasons why the requested engine cannot solve the problem."""
    if against:
        what, expected = f"engine {engine!r} does not support this", "a problem that this engine supports"
        raise Refused(where, [Reason(what, reason, expected, 'use engine="auto"') for reason in against])
