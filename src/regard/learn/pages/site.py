"""Site: the course as static pages, which need no network and no server."""

from __future__ import annotations

import functools
import html
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...common.errors import refuse
from ...common.files.output import check_folder
from ...common.web import visuals
from ...common.web.html_page import filled, json_for_html, stripped
from ..chapter import Chapter, returning
from ..folder import writing
from ..running import Results, record
from .chapter_html import again, body, data, question_data

SCRIPTS = (
    "store", "numbertext", "forms", "questions", "claims", "exercises", "running", "notes", "place", "contents",
    "following",
)  # fmt: skip
STYLES = ("course", "learner")


def page(title: str, main: str, data: Mapping[str, Any], *, top: str = "", served: bool = False) -> str:
    """One page. data: what the script reads · top: links above the text · served: whether it has a server."""
    parts = {
        "policy": html.escape(policy(served)),
        "title": html.escape(title),
        "top": top,
        "main": main,
        "data": json_for_html(dict(data) | {"served": served}),
    }
    return filled(web_file("page.html"), parts)


def policy(served: bool) -> str:
    """The content security policy of a page: its own script and style, and its own server, if it has one."""
    server = "'self'" if served else "'none'"
    return (
        "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' data: file:; "
        f"connect-src {server}; base-uri 'none'; form-action 'none'"
    )


def web_file(name: str) -> str:
    """A template, script or style of the pages."""
    return files(__package__).joinpath("web", name).read_text(encoding="utf-8")


@functools.cache
def _script() -> str:
    own = (stripped(web_file(f"{name}.js")) for name in SCRIPTS)
    return "\n".join(['"use strict";', visuals.script(visuals.KINDS, also=("make", "button")), *own])


@functools.cache
def _style() -> str:
    return "\n".join([*(stripped(web_file(f"{name}.css")) for name in STYLES), visuals.style(visuals.KINDS)])


FILES = {"course.js": _script, "course.css": _style}  # what every page of a site loads


def contents(chapters: Sequence[Chapter]) -> str:
    """The list of chapters; the script fills in the progress."""
    rows = "\n".join(
        f'<li data-chapter="{each.number}" data-short="{bool(each.deeper)}" data-questions="{len(each.questions)}" '
        f'data-exercises="{len(each.exercises)}">'
        f'<a href="{each.path.stem}.html">{each.number}. {html.escape(each.title)}</a> '
        f'<span class="soft">{each.time} minutes</span> <span class="done"></span></li>'
        for each in chapters
    )
    return (
        "<h1>Self-attention: a course</h1>\n"
        "<p>From a look-up to an attention of your own: predict, see, write, and be checked. The short path takes the "
        "first part of the chapters in bold, about an hour. A + between minutes is a good place for a break.</p>\n"
        f'<ol class="contents">{rows}</ol>'
    )


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
    for chapter, found in zip(chapters, results):
        texts[name_of(chapter)] = chapter_page(chapter, chapters, found)
    with writing(folder):
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
    earlier = returning(chapter, chapters)
    questions = "\n".join(map(again, earlier))
    short = next((each for each in chapters[at + 1 :] if each.deeper), chapters[0])
    onward = f'<a href="{name_of(short)}">{short.number}. {html.escape(short.title)}</a>'
    turn = _turn(before, after, "Next chapter")
    main = (
        f"<h1>{chapter.number}. {html.escape(chapter.title)}</h1>\n"
        f'<p class="soft">About {chapter.time} minutes.</p>\n{questions}\n{body(chapter, results, onward)}\n{turn}'
    )
    come_back = {each.key: question_data(each) for each in earlier}
    following = None if after is None else after.number
    known = data(chapter, results) | {"again": come_back, "following": following} | (more or {})
    return page(
        f"{chapter.number}. {chapter.title}", main, known, top=_turn(before, after, "Chapters"), served=more is not None
    )


def _turn(before: Chapter | None, after: Chapter | None, label: str) -> str:
    links = ['<a href="index.html">Contents</a>']
    if before is not None:
        links.insert(0, f'<a rel="prev" href="{name_of(before)}">← {before.number}. {html.escape(before.title)}</a>')
    if after is not None:
        links.append(f'<a rel="next" href="{name_of(after)}">{after.number}. {html.escape(after.title)} →</a>')
    return f'<nav class="turn" aria-label="{label}">{" ".join(links)}</nav>'
