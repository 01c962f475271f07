"""Mistake: one entry of the catalog, a small change of the law with a name, a likely cause and a fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .arguments import Arguments


@dataclass(frozen=True, eq=False, kw_only=True)
class Mistake:
    """A known mistake.

    name: such as "scale-missing" · law: the number of the law that it breaks · checks: the checks of an audit that
    report it; none, if recorded outputs cannot show it · description: completes "the output is that of attention with
    …" · change: the arguments of a call that is computed with this mistake; None if it makes no difference to such a
    call · numbers: what the description says of one call, from its arguments and the changed ones ·
    alone: it is not combined with others, because arrays have other shapes inside
    """

    name: str
    law: int
    checks: tuple[str, ...] = ()
    description: str
    cause: str
    fix: str
    change: Callable[[Arguments], Arguments | None]
    numbers: Callable[[Arguments, Arguments], str] | None = None
    alone: bool = False

    def described(self, arguments: Arguments) -> str:
        """The description, with the numbers of a call."""
        changed = self.change(arguments) if self.numbers else None
        return self.description if changed is None else f"{self.description}: {self.numbers(arguments, changed)}"  # type: ignore[misc]
