"""Finding: one thing that an audit found wrong; beside it, what a check that found nothing says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SEVERITIES", "Finding", "Passed", "Result", "Skipped"]

SEVERITIES = ("fault", "warning", "note")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong, or worth knowing.

    check: the short name of the check, such as "future-leak" · severity: "fault" (the numbers are wrong), "warning"
    (they may be, or soon will be) or "note" (no harm by itself) · where: the place, in words · measured: the number and
    the threshold that it is held against · cause: the likely one · mend: what to do
    call: number of the call in the run · head, row: within it · None: all, or not about a call
    numbers: what was measured, as plain JSON
    """

    check: str
    severity: str
    where: str
    measured: str
    cause: str
    mend: str
    call: int | None = None
    head: int | None = None
    row: int | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        assert self.severity in SEVERITIES, self.severity

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return dict(vars(self)) | {"numbers": dict(self.numbers)}

    def __str__(self) -> str:
        return (
            f"{self.severity}: {self.check}, {self.where}\n  measured  {self.measured}\n  cause     {self.cause}\n"
            f"  fix       {self.mend}"
        )


@dataclass(frozen=True)
class Passed:
    """A check that ran and found nothing, and what it measured."""

    check: str
    measured: str


@dataclass(frozen=True)
class Skipped:
    """A check that did not apply, and why."""

    check: str
    reason: str


Result = Finding | Passed | Skipped
