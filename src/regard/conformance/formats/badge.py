"""A badge with the level that was reached, drawn as SVG without any service."""

from __future__ import annotations

from html import escape

from ..report import Report

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
