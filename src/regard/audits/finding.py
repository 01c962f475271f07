"""The results of a check: a Finding (a problem), Passed, or Skipped; and the difference between two runs of a model,
with the threshold that rounding gives.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..common.text.terminal_text import printable
from ..laws.mistake import BaseFinding
from .subject import Outputs, Subject

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
        confidence: how sure the cause is, by the kind of the evidence: "certain" (numbers are equal to those of the
            cause), "likely" (they differ as the cause makes them differ) or "possible" (one of several causes).
        evidence: a script that shows the measured difference without regard, for `model` and `inputs`; "" if there is
            none.
        follows: whether this is a consequence of the first finding.

    Examples:
        >>> from regard.audits import Finding
        >>> found = Finding(check="scale", severity="fault", where="call 0 (attention)", measured="0.5, not 0.25",
        ...                 cause="the scale is doubled", fix="multiply q·k by 0.25, once")
        >>> print(found)
        fault: scale, call 0 (attention)
          measured  0.5, not 0.25
          cause     likely: the scale is doubled
          fix       multiply q·k by 0.25, once
    """

    check: str
    severity: str
    where: str
    call: int | None = None
    head: int | None = None
    row: int | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    confidence: str = "likely"
    evidence: str = ""
    follows: bool = False

    def __post_init__(self) -> None:
        assert self.severity in SEVERITIES, self.severity

    @property
    def title(self) -> str:
        """The severity, the check and the place."""
        return f"{self.severity}: {self.check}, {self.where}"

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What is said below the title: also what was measured, how sure the cause is, and a script that shows it."""
        said = [("measured", self.measured), ("cause", f"{self.confidence}: {self.cause}"), ("fix", self.fix)]
        return [*said, ("evidence", self.evidence.replace("\n", "\n" + " " * 12))] if self.evidence else said


# The checks whose evidence is that numbers equal those of the cause; others see a difference, which has several causes.
EQUALITIES = (
    "training-mode",
    "scale",
    "mask",
    "alignment",
    "groups",
    "heads",
    "softcap",
    "sinks",
    "softmax",
    "projections",
    "positions",
)


def found(check: str, severity: str, where: str, measured: str, cause: str, fix: str, **more: Any) -> Finding:
    """The finding of a check, with its severity and place, what was measured, the likely cause and a fix. How sure the
    cause is follows from the kind of evidence, where it is not given.
    """
    sure = {"fault": "certain" if check in EQUALITIES else "likely", "warning": "likely", "note": "possible"}
    more = {"confidence": sure[severity], **more}
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


ALLOWED = 8  # times the measured effect of rounding; real faults are typically thousands of times larger


@printable
@dataclass(frozen=True)
class Difference:
    """The output that differs most relative to its threshold. size: the largest absolute difference · allowed: the
    threshold · rows: the positions that exceed it, in order · blind: whether the threshold is more than half of the
    output, as in 16 bits it may be.
    """

    output: str
    size: float
    allowed: float
    rows: tuple[int, ...]
    blind: bool = False

    @property
    def significant(self) -> bool:
        """Whether rounding cannot explain the difference."""
        return not self.size <= self.allowed

    @property
    def row(self) -> int | None:
        """The first position that exceeds the threshold."""
        return self.rows[0] if self.rows else None

    def __str__(self) -> str:
        said = ", more than half of the output: this sees nothing, audit model.float()" if self.blind else ""
        return f"{self.output} changes by {self.size:.2g} (threshold, from rounding: {self.allowed:.1g}{said})"

    def numbers(self, **more: Any) -> dict[str, Any]:
        """The fields as plain data, and further ones; infinity becomes a string, because JSON has no infinity."""
        size = self.size if math.isfinite(self.size) else str(self.size)
        return {"output": self.output, "difference": size, "threshold": self.allowed, "rows": list(self.rows), **more}


def difference(subject: Subject, actual: Outputs, expected: Outputs) -> Difference:
    """The largest difference between outputs of the same name and shape; the threshold is `ALLOWED` times the measured
    rounding of the subject.

    Infinity equals itself. NaN equals nothing, not even itself, and differs infinitely from everything. An output that
    is in one run only, or has another shape there, is not compared.
    """
    expected = {name: part for name, part in expected.items() if name in actual and actual[name].shape == part.shape}
    if not expected:
        raise NotApplicable("no output has the same shape in both runs")
    quick = _compare(actual, expected, subject.rounding)
    return _compare(actual, expected, subject.rare_rounding) if quick.significant else quick


def passed(check: str, measured: str, differences: Iterable[Difference], more: str = "") -> Passed:
    """The result of a check that compared runs and detected nothing."""
    return Passed(check, f"{measured}: {largest(differences)}{more}")


def largest(differences: Iterable[Difference]) -> Difference:
    """The largest of several differences, in absolute size."""
    return max(differences, key=lambda each: each.size)


def not_by_chance(differences: Iterable[Difference]) -> Difference:
    """One of the differences that several random replacements cause: significant only if each of them is."""
    return min(differences, key=lambda each: each.significant)


def _compare(actual: Outputs, expected: Outputs, rounding: Mapping[str, float]) -> Difference:
    import torch

    differences = []
    for name, part in expected.items():
        a, b = actual[name].double(), part.double()
        off = torch.where(a == b, 0.0, (a - b).abs().nan_to_num(math.inf, math.inf))
        by_row = off.flatten(2).amax((0, 2)) if off.ndim > 2 else off.amax(0).reshape(-1)
        allowed = ALLOWED * rounding[name]
        rows = tuple((by_row > allowed).nonzero().flatten().tolist())
        blind = bool((b.abs() < 2 * allowed).all())
        differences.append(Difference(name, float(off.max()) if off.numel() else 0.0, allowed, rows, blind))
    return max(differences, key=lambda each: each.size / max(each.allowed, sys.float_info.min))


def listed(numbers: Iterable[Any]) -> str:
    """Numbers in words: "3 to 7", "1, 4, 9", or the first and the last of many.

    >>> listed([3, 4, 5, 6, 7]), listed([1, 4, 9]), listed(range(0, 40, 2))
    ('3 to 7', '1, 4, 9', '0, 2, …, 38')
    """
    every = list(numbers)
    if len(every) > 2 and isinstance(every[0], int) and every == [*range(every[0], every[-1] + 1)]:
        return f"{every[0]} to {every[-1]}"
    return ", ".join(map(str, every)) if len(every) <= 8 else f"{every[0]}, {every[1]}, …, {every[-1]}"


def positions(rows: Sequence[int]) -> str:
    """Positions in words with their noun: "position 5", "positions 3 to 7"."""
    return f"position{'s' * (len(rows) != 1)} {listed(rows)}"
