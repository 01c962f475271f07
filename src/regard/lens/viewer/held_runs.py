"""The runs of a served page by number: the given ones, and the last of those that were made on request."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ...common.errors import refuse
from ..runs.run import Run

HELD = 16  # runs that were made on request; those that were not used for the longest time are forgotten


class HeldRuns:
    """Runs by number. Numbers are never used twice, so that the page can cache what it knows about a run."""

    def __init__(self, given: Sequence[Run]):
        self._given = tuple(given)
        self._made: OrderedDict[int, Run] = OrderedDict()
        self._count = len(given)
        self._lock = threading.Lock()

    def add(self, run: Run) -> int:
        """The number of a new run."""
        with self._lock:
            number, self._count = self._count, self._count + 1
            self._made[number] = run
            while len(self._made) > HELD:
                self._made.popitem(last=False)
            return number

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Run:
        if isinstance(number, int) and not isinstance(number, bool):
            if 0 <= number < len(self._given):
                return self._given[number]
            with self._lock:
                if number in self._made:
                    self._made.move_to_end(number)
                    return self._made[number]
        raise refuse(
            "run",
            "no such run",
            str(number)[:40],
            "the number of a run that the server holds",
            "enter the text again, or load the page again",
        )
