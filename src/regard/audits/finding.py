"""The results of a check: a Finding (a problem), Passed, or Skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..laws.mistake import BaseFinding

SEVERITIES = ("fault", "warning", "note")


@dataclass(frozen=True, kw_only=True)
class Finding(BaseFinding):
    """One problem that an audit detected, with its likely cause and a fix.

    Args:
        check: name of the check, such as "future-leak".
        severity: "fault" (the numbers are wrong), "warning" (they are wrong in some circumstances) or "note" (harmless
            by itself).
        where: the place in words, such as "call 3 (layers.1.self_attn), head 0".
        measured: what was measured, with the threshold.
        cause: the likely cause.
        fix: what to do about it.
        call: index of the attention call in the run. None: all calls, or not about a call.
        head: index of the query head in the call. None: all heads, several heads, or not about a head.
        row: index of the query row in the call or of the position in the sequence. None: all, or not about a row.
        numbers: the measured values as plain data, ready for JSON.

    Examples:
        >>> from regard.audits import Finding
        >>> found = Finding(check="scale", severity="fault", where="call 0 (attention)", measured="0.5, not 0.25",
        ...                 cause="the scale is doubled", fix="multiply q·k by 0.25, once")
        >>> print(found)
        fault: scale, call 0 (attention)
          measured  0.5, not 0.25
          cause     the scale is doubled
          fix       multiply q·k by 0.25, once
    """

    check: str
    severity: str
    where: str
    call: int | None = None
    head: int | None = None
    row: int | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.severity in SEVERITIES, self.severity

    @property
    def title(self) -> str:
        """The severity, the check and the place."""
        return f"{self.severity}: {self.check}, {self.where}"

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What is said below the title: also what was measured."""
        return [("measured", self.measured), *super().rows]


def found(check: str, severity: str, where: str, measured: str, cause: str, fix: str, **more: Any) -> Finding:
    """The finding of a check, with its severity and place, what was measured, the likely cause and a fix."""
    return Finding(check=check, severity=severity, where=where, measured=measured, cause=cause, fix=fix, **more)


@dataclass(frozen=True)
class Passed:
    """A check that ran and detected nothing, and what it measured."""

    check: str
    measured: str


@dataclass(frozen=True)
class Skipped:
    """A check that did not apply, and the reason."""

    check: str
    reason: str


class NotApplicable(Exception):
    """A check of a model does not apply. The message is the reason."""


Result = Finding | Passed | Skipped
