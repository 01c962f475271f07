"""Recorded: what the code of chapters printed, computed and judged, for pages that cannot run it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from ..chapter import Chapter, Claim, Part, Question, Reveal, Visual
from ..running import installed, outcome, reveal, visual_data


@dataclass(frozen=True)
class Recorded:
    """What one block gave.

    text: what it printed · outcome: of a claim · data: of a visual · missing: how to install what it needs, if that was
    not there; then nothing was run
    """

    text: str = ""
    outcome: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    missing: str = ""


def record(chapters: Sequence[Chapter], workers: int = 2) -> dict[tuple[int, str], Recorded]:
    """What each block of the chapters gives, by the number of the chapter and its name. Raises what the code raises."""
    blocks = [(chapter.number, block) for chapter in chapters for block in runnable(chapter)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        found = pool.map(run, [block for _, block in blocks])
        return {(number, block.name): each for (number, block), each in zip(blocks, found)}


def runnable(chapter: Chapter) -> Iterator[Reveal | Claim | Visual]:
    """The blocks of a chapter that run; the reveal of a question has the question's name."""
    part: Part
    for part in chapter.parts:
        match part:
            case Question(reveal=Reveal() as shown):
                yield shown
            case Reveal() | Claim() | Visual():
                yield part


def run(block: Reveal | Claim | Visual) -> Recorded:
    """Runs one block."""
    missing = installed(block.needs)
    if missing:
        return Recorded(missing=missing)
    match block:
        case Reveal():
            return Recorded(text=reveal(block).text)
        case Claim():
            found = outcome(block)
            return Recorded(text=found.text, outcome=found.outcome)
    return Recorded(data=visual_data(block))
