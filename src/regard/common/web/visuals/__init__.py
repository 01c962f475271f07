"""Visuals: figures of attention that compute in the page, and change when the reader changes a number.

The viewer and the pages of the course use the same ones. A kind is a row of `KINDS` and a script of its name beside
this file, which adds `visuals["NAME"] = (root, data) => …`; parts.js says what it returns. Every number that a visual
shows is a <data> element with all its digits, so that a test can compare it with NumPy's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files

from ..html_page import stripped
from .kinds import KINDS, Kind, given

__all__ = ["KINDS", "Kind", "given", "script", "style"]


def script(kinds: Iterable[str], also: Sequence[str] = ()) -> str:
    """The script that draws visuals of these kinds.

    It is one block, so that its names, such as `draw`, cannot be taken for those of the page's own scripts. They see
    `visuals` alone, and the names in `also`: ("make",) is the function of parts.js that makes an element.
    """
    # Elements and controls, and the mathematics, are common to all visuals.
    code = "\n".join(_parts(kinds, ("parts", "numbers"), "js"))
    seen = ", ".join(("visuals", *also))
    return f'const {{ {seen} }} = (() => {{\n"use strict";\n{code}\nreturn {{ {seen} }};\n}})();'


def style(kinds: Iterable[str]) -> str:
    """The style of visuals of these kinds. It uses the colors of the page: --paper, --ink, --soft, --line, --accent,
    --raised, --right, --wrong, --q, --k and --v.
    """
    return "\n".join(_parts(kinds, ("visuals",), "css"))


def _parts(kinds: Iterable[str], common: Sequence[str], ending: str) -> Iterator[str]:
    """The files of these kinds and of their parts, each once; not every part has a style."""
    wanted = sorted(set(kinds))
    for name in dict.fromkeys([*common, *(part for kind in wanted for part in KINDS[kind].parts), *wanted]):
        file = files(__package__).joinpath(f"{name}.{ending}")
        if ending == "js" or file.is_file():
            yield stripped(file.read_text(encoding="utf-8"))
