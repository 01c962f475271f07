"""Slides: what a chapter shows, one after another on the screen, as one page with speaker notes. Its code runs once.

A question is a slide, its code with the output and its answer are the next steps; a visual is a slide, too. The text
between them is in the notes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...common.files.output import check_output, replacing
from ...common.web import visuals
from ...common.web.html_page import filled, hashed, json_for_html, stripped
from ..chapter import Chapter, Claim, Question, Reveal, Text, Visual
from ..forms import options, whys
from ..running import Recorded, Results, record
from .chapter_html import answer, code, code_and_output, data, figure, inline, printed, prose
from .site import web_file

HEADING = re.compile(r"^## +(.*)$", re.M)
FORMULAS = re.compile(r"^```math\n.*?^```$", re.M | re.S)
MARK = '<meta name="generator" content="regard slides">'


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
    text = slides_page(chapter, *record([chapter]))
    with replacing("learn", "--out", path) as draft:
        draft.write_text(text, encoding="utf-8")
    return path


def slides_page(chapter: Chapter, results: Results) -> str:
    """The page of a chapter's slides, which needs no other file."""
    drawn = data(chapter, results)["visuals"]
    kinds = frozenset(each["kind"] for each in drawn.values())
    script = visuals.script(kinds, also=("make",)) + "\n" + stripped(web_file("slides.js"))
    style = "\n".join([stripped(web_file("course.css")), visuals.style(kinds), stripped(web_file("slides.css"))])
    policy = (
        f"default-src 'none'; script-src {hashed(script)}; style-src {hashed(style)}; img-src data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    found = list(slides(chapter, results))
    parts = {
        "policy": html.escape(policy),
        "title": html.escape(f"{chapter.number}. {chapter.title}: slides"),
        "mark": MARK,
        "style": style,
        "script": script,
        "slides": "\n".join(_slide(each, number, len(found)) for number, each in enumerate(found, 1)),
        "data": json_for_html({"visuals": {name: each for name, each in drawn.items() if each["data"]}}),
    }
    return filled(web_file("slides.html"), parts)


def slides(chapter: Chapter, results: Results) -> Iterator[Slide]:
    """The slides of a chapter in order."""
    yield Slide(f"Chapter {chapter.number}", chapter.title, f'<p class="soft">About {chapter.time} minutes</p>')
    heading, said, formulas = chapter.title, "", ""
    for part in chapter.parts:
        found = results.get(part.name, Recorded())
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
                slide = Slide("Try it", "", figure(part, found))
            case _:
                continue
        slide.heading = heading
        slide.shown = formulas + slide.shown
        slide.notes = said + slide.notes
        said = formulas = ""
        yield slide
    yield Slide("The end", chapter.title, "", notes=said)


def _question(question: Question, found: Recorded) -> Slide:
    steps = [code_and_output(question.reveal, found)] if question.reveal else []
    others = "".join(f"<li>{inline(each)}</li>" for each in whys(question))
    notes = f"<h3>Other answers</h3><ul>{others}</ul>" if others else ""
    return Slide(
        question.title,
        "",
        f"{prose(question.ask)}{prose(options(question))}",
        [*steps, answer(question, "outcome")],
        notes,
    )


def _claim(claim: Claim, found: Recorded) -> Slide:
    source = f'<p class="soft">{html.escape(claim.source)}</p>' if claim.source else ""
    outcome = f'<p class="outcome">{inline(f"It {claim.conclusion(claim.outcome)}.")}</p>'
    return Slide(
        "Is it true?",
        "",
        f"<blockquote>{prose(claim.statement)}</blockquote>{source}",
        [f"{code(claim.program)}\n{printed(found)}", outcome],
    )


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
