"""A report as Markdown, for an issue, a pull request or a page."""

from __future__ import annotations

from ..cases.case import LEVELS
from ..report import Report


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
