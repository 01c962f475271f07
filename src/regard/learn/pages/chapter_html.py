"""A chapter as HTML: its parts in order, each an element with the name of the part. The script of web/ unfolds them.

Raw HTML in its Markdown is shown as text, never interpreted.
"""

from __future__ import annotations

import functools
import html
from typing import TYPE_CHECKING, Any

from ...common.optional import requires_extra
from ...common.web.visuals.kinds import plain
from ..chapter import OUTCOMES, Chapter, Claim, Exercise, Part, Question, Reveal, Text, Visual
from ..forms import FORMS, code_lines, right_answer
from ..running import Recorded, Results

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


def prose(markdown: str) -> str:
    """Paragraphs, lists, tables and blocks."""
    return _reader().render(markdown)


def inline(markdown: str) -> str:
    """A text of one paragraph, without the element of the paragraph."""
    return _reader().renderInline(markdown)


def code(text: str, language: str = "python") -> str:
    """Code with its words marked by classes; language: as Pygments names it, or "text"."""
    return f'<pre class="code" tabindex="0"><code>{_marked(text, language)}</code></pre>'


@functools.cache
def _reader() -> MarkdownIt:
    with requires_extra("learn --serve and --site", "learn"):
        from markdown_it import MarkdownIt
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.add_render_rule("fence", lambda _, tokens, at, *__: _fence(tokens[at].content, tokens[at].info or "text"))
    reader.add_render_rule("code_block", lambda _, tokens, at, *__: code(tokens[at].content, "text"))
    reader.add_render_rule("table_open", lambda *_: '<div class="wide" tabindex="0"><table>')
    reader.add_render_rule("table_close", lambda *_: "</table></div>")
    return reader


def _fence(text: str, kind: str) -> str:
    """A block of code, or of formulas, which are plain text."""
    if kind == "math":
        return f'<pre class="formula" tabindex="0"><code>{html.escape(text, quote=False)}</code></pre>'
    return code(text, kind)


def _marked(text: str, language: str) -> str:
    with requires_extra("learn --serve and --site", "learn"):
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import get_lexer_by_name
        from pygments.util import ClassNotFound
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return html.escape(text, quote=False)
    return highlight(text, lexer, HtmlFormatter(nowrap=True))


CHOICES = ("It holds.", "It holds on a condition.", "It fails.")
BUTTONS = (
    '<p class="buttons"><button type="submit">Answer</button> '
    '<button type="button" class="skip">Show the answer</button></p><p class="unread" role="alert"></p>'
)


def body(chapter: Chapter, results: Results, following: str) -> str:
    """The elements of all parts.

    results: what was recorded; nothing where the server runs the code on request · following: a link to where the short
    path goes on, shown where it leaves the chapter
    """
    deeper = f'<p class="deeper">The short path goes on with {following}. Deeper into this chapter:</p>\n'
    return "\n".join(deeper * (part is chapter.deeper) + _part(part, results) for part in chapter.parts)


def data(chapter: Chapter, results: Results) -> dict[str, Any]:
    """What the script needs to judge answers and to draw visuals."""
    return {
        "number": chapter.number,
        "title": chapter.title,
        "questions": {part.name: question_data(part) for part in chapter.questions},
        "exercises": {part.name: {"hints": len(part.hints)} for part in chapter.exercises},
        "claims": {part.name: {"outcome": part.outcome} for part in chapter.claims},
        "visuals": {
            part.name: {"kind": part.kind, "data": results.get(part.name, Recorded()).data}
            for part in chapter.parts
            if isinstance(part, Visual)
        },
    }


def question_data(question: Question) -> dict[str, Any]:
    """A question as the script judges it."""
    fields = {name: plain(value) for name, value in question.fields.items()}
    return {"key": question.key, "form": question.form, "fields": fields, "shown": right_answer(question)}


def _part(part: Part, results: Results) -> str:
    found = results.get(part.name, Recorded())
    match part:
        case Text():
            kind, inner = "text", prose(part.text)
        case Question():
            kind, inner = "question predict" if part.predicts else "question", _question(part, found)
        case Reveal():
            kind, inner = "reveal", code_and_output(part, found)
        case Claim():
            kind, inner = "claim", _claim(part, found)
        case Exercise():
            kind, inner = "exercise", _exercise(part)
        case Visual():
            kind, inner = "figure", figure(part, found)
    return f'<section class="part {kind}" id="{part.name}">\n{inner}\n</section>'


def code_and_output(block: Reveal, found: Recorded) -> str:
    """Code, and what it printed."""
    shown = code(block.shown.strip())
    if block.folded:
        shown = f"<details><summary>The program</summary>{shown}</details>"
    return f"{shown}\n{printed(found)}"


def printed(found: Recorded) -> str:
    if found.missing:
        return (
            f'<p class="note">It was not run, because it needs a package: <code>{html.escape(found.missing)}</code></p>'
        )
    return f'<pre class="output" tabindex="0"><samp>{html.escape(found.text.rstrip(), quote=False)}</samp></pre>'


def _question(question: Question, found: Recorded) -> str:
    ran = code_and_output(question.reveal, found) if question.reveal else ""
    return _form(question, question.name, f'<h3 id="{question.name}-title">{question.title}</h3>', ran)


