"""Screen: where a lesson is shown, and where answers come from."""

from __future__ import annotations

from typing import Protocol

from .chapter import Exercise
from .checking.check import Checked

__all__ = ["Screen", "Stopped"]


class Stopped(Exception):
    """The learner stops here; the next `regard learn` goes on from here."""


class Screen(Protocol):
    """Where a lesson is shown, and where answers come from."""

    def heading(self, text: str) -> None: ...
    def prose(self, markdown: str) -> None: ...
    def code(self, code: str, numbered: bool = False) -> None: ...
    def output(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def right(self, text: str) -> None: ...
    def wrong(self, text: str) -> None: ...
    def checked(self, result: Checked, exercise: Exercise) -> None: ...

    def answer(self, how: str) -> str:
        """What the learner types. Raises Stopped at the end of the input."""
        ...

    def pause(self) -> None:
        """Waits until the learner has read. Raises Stopped at the end of the input."""
        ...
