"""Columns: one number, found in several ways that have to agree."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Columns:
    """One number, found in up to three ways. formula: from declared sizes · counted: by running the model without data
    · measured: from files, or by running it with data. None: not found in this way.
    """

    formula: int | None
    counted: int | None = None
    measured: int | None = None

    @property
    def value(self) -> int:
        """What ran, if it was counted, and otherwise the formula."""
        return (self.formula if self.counted is None else self.counted) or 0

    def __index__(self) -> int:
        return self.value

    @property
    def agree(self) -> bool:
        """Whether all that were found are equal."""
        return len({each for each in (self.formula, self.counted, self.measured) if each is not None}) <= 1


ZERO = Columns(0, 0)
