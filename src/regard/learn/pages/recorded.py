"""Recorded: what the code of chapters printed, computed and judged, for pages that cannot run it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from ..chapter import Chapter
from ..running import Recorded, run, runnable


def record(chapters: Sequence[Chapter], workers: int = 2) -> dict[tuple[int, str], Recorded]:
    """What each block of the chapters gives, by the number of the chapter and its name. Raises what the code raises."""
    blocks = [(chapter.number, block) for chapter in chapters for block in runnable(chapter)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        found = pool.map(run, [block for _, block in blocks])
        return {(number, block.name): each for (number, block), each in zip(blocks, found)}
