"""A report as JUnit XML: one test case per case of the suite, as continuous integration reads it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from ..cases.case import Result
from ..report import Report

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
