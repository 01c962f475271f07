"""A report for other programs and pages: JUnit, Markdown, and a badge."""

from __future__ import annotations

import re
from html import escape
from xml.etree import ElementTree

from .cases.case import LEVELS, Result
from .report import Report

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
            time=f"{result.seconds:.6f}",
        )
        if result in failed:
            found = by_case.get(result.case.id)
            _failure(case, result.words, "" if found is None else f"{found}\n\n{found.counterexample}")
        elif result in skipped:
            ElementTree.SubElement(case, "skipped", message=_text(_reason(result)))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _failure(case: ElementTree.Element, message: str, text: str) -> None:
    ElementTree.SubElement(case, "failure", message=_text(message)).text = _text(text)


def _reason(result: Result) -> str:
    return f"{result.status}: {result.words}"


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
        counts = [
            sum(each.status == status for each in here) for status in ("pass", "fail", "refused", "absent", "expected")
        ]
        ratios = [each.ratio for each in here if each.ratio is not None and each.status == "pass"]
        worst = f"{max(ratios):.2g}" if ratios else "–"
        lines.append(f"| {level} {name} | {' | '.join(map(str, counts))} | {worst} |")
    return "\n".join(lines) + "\n"


def _summary(report: Report) -> str:
    words = "nothing is wrong" if report.right else f"{len(report.findings)} findings"
    stopped = f" The run stopped early: {report.stopped}." if report.stopped else ""
    ran = f"{len(report.results)} cases, seed {report.seed}"
    return f"Level **{report.mark}** of {report.requested} requested, {words}; {ran}.{stopped}"


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("\n", " ")
