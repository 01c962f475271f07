"""Report: what a run of the suite found out about a function, as text, JUnit, Markdown and a badge."""

from __future__ import annotations

import math
import platform
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any
from xml.etree import ElementTree

from ..laws.mistake import BaseFinding
from .cases.case import LEVELS, Result
from .conventions.fields import Adapter


@dataclass(frozen=True, kw_only=True)
class Finding(BaseFinding):
    """One thing that is wrong.

    Args:
        law: the number of the law that is broken; 0 for what comes before the laws (the call returns, its shape and
            dtype, side effects).
        level: the level that is not reached because of it.
        kind: "convention" if the function has another convention than declared; "law" if no convention explains it;
            "unexpected-pass" if it was expected to fail and does not.
        measured: what was seen.
        mistake: the name in the catalog of known mistakes; None if none explains it. Two are joined by " + ".
        alike: names of other mistakes that would give the same results.
        cause: the likely cause.
        fix: what to do about it.
        declares: what to declare if a convention is meant, such as "causal='top-left'"; "" if none is measured.
        cases: the cases that fail because of it.
        counterexample: a Python script that shows it; "" if no call does.

    Examples:
        >>> from regard.conformance import Finding
        >>> print(Finding(law=1, level=1, kind="law", measured="out[0, 0, 0, 0] is 2 and must be 1", mistake=None,
        ...               cause="unknown", fix="compare with the law", cases=("law-01[plain]",)))
        law 1: out[0, 0, 0, 0] is 2 and must be 1
          cause     unknown
          fix       compare with the law
          cases     law-01[plain]
    """

    law: int
    level: int
    kind: str
    mistake: str | None
    alike: tuple[str, ...] = ()
    declares: str = ""
    cases: tuple[str, ...] = ()
    counterexample: str = ""

    @property
    def title(self) -> str:
        """The law that is broken, the mistake that explains it, and what was measured."""
        law = f"law {self.law}" if self.law else "before the laws"
        return f"{', '.join(filter(None, (law, self.mistake)))}: {self.measured}"

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What is said below the title: also other mistakes, and the first cases."""
        rows = super().rows
        if self.alike:
            rows.append(("or", f"{', '.join(self.alike)}, which give the same results"))
        if self.cases:
            more = f" and {len(self.cases) - FEW} more" if len(self.cases) > FEW else ""
            rows.append(("cases", ", ".join(self.cases[:FEW]) + more))
        return rows


FEW = 4  # cases that are named in text
SCHEMA = 1


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
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
        >>> str(report).splitlines()[1].split(";")[0]
        'Level 0 of 1 requested, findings: 1'
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

    def __repr__(self) -> str:
        return "\n\n".join([f"{self.target}\n{_summary(self)}", *map(str, self.findings)])

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
        return dict(Counter(each.status for each in self.results))

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
        from .conventions.adapter_file import to_json

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
        "error_over_bound": ratio if ratio is not None and math.isfinite(ratio) else None,
        "grade": result.grade,
        "words": result.words,
    }


# What XML 1.0 cannot hold, such as control characters in the message of an exception.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """The report as JUnit XML."""
    failed = [each for each in report.results if each.status in ("fail", "unexpected-pass")]
    skipped = [each for each in report.results if each.status in ("absent", "refused", "expected")]
    conventions = [each for each in report.findings if each.kind == "convention"]
    suite = ElementTree.Element(
        "testsuite",
        name=_text(f"regard conform {report.target}"),
        tests=str(len(report.results) + len(conventions)),
        failures=str(len(failed) + len(conventions)),
        skipped=str(len(skipped)),
        errors="0",
        time=f"{report.seconds:.3f}",
    )
    by_case = {case: finding for finding in report.findings for case in finding.cases if finding.kind != "convention"}
    for finding in conventions:
        case = ElementTree.SubElement(
            suite, "testcase", classname="conventions", name=_text(finding.mistake or finding.measured), time="0"
        )
        _failure(case, finding.measured, f"{finding}\n\n{finding.counterexample}")
    for result in report.results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"level{result.case.level}",
            name=_text(result.case.id),
            time=f"{0 if result.answer is None else result.answer.seconds:.6f}",
        )
        if result in failed:
            found = by_case.get(result.case.id)
            _failure(case, result.words, "" if found is None else f"{found}\n\n{found.counterexample}")
        elif result in skipped:
            ElementTree.SubElement(case, "skipped", message=_text(f"{result.status}: {result.words}"))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _failure(case: ElementTree.Element, message: str, text: str) -> None:
    ElementTree.SubElement(case, "failure", message=_text(message)).text = _text(text)


def _text(words: str) -> str:
    return FORBIDDEN.sub("?", words)


COLORS = ("#9f3a38", "#9f3a38", "#b7791f", "#97762c", "#4c7a34", "#2f7d4f", "#1f7a6d")  # none, then level 0 to 5
WIDTH = 6.6  # of a character, on average
LABEL = "attention laws"


def badge(report: Report) -> str:
    """The badge."""
    words = f"level {report.mark}" if report.level >= 0 else "no level"
    left, right = (round(len(text) * WIDTH + 12) for text in (LABEL, words))
    color, total = COLORS[report.level + 1], left + right
    title = escape(f"{LABEL}: {words}")
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="20" role="img" aria-label="{title}">
<title>{title}</title>
<clipPath id="r"><rect width="{total}" height="20" rx="3"/></clipPath>
<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#444"/>
<rect x="{left}" width="{right}" height="20" fill="{color}"/></g>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{left / 2}" y="14">{LABEL}</text><text x="{left + right / 2}" y="14">{escape(words)}</text>
</g></svg>
"""


