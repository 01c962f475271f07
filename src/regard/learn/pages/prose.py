"""Prose: the Markdown of a chapter, and its code, as HTML. Raw HTML in it is shown as text, never interpreted."""

from __future__ import annotations

import functools
import html
from typing import TYPE_CHECKING

from ...common.optional import requires_extra

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
