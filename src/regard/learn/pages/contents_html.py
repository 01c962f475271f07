"""Contents: the chapters of the course, with what the reader has done of each."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ..chapter import Chapter


def contents(chapters: Sequence[Chapter]) -> str:
    """The list of chapters; the script fills in the progress."""
    rows = "\n".join(
        f'<li data-chapter="{each.number}" data-questions="{len(each.questions)}" '
        f'data-exercises="{len(each.exercises)}">'
        f'<a href="{each.path.stem}.html">{each.number}. {html.escape(each.title)}</a> '
        f'<span class="soft">{" + ".join(map(str, each.minutes))} minutes</span> <span class="done"></span></li>'
        for each in chapters
    )
    return (
        "<h1>Self-attention: a course</h1>\n"
        "<p>From the dot product to an attention of your own: predict, see, write, and be checked. "
        "A + between minutes is a good place for a break.</p>\n"
        f'<ol class="contents">{rows}</ol>'
    )