def markdown(report: Report) -> str:
    """The report as Markdown: the level, the findings with their counterexamples, conventions, and counts by level."""
    title = report.adapter.name or report.target
    lines = [f"# Conformance of {_cell(title)}", "", _summary(report), ""]
    for number, finding in enumerate(report.findings, 1):
        lines += [
            f"## {number}. {finding.mistake or f'Law {finding.law}'}",
            "",
            f"- measured: {finding.measured}",
            f"- cause: {finding.cause}",
            f"- fix: {finding.fix}",
            f"- cases: {', '.join(f'`{each}`' for each in finding.cases) or 'none'}",
        ]
        lines += [f"- the same results would come from: {', '.join(finding.alike)}"] if finding.alike else []
        lines += ["", "```python", finding.counterexample.rstrip(), "```"] if finding.counterexample else []
        lines.append("")
    if report.conventions:
        lines += ["## Conventions", "", "| convention | measured |", "|---|---|"]
        lines += [f"| {name} | {_cell(words)} |" for name, words in report.conventions.items()]
        lines.append("")
    lines += ["## Cases", "", "| level | pass | fail | refused | absent | expected | worst error / bound |"]
    lines.append("|---|---|---|---|---|---|---|")
    for level, name in enumerate(LEVELS[: report.requested + 1]):
        here = [each for each in report.results if each.case.level == level]
        counts = Counter(each.status for each in here)
        by_status = " | ".join(str(counts[each]) for each in ("pass", "fail", "refused", "absent", "expected"))
        ratios = [each.ratio for each in here if each.ratio is not None and each.status == "pass"]
        worst = f"{max(ratios):.2g}" if ratios else "–"
        lines.append(f"| {level} {name} | {by_status} | {worst} |")
    return "\n".join(lines) + "\n"


def _summary(report: Report) -> str:
    words = "nothing is wrong" if report.right else f"findings: {len(report.findings)}"
    stopped = f" The run stopped early: {report.stopped}." if report.stopped else ""
    cases = len(report.results)
    return f"Level {report.mark} of {report.requested} requested, {words}; {cases} cases, seed {report.seed}.{stopped}"


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("\n", " ")
