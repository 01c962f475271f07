"""axe-core in a page that is open in the browser: what it finds against WCAG 2.1 A and AA and best practice."""

from pathlib import Path

import pytest

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


def violations(tab) -> list[str]:
    """The broken rules with their elements; the page must have been opened with bypass_csp=True."""
    package = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    if not tab.evaluate("'axe' in window"):
        tab.evaluate(Path(package.__file__).with_name("axe.min.js").read_text(encoding="utf-8"))
    return tab.evaluate(
        """async (tags) => (await axe.run(document, { runOnly: tags })).violations.flatMap(
            ({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 120)}: ${node.failureSummary}`))""",
        TAGS,
    )
