"""Badges: findings by the call and head that a page shows them on."""

from __future__ import annotations

from collections.abc import Iterable

from ..finding import Finding

__all__ = ["badges"]


def badges(findings: Iterable[Finding]) -> dict[int, dict[int | None, list[str]]]:
    """{call: {head, or None for the whole call: [check, …]}}; findings about no call have no badge.

    >>> found = Finding("sink", "note", "call 3", "…", "…", "…", call=3, numbers={"heads": [0, 2]})
    >>> badges([found])
    {3: {0: ['sink'], 2: ['sink']}}
    """
    found: dict[int, dict[int | None, list[str]]] = {}
    for finding in findings:
        if finding.call is None:
            continue
        heads = [finding.head] if finding.head is not None else finding.numbers.get("heads") or [None]
        for head in heads:
            checks = found.setdefault(finding.call, {}).setdefault(head, [])
            if finding.check not in checks:
                checks.append(finding.check)
    return found
