"""Mistake: one entry of the catalog, a small change of the law with a name, a likely cause and a fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..law.arguments import Arguments

__all__ = ["Mistake"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Mistake:
    """A known mistake.

    name: such as "scale-missing" · law: the number of the law that it breaks · checks: the checks of an audit that
    report it · description: completes "the output is that of attention with …" · change: the arguments of a call that
    is computed with this mistake; None if it makes no difference to such a call
    """

    name: str
    law: int
    checks: tuple[str, ...]
    description: str
    cause: str
    fix: str
    change: Callable[[Arguments], Arguments | None]
