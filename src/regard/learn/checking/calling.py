"""Runs code of a learner or of a chapter: what it prints is kept, and printing too much is an error."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...conformance.process.frames import said

KEPT = 4000  # characters that a step prints and that are shown
FLOOD = 10 << 20  # characters that a step may print


class Flood(BaseException):
    """The code prints more than anyone reads. Not an Exception, so that `except Exception` does not go on."""


class Printed(io.StringIO):
    """What is printed, as far as it is shown: kept here, and sent to the parent, which may have to end this process."""

    def __init__(self, most: int):
        super().__init__()
        self.most, self.count = most, 0

    def write(self, text: str) -> int:
        self.count += len(text)
        if self.count > FLOOD:
            raise Flood
        shown = text[: max(self.most - self.tell(), 0)]
        if shown:
            super().write(shown)
            with contextlib.suppress(OSError):  # the code may have closed it
                os.write(2, shown.encode("utf-8", "replace"))
        return len(text)


@contextlib.contextmanager
def printing(most: int = 0) -> Iterator[Printed]:
    """Keeps the first `most` characters that are printed. A copy of this process, made by `os.fork`, ends here."""
    process = os.getpid()
    printed = Printed(most)
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            np.errstate(all="ignore"),
        ):
            yield printed
    finally:
        if os.getpid() != process:
            os._exit(0)


def executed(code: str, where: str, names: dict[str, Any]) -> dict[str, Any]:
    """The names after running code, which is compiled as a file of its own."""
    exec(compile(code, where, "exec", dont_inherit=True), names)
    return names


@dataclass(frozen=True)
class Failed:
    """A case that raised an error. kind: its type · words: type and message"""

    kind: str
    words: str


def failed(error: BaseException) -> Failed:
    """An error as a result that can be compared."""
    return Failed(type(error).__name__, said(error))


def raised(body: Callable[[], Any]) -> BaseException | None:
    """The error that a learner's code raises, which may be anything."""
    try:
        body()
    except BaseException as error:  # also SystemExit and KeyboardInterrupt, which are problems of the code too
        return error
    return None
