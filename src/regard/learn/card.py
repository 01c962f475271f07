"""Card: what a learner's model wrote, as SVG and as Markdown, with the files that compute it, for anybody to check."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Container
from pathlib import Path

from ..common.errors import refuse
from ..common.web.html_page import filled
from .pages.site import web_file

NAMES = "17_attention.py", "17_block.py"  # the files that it holds
FILE = re.compile(r"^````python (\w+\.py)\n(.*?)^````$", re.M | re.S)


def write_card(says: str) -> None:
    """Writes card.svg and card.md into this folder, beside the files that they hold. says: what the model wrote"""
    rows = textwrap.wrap(says, 68)[:8]
    codes = [f"````python {name}\n{Path(name).read_text(encoding='utf-8').strip()}\n````\n" for name in NAMES]
    text = "\n".join(["# Words of a model on my own attention\n", *(f"> {row}" for row in rows), "", *codes])
    lines = "".join(f'<tspan x="32" dy="28">{html.escape(row)}</tspan>' for row in rows)
    Path("card.svg").write_text(filled(web_file("card.svg"), {"held": html.escape(text), "lines": lines}), "utf-8")
    Path("card.md").write_text(f"{text}\nTo check it: `regard learn --claim card.md`\n", "utf-8")


def read_card(path: Path, known: Container[str]) -> dict[str, str]:
    """The files that a card holds. known: those of the course. Raises Refused if it holds none of them."""
    text = path.read_text("utf-8", "replace")
    held = FILE.findall(html.unescape(text) if path.suffix == ".svg" else text)
    found = {name: code for name, code in held if name in known}
    if not found:
        expected = "a card with files of the course"
        raise refuse("learn", "nothing to check", str(path), expected, "write one: python 17_block.py")
    return found
