"""What a layer cannot be made of: every reason is collected, and refused together."""

from __future__ import annotations

from ...common.errors import Reason, Refused
from ...language.masks import count

__all__ = ["Checks"]


class Checks:
    """The reasons why `where` cannot do what it was asked, as they are found."""

    def __init__(self, where: str):
        self.where = where
        self.reasons: list[Reason] = []

    def size(self, name: str, value, least: int = 1) -> int:
        """A whole number of `least` or more; anything else is a reason, and counts as `least` for the checks that
        follow.
        """
        try:
            return count(value, self.where, name, least)
        except Refused as refused:
            self.reasons += refused.reasons
            return least

    def rate(self, name: str, value) -> float:
        """A share of the weights that fall out: from 0 to below 1."""
        holds = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
        self.need(
            holds,
            f"{name} is not a share of the weights",
            f"{name}={value!r}",
            "a number from 0 to below 1",
            "leave it out for no dropout",
        )
        return float(value) if holds else 0.0

    def need(self, holds: bool, what: str, given: str, expected: str, mend: str) -> None:
        """A reason, unless it holds."""
        if not holds:
            self.reasons.append(Reason(what, given=given, expected=expected, fix=mend))

    def done(self) -> None:
        """Refuse, if there is a reason."""
        if self.reasons:
            raise Refused(self.where, self.reasons)
