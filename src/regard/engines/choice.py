"""Which engine takes a problem on the CPU, and how a choice is refused; gpu/choose.py is the same for other devices."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import NamedTuple

from ..common.errors import Reason, Refused, did_you_mean, refuse
from ..language.problem import Problem

__all__ = ["ENGINES", "Explained", "choose", "known", "possible", "why_not"]

ENGINES = ("jit", "reference", "sdpa")


class Explained(NamedTuple):
    """What would compute a call: the problem, the engine and why, rows and keys of its tiles, whether it skips any, and
    the instructions that the compiled engine uses.
    """

    problem: Problem
    engine: str
    why: list[str]
    tile: tuple[int, int]
    skips: bool
    target: str | None = None


def choose(problem: Problem, engine: str = "auto", *, among: Sequence[str] = ENGINES, where="attention"):
    """(the engine that will run, the reasons why); a named engine that cannot is refused with all its reasons."""
    known(engine, among, where)
    if engine == "auto":
        against = why_not(problem, "jit")
        return ("reference", against) if against else ("jit", ["the compiled engine takes every part of this problem"])
    possible(engine, why_not(problem, engine), where)
    return engine, ["asked for by name"]


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
    """Refuses what is neither "auto" nor one of these engines."""
    if not isinstance(engine, str) or engine not in ("auto", *among):
        raise refuse(
            where,
            what,
            given=f"engine={engine!r}",
            expected=f"one of auto, {', '.join(among)}",
            fix=did_you_mean(str(engine), ("auto", *among)),
        )


def possible(engine: str, against: list[str], where: str) -> None:
    """Refuses a named engine against which there are reasons."""
    expected, fix = "a problem that this engine takes", 'use engine="auto"'
    if against:
        what = f"engine {engine!r} cannot do this"
        raise Refused(where, [Reason(what, given=reason, expected=expected, fix=fix) for reason in against])
