"""Page: one HTML page of the course and the list of its chapters. Script and style are two files beside them."""

from __future__ import annotations

import functools
import html
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from ...common.web import visuals
from ...common.web.html_page import filled, json_for_html, stripped
from ..chapter import Chapter

SCRIPTS = (
    "store", "numbertext", "forms", "questions", "claims", "exercises", "running", "notes", "place", "contents",
    "following", "chapter",
)  # fmt: skip
STYLES = ("course", "learner")


def page(title: str, main: str, data: Mapping[str, Any], *, top: str = "", served: bool = False) -> str:
    """One page. data: what the script reads · top: links above the text · served: whether it has a server."""
    parts = {
        "policy": html.escape(policy(served), quote=True),
        "title": html.escape(title),
        "top": top,
        "main": main,
        "data": json_for_html(dict(data) | {"served": served}),
    }
    return filled(_part("page.html"), parts)


def policy(served: bool) -> str:
    """The content security policy of a page: its own script and style, and its own server, if it has one."""
    server = "'self'" if served else "'none'"
    return (
        "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' data: file:; "
        f"connect-src {server}; base-uri 'none'; form-action 'none'"
    )


def _part(name: str) -> str:
    return files(__package__).joinpath("web", name).read_text(encoding="utf-8")


@functools.cache
def _script() -> str:
    own = (stripped(_part(f"{name}.js")) for name in SCRIPTS)
    return "\n".join(['"use strict";', visuals.script(visuals.KINDS, also=("make",)), *own])


@functools.cache
def _style() -> str:
    return "\n".join([*(stripped(_part(f"{name}.css")) for name in STYLES), visuals.style(visuals.KINDS)])


FILES = {"course.js": _script, "course.css": _style}  # what every page of a site loads


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