def answer(question: Question, style: str) -> str:
    """The right answer, and why it is."""
    right = prose(question.fields.get("right", ""))
    return f'<p class="{style}">The answer is {html.escape(right_answer(question))}.</p>{right}'


def again(question: Question) -> str:
    """A question that comes back in a later chapter, without the code that answers it."""
    name = f"again-{question.chapter}-{question.name}"
    form = _form(question, name, f'<h2 id="{name}-title">Again, from chapter {question.chapter}</h2>', "")
    return f'<section class="part question again" id="{name}" data-key="{question.key}" hidden>\n{form}</section>'


def _form(question: Question, name: str, heading: str, ran: str) -> str:
    """A question with its answer. name: unique in the page · ran: the code that answers it, and what it printed"""
    return (
        f'<form autocomplete="off">{heading}\n{prose(question.ask)}\n{_asked(question, name)}\n{BUTTONS}</form>\n'
        f'<div class="judged" role="status"></div>\n<div class="answer">{ran}\n{answer(question, "fact")}</div>'
    )


def _asked(question: Question, name: str) -> str:
    """The fields in which the answer is given. name: unique in the page"""
    fields = question.fields
    match question.form:
        case "choice":
            rows = "\n".join(
                f'<label><input type="radio" name="{name}" value="{at}"><span>{inline(each["text"])}</span></label>'
                for at, each in enumerate(fields["choices"], 1)
            )
            return f'<fieldset class="choices"><legend class="unseen">Answers</legend>{rows}</fieldset>'
        case "pairs":
            options = "".join(
                f'<option value="{at}">{html.escape(str(each))}</option>'
                for at, each in enumerate(fields["right_side"], 1)
            )
            rows = "\n".join(
                f"<label><span>{inline(str(each))}</span> <select><option value=''>…</option>{options}</select></label>"
                for each in fields["left"]
            )
            return f'<fieldset class="pairs"><legend class="unseen">Partners</legend>{rows}</fieldset>'
        case "table":
            heads = "".join(f'<th scope="col">{inline(str(each))}</th>' for each in fields["columns"])
            rows = "\n".join(
                f'<tr><th scope="row">{inline(str(row))}</th>'
                + "".join(
                    f'<td><input type="text" inputmode="decimal" aria-label="{html.escape(f"{row}, {column}")}"></td>'
                    for column in fields["columns"]
                )
                + "</tr>"
                for row in fields["rows"]
            )
            return f'<div class="wide" tabindex="0"><table class="cells"><tr><td></td>{heads}</tr>{rows}</table></div>'
        case "line":
            rows = "\n".join(
                f'<label><input type="radio" name="{name}" value="{at}" aria-label="line {at}">'
                f"<code>{html.escape(line)}</code></label>"
                for at, line in enumerate(code_lines(fields), 1)
            )
            return f'<fieldset class="lines" tabindex="0"><legend class="unseen">Lines</legend>{rows}</fieldset>'
    how = html.escape(FORMS[question.form].how(fields))
    return f'<label>{how[0].upper() + how[1:]}: <input type="text" class="typed" spellcheck="false"></label>'


def _claim(claim: Claim, found: Recorded) -> str:
    source = f' <span class="source">({html.escape(claim.source)})</span>' if claim.source else ""
    choices = "\n".join(
        f'<button type="button" value="{name}">{text}</button>' for name, text in zip(OUTCOMES, CHOICES)
    )
    return (
        f'<h3 id="{claim.name}-title">Claim</h3>\n<blockquote>{prose(claim.statement)}</blockquote>{source}\n'
        f'<p class="buttons" role="group" aria-label="Is it true?">{choices}</p>\n'
        f'<div class="judged" role="status"></div>\n'
        f'<div class="answer"><p><strong>{inline(f"It {claim.conclusion(claim.outcome)}.")}</strong></p>'
        f"{code(claim.program)}\n{printed(found)}</div>"
    )


def _exercise(exercise: Exercise) -> str:
    file = exercise.file_name
    hints = "\n".join(
        f'<details class="hint"><summary>Hint {number} of {len(exercise.hints)}</summary>{prose(hint)}</details>'
        for number, hint in enumerate(exercise.hints, 1)
    )
    after = f'<div class="after">{prose(exercise.after)}</div>' if exercise.after else ""
    return (
        f'<h3 id="{exercise.name}-title">Exercise: <code>{html.escape(exercise.function)}</code> '
        f"<small>{exercise.difficulty}, about {exercise.minutes} minutes</small></h3>\n{prose(exercise.task)}\n"
        f'<p class="file">Write it in <code>{html.escape(file)}</code>. These pages run no Python: '
        f"<code>regard learn --check {html.escape(file)}</code> checks it.</p>\n"
        f'<details class="start"><summary>What the file holds at first</summary>{code(exercise.start.strip())}'
        "</details>\n"
        f'<div class="result" role="status"></div>\n{hints}\n'
        f'<details class="solution"><summary>A solution</summary>{code(exercise.solution.strip())}{after}</details>'
    )


def figure(visual: Visual, found: Recorded) -> str:
    """A visual, which the script draws."""
    missing = printed(found) if found.missing else ""
    return (
        f'<figure class="visual" data-visual="{visual.name}"><figcaption>{inline(visual.caption)}</figcaption>'
        f"{missing}<div></div></figure>"
    )
