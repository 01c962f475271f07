"""Site: the course as static pages, which need no network and no server."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...common.errors import refuse
from ...common.files.output import check_folder
from ..chapter import Chapter, Question, key_of
from ..folder import writing
from ..lesson import BACK
from .chapter_html import Results, again, body, data, question_data
from .page import FILES, contents, page
from .recorded import record

TITLE = "Self-attention: a course"


def write_site(folder: Path, chapters: Sequence[Chapter]) -> Iterator[Path]:
    """Writes the course into a folder, and yields the path of each file; runs the code of all chapters once.

    Raises Refused, before anything is run, if the folder has files in it.
    """
    check_folder("learn", folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        fix = "name another folder, or remove this one"
        raise refuse("learn", "the folder is not empty", str(folder), "a new folder", fix)
    results = record(chapters)
    texts = {name: make() for name, make in FILES.items()}
    texts["index.html"] = page(TITLE, contents(chapters), {"contents": True})
    for chapter in chapters:
        texts[name_of(chapter)] = chapter_page(chapter, chapters, results)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    yield from (folder / name for name in texts)


def name_of(chapter: Chapter) -> str:
    """The file of a chapter's page."""
    return f"{chapter.path.stem}.html"


def chapter_page(
    chapter: Chapter, chapters: Sequence[Chapter], results: Results, more: dict[str, Any] | None = None
) -> str:
    """The page of a chapter. more: what the server adds to its data."""
    at = [each.number for each in chapters].index(chapter.number)
    before = chapters[at - 1] if at else None
    after = chapters[at + 1] if at + 1 < len(chapters) else None
    earlier = _earlier(chapter, chapters)
    minutes = " + ".join(map(str, chapter.minutes))
    returning = "\n".join(again(each, question) for each, question in earlier)
    turn = _turn(before, after, "Next chapter")
    main = (
        f"<h1>{chapter.number}. {html.escape(chapter.title)}</h1>\n"
        f'<p class="soft">About {minutes} minutes.</p>\n{returning}\n{body(chapter, results)}\n{turn}'
    )
    come_back = {key_of(each, question): question_data(each, question) for each, question in earlier}
    following = None if after is None else after.number
    known = data(chapter, results) | {"again": come_back, "following": following} | (more or {})
    return page(
        f"{chapter.number}. {chapter.title}", main, known, top=_turn(before, after, "Chapters"), served=more is not None
    )


def _earlier(chapter: Chapter, chapters: Sequence[Chapter]) -> list[tuple[Chapter, Question]]:
    """The questions that come back in this chapter if they were answered wrong."""
    numbers = {chapter.number - distance for distance in BACK}
    return [(each, question) for each in chapters if each.number in numbers for question in each.questions]


def _turn(before: Chapter | None, after: Chapter | None, label: str) -> str:
    links = ['<a href="index.html">Contents</a>']
    if before is not None:
        links.insert(0, f'<a rel="prev" href="{name_of(before)}">← {before.number}. {html.escape(before.title)}</a>')
    if after is not None:
        links.append(f'<a rel="next" href="{name_of(after)}">{after.number}. {html.escape(after.title)} →</a>')
    return f'<nav class="turn" aria-label="{label}">{" ".join(links)}</nav>'
