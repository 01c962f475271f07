"""Whether what the course states holds for other random numbers, too: `python -m bench.course_seeds [CHAPTER.md …]`.

A question has to have its stated answer, and a claim its stated outcome, for 30 other seeds. Programs that train are
left out, because they take too long: their numbers are those of one run.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

from regard.learn.chapter import Chapter, Claim, Question
from regard.learn.forms import FORMS
from regard.learn.running import execute, installed, run
from regard.learn.source import chapters, read_chapter

SEEDS = 30
RANDOM = re.compile(r"default_rng|manual_seed")
TRAINS = re.compile(r"backward\(\)|^steps = ", re.M)


@contextlib.contextmanager
def other_numbers(seed: int) -> Iterator[None]:
    """Generators of NumPy and PyTorch begin elsewhere than the code says."""
    usual = np.random.default_rng
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("numpy.random.default_rng", lambda own=0: usual([own, seed])))
        if not installed("torch"):
            import torch

            begin = torch.manual_seed
            stack.enter_context(mock.patch("torch.manual_seed", lambda own: begin(own + 7919 * seed)))
        yield


def holds(part: Question | Claim) -> bool:
    """Whether the code of a part gives what the chapter states."""
    if isinstance(part, Claim):
        return run(part).outcome == part.outcome
    answer = None if part.reveal is None else execute(part.reveal)[0].get("answer")
    return answer is not None and FORMS[part.form].judge(answer, part.fields).right


def unstable(chapter: Chapter, seeds: int = SEEDS) -> Iterator[tuple[str, list[int]]]:
    """The names of parts whose statement fails for some of the seeds, and these seeds."""
    for part in chapter.parts:
        block = part.reveal if isinstance(part, Question) else part if isinstance(part, Claim) else None
        if block is None or block.needs == "demo" or installed(block.needs) or not RANDOM.search(block.code):
            continue
        if TRAINS.search(block.code):
            continue
        failing = []
        for seed in range(1, seeds + 1):
            with other_numbers(seed):
                if not holds(part):
                    failing.append(seed)
        if failing:
            yield part.name, failing


def main() -> None:
    """Prints a line for each part that does not hold; the exit status is 1 if there is one."""
    failed = False
    for chapter in [read_chapter(Path(path)) for path in sys.argv[1:]] or chapters():
        for name, failing in unstable(chapter):
            print(f"{chapter.path.stem}  {name}: fails for {len(failing)} of {SEEDS} seeds: {failing}", flush=True)
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
