"""The scripts and styles of visuals, for a page that shows some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files

from ..html_page import stripped
from .kinds import KINDS

COMMON = ("parts", "numbers")  # of all visuals: elements and controls; the mathematics


def script(kinds: Iterable[str], also: Sequence[str] = ()) -> str:
    """The script that draws visuals of these kinds.

    It is one block, so that its names, such as `draw`, cannot be taken for those of the page's own scripts. They see
    `visuals` alone, and the names in `also`: ("make",) is the function of parts.js that makes an element.
    """
    wanted = sorted(set(kinds))
    names = dict.fromkeys([*COMMON, *(part for kind in wanted for part in KINDS[kind].parts), *wanted])
    code = "\n".join(stripped(_part(f"{name}.js")) for name in names)
    seen = ", ".join(("visuals", *also))
    return f'const {{ {seen} }} = (() => {{\n"use strict";\n{code}\nreturn {{ {seen} }};\n}})();'


def style(kinds: Iterable[str]) -> str:
    """The style of visuals of these kinds. It uses the colors of the page: --paper, --ink, --soft, --line, --accent,
    --raised, --right, --wrong, --q, --k and --v.
    """
    wanted = sorted(set(kinds))
    names = dict.fromkeys(["visuals", *(part for kind in wanted for part in KINDS[kind].parts), *wanted])
    styles = (f"{name}.css" for name in names)  # not every part has one
    return "\n".join(stripped(_part(name)) for name in styles if files(__package__).joinpath(name).is_file())


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
