"""Report: what a run of the suite found out about a function."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .cases.case import LEVELS, Result
from .conventions.fields import Adapter
from .findings import Finding

SCHEMA = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Report:
    """The result of `conform`.

    Args:
        target: the function, as `module:function` or `FILE.py:function`.
        adapter: the conventions under which it was judged.
        declared: those that it declares; None if it declares nothing.
        conventions: each convention that was measured, in words.
        requested: the highest level that was requested.
        results: one for each case.
        findings: what is wrong; conventions first.
        seed: of the cases.
        seconds: how long the run took.
        isolated: whether the function ran in a process of its own.
        stopped: why not all cases ran; "" if they did.
        noticed: side effects of calls, which are findings only where a case says so.
        version: of the module of the function, if it has one.

    Examples:
        >>> import numpy as np, regard as rg
        >>> def attention(q, k, v):
        ...     s = q @ k.swapaxes(-1, -2)  # without 1/√D
        ...     p = np.exp(s - s.max(-1, keepdims=True))
        ...     return p / p.sum(-1, keepdims=True) @ v
        >>> report = rg.conform(attention, level=1)
        >>> report.right, report.level, report.findings[0].mistake
        (False, 0, 'scale-missing')
    """

    target: str
    adapter: Adapter
    declared: Adapter | None
    conventions: Mapping[str, str]
    requested: int
    results: tuple[Result, ...]
    findings: tuple[Finding, ...]
    seed: int
    seconds: float
    isolated: bool
    stopped: str = ""
    noticed: tuple[str, ...] = ()
    version: str = ""
    machine: Mapping[str, str] = field(
        default_factory=lambda: {"system": platform.platform(), "cpu": platform.machine()}
    )

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def level(self) -> int:
        """The highest level of which all cases, and all those below, hold; −1 if the function does not even run."""
        lowest = min(
            (each.level for each in self.findings if each.kind != "unexpected-pass"), default=self.requested + 1
        )
        return min(lowest - 1, self.requested)

    @property
    def mark(self) -> str:
        """The level, from 4 on with the grade of isolation: "4b" if parts of a call are bit-identical to the whole,
        "4r" if they agree to rounding only; "none" below level 0.
        """
        if self.level < 4:
            return str(self.level) if self.level >= 0 else "none"
        grades = {each.grade for each in self.results if each.grade is not None and each.status == "pass"}
        return f"{self.level}{'b' if grades == {'bits'} else 'r'}"

    @property
    def measured(self) -> str:
        """The conventions under which the function was judged, in one line."""
        adapter = self.adapter
        facts = [f"layout {adapter.layout}", f"scale {'1/√D' if adapter.scale is None else f'{adapter.scale:.6g}'}"]
        facts += [f"always {name}" for name in adapter.always]
        for name in ("mask", "causal", "window", "groups", "softcap", "lse", "empty_row"):
            if name in self.conventions:
                facts.append(f"{name.replace('_', ' ')} {getattr(adapter, name)}")
        how = "declared, and measured" if self.declared is not None else "measured; nothing is declared"
        return f"{', '.join(facts)} ({how})"

    @property
    def counts(self) -> dict[str, int]:
        """How many cases have each status."""
        found: dict[str, int] = {}
        for each in self.results:
            found[each.status] = found.get(each.status, 0) + 1
        return found

    def to_json(self) -> dict[str, Any]:
        """The report as plain data; docs/reference/conformance.md lists the fields.

        Returns:
            A dict that `json.dumps` accepts.

        Examples:
            >>> import regard as rg
            >>> found = rg.conform(lambda q, k, v: rg.attention(q, k, v), level=0).to_json()
            >>> found["level"], found["findings"]
            (0, [])
        """
        from .conventions.adapter_file import to_json  # it is only needed here

        return {
            "schema": SCHEMA,
            "target": self.target,
            "version": self.version,
            "right": self.right,
            "level": self.level,
            "mark": self.mark,
            "level_name": LEVELS[self.level] if self.level >= 0 else "none",
            "requested": self.requested,
            "conventions": dict(self.conventions),
            "adapter": to_json(self.adapter),
            "declared": self.declared is not None,
            "findings": [each.to_json() for each in self.findings],
            "cases": [_result(each) for each in self.results],
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "isolated": self.isolated,
            "stopped": self.stopped,
            "noticed": list(self.noticed),
            "machine": dict(self.machine),
        }


def _result(result: Result) -> dict[str, Any]:
    """One case as plain data."""
    ratio = result.ratio
    return {
        "id": result.case.id,
        "law": result.case.law,
        "level": result.case.level,
        "says": result.case.says,
        "status": result.status,
        "error_over_bound": None if ratio is None or ratio != ratio or ratio in (float("inf"),) else ratio,
        "grade": result.grade,
        "words": result.words,
    }
