"""Slides: what a chapter shows, one after another on the screen, as one page with speaker notes. Its code runs once.

A question is a slide, its code with the output and its answer are the next steps; a visual is a slide, too. The text
between them is in the notes.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from ...common.files.output import check_output, replacing
from ...common.web import visuals
from ...common.web.html_page import filled, hashed, json_for_html, stripped
from ..chapter import Chapter, Claim, Question, Reveal, Text, Visual
from ..export import given, whys
from ..forms import FORMS
from .chapter_html import Results, code_and_output, printed
from .prose import code, inline, prose
from .recorded import Recorded, record

HEADING = re.compile(r"^## +(.*)$", re.M)
FORMULAS = re.compile(r"^```math\n.*?^```$", re.M | re.S)
MARK = '<meta name="generator" content="regard slides">'
OUTCOMES = {"holds": "It holds.", "holds if": "It holds if {}.", "fails": "It fails."}


@dataclass
class Slide:
    """One slide, in HTML except for its heading.

    kind: a word above it · heading: that of its section, Markdown · shown: what is there at first · steps: what each
    press adds · notes: for the speaker
    """

    kind: str
    heading: str
    shown: str
    steps: list[str] = field(default_factory=list)
    notes: str = ""


def write_slides(chapter: Chapter, out: Path | None = None) -> Path:
    """Writes a chapter's slides, and returns the file. out: None is `slides-03.html` in this folder.

    Raises Refused, before anything is run, if the file exists and is not one that this wrote.
    """
    path = out if out is not None else Path(f"slides-{chapter.number:02d}.html")
    check_output("learn", "--out", path, what="slides", mark=MARK)
    text = slides_page(chapter, record([chapter]))
    with replacing("learn", "--out", path) as draft:
        draft.write_text(text, encoding="utf-8")
    return path


def slides_page(chapter: Chapter, results: Results) -> str:
    """The page of a chapter's slides, which needs no other file."""
    shown = [part for part in chapter.parts if isinstance(part, Visual)]
    drawn = {each.name: {"kind": each.kind, "data": _recorded(chapter, each.name, results).data} for each in shown}
    kinds = frozenset(each.kind for each in shown)
    script, style = _script(kinds), _style(kinds)
    policy = (
        f"default-src 'none'; script-src {hashed(script)}; style-src {hashed(style)}; img-src data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    found = list(slides(chapter, results))
    parts = {
        "policy": html.escape(policy, quote=True),
        "title": html.escape(f"{chapter.number}. {chapter.title}: slides"),
        "mark": MARK,
        "style": style,
        "script": script,
        "slides": "\n".join(_slide(each, number, len(found)) for number, each in enumerate(found, 1)),
        "data": json_for_html({"visuals": {name: each for name, each in drawn.items() if each["data"]}}),
    }
    return filled(_part("slides.html"), parts)


def slides(chapter: Chapter, results: Results) -> Iterator[Slide]:
    """The slides of a chapter in order."""
    minutes = " + ".join(map(str, chapter.minutes))
    yield Slide(f"Chapter {chapter.number}", chapter.title, f'<p class="soft">About {minutes} minutes</p>')
    heading, said, formulas = chapter.title, "", ""
    for part in chapter.parts:
        found = _recorded(chapter, part.name, results)
        match part:
            case Text():
                titles = HEADING.findall(part.text)
                if titles:
                    heading, formulas = titles[-1], ""
                said += prose(part.text)
                formulas += "".join(prose(each) for each in FORMULAS.findall(part.text))
                continue
            case Question():
                slide = _question(part, found)
            case Reveal():
                slide = Slide("Result", "", code(part.code.strip()), [printed(found)])
            case Claim():
                slide = _claim(part, found)
            case Visual():
                slide = _visual(part, found)
            case _:
                continue
        slide.heading = heading
        slide.shown = formulas + slide.shown
        slide.notes = said + slide.notes
        said = formulas = ""
        yield slide
    yield Slide("The end", chapter.title, _contents(chapter), notes=said)


def _question(question: Question, found: Recorded) -> Slide:
    shown = FORMS[question.form].shown(question.fields)
    answer = f'<p class="outcome">The answer is {html.escape(shown)}.</p>{prose(question.fields.get("right", ""))}'
    steps = [code_and_output(question.reveal, found)] if question.reveal else []
    others = "".join(f"<li>{inline(each)}</li>" for each in whys(question))
    notes = f"<h3>Other answers</h3><ul>{others}</ul>" if others else ""
    kind = "Predict" if question.predicts else "Question"
    return Slide(kind, "", f"{prose(question.ask)}{prose(given(question))}", [*steps, answer], notes)


def _claim(claim: Claim, found: Recorded) -> Slide:
    source = f'<p class="soft">{html.escape(claim.source)}</p>' if claim.source else ""
    outcome = f'<p class="outcome">{inline(OUTCOMES[claim.outcome].format(claim.condition))}</p>'
    program = claim.code.split('"""', 2)[-1].strip("\n")
    return Slide(
        "Is it true?",
        "",
        f"<blockquote>{prose(claim.statement)}</blockquote>{source}",
        [f"{code(program)}\n{printed(found)}", outcome],
    )


def _visual(visual: Visual, found: Recorded) -> Slide:
    missing = f"<p>It is not drawn, because it needs a package: <code>{html.escape(found.missing)}</code></p>"
    return Slide(
        "Try it",
        "",
        f'<figure class="visual" data-visual="{visual.name}"><figcaption>{inline(visual.caption)}</figcaption>'
        f"{missing if found.missing else ''}<div></div></figure>",
    )


def _contents(chapter: Chapter) -> str:
    """The sections of a chapter, for its last slide."""
    titles = [title for part in chapter.parts if isinstance(part, Text) for title in HEADING.findall(part.text)]
    return "<ul>" + "".join(f"<li>{inline(each)}</li>" for each in titles) + "</ul>"


def _slide(slide: Slide, number: int, count: int) -> str:
    steps = "\n".join(f'<div class="step">{each}</div>' for each in slide.steps)
    notes = slide.notes or "<p>No notes.</p>"
    return (
        f'<section class="slide" id="slide-{number}" aria-roledescription="slide" aria-labelledby="title-{number}">\n'
        f'<div class="screen"><p class="kind">{html.escape(slide.kind)}</p>\n'
        f'<h2 id="title-{number}">{inline(slide.heading)}</h2>\n{slide.shown}\n{steps}</div>\n'
        f'<aside class="notes" aria-label="Speaker notes of slide {number}">{notes}</aside>\n'
        f'<p class="page" aria-hidden="true">{number} / {count}</p></section>'
    )


def _recorded(chapter: Chapter, name: str, results: Results) -> Recorded:
    return results.get((chapter.number, name), Recorded())


def _part(name: str) -> str:
    return files(__package__).joinpath("web", name).read_text(encoding="utf-8")


@functools.cache
def _script(kinds: frozenset[str]) -> str:
    return visuals.script(kinds) + "\n" + stripped(_part("slides.js"))


@functools.cache
def _style(kinds: frozenset[str]) -> str:
    return "\n".join([stripped(_part("course.css")), visuals.style(kinds), stripped(_part("slides.css"))])
