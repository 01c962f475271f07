"""Checks: the learner's files are checked when they are saved, one after another; pages that wait hear it."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...common.errors import Refused
from ..chapter import Chapter, Exercise, files
from ..checking.check import Checker
from ..checking.problem import Message, message
from ..folder import NAME, changing

GLANCE = 0.2  # seconds between two looks at the folder

Entry = tuple[Chapter, Exercise, Path]


class Checks:
    """The checks of one learner's folder, in a thread that waits for saves.

    version: grows with everything that a page shows · results: by "chapter/name", as types of JSON
    """

    def __init__(self, folder: Path, chapters: Sequence[Chapter]) -> None:
        self.folder, self.known = folder, files(chapters)
        self.version = 0
        self.results: dict[str, dict[str, Any]] = {}
        self._waiting: dict[str, Entry] = {}  # in the order of their saves; a file that is saved again waits once
        self._checking = ""
        self._checker: Checker | None = None
        self._change = threading.Condition()
        self._over = threading.Event()

    def start(self) -> None:
        """Begins to wait for saves."""
        threading.Thread(target=self._watch, name="regard checks", daemon=True).start()

    def close(self) -> None:
        """Ends the thread, and a check that runs."""
        self._over.set()
        with self._change:
            child = self._checker.child if self._checker else None
        if child is not None:
            child.kill()
        self._tell()

    def check(self, chapter: Chapter, exercise: Exercise, path: Path) -> None:
        """Requests a check of a file."""
        with self._change:
            self._waiting[exercise.key] = (chapter, exercise, path)
        self._tell()

    def state(self) -> dict[str, Any]:
        """What a page shows, as types of JSON."""
        with self._change:
            checking = [*filter(None, [self._checking]), *self._waiting]
            return {"version": self.version, "results": dict(self.results), "checking": checking}

    def wait(self, known: int, seconds: float) -> None:
        """Returns when there is another version than the known one, at the end, or after some seconds."""
        with self._change:
            self._change.wait_for(lambda: self.version != known or self._over.is_set(), seconds)

    def _tell(self) -> None:
        with self._change:
            self.version += 1
            self._change.notify_all()

    # ---- saves -------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Looks again and again which files are others than before, and checks them. The folder may be removed, and
        written anew.
        """
        before = _stamps(self.folder)
        while not self._over.wait(GLANCE):
            now = _stamps(self.folder)
            for name in sorted(name for name, _ in now - before):
                if name in self.known:
                    self._saved(self.folder / name)
                if name == NAME:
                    self._tell()
            before = now
            if self._waiting:
                self._check_next()

    def _saved(self, path: Path) -> None:
        """Checks what a file is for, unless nothing has been written in it so far; while it is written, it is empty."""
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        chapter, exercise = self.known[path.name]
        if text not in ("", exercise.start):
            self.check(chapter, exercise, path)

    # ---- checks ------------------------------------------------------------------------------------------------------

    def _check_next(self) -> None:
        with self._change:
            self._checking = next(iter(self._waiting))
            chapter, exercise, path = self._waiting.pop(self._checking)
            checker = self._checker = Checker(chapter, exercise)
        self._tell()
        found = self._checked(checker, path)
        with self._change:
            if found is not None:
                self.results[self._checking] = found
            self._checking, self._checker = "", None
        self._tell()

    def _checked(self, checker: Checker, path: Path) -> dict[str, Any] | None:
        """The result of a check as types of JSON; None if the server ends meanwhile."""
        unnoted, exercise = "", checker.exercise
        try:
            with checker:
                result = checker.checked(path)
            if self._over.is_set():
                return None
            try:
                with changing(self.folder) as progress:
                    progress.note_check(exercise.key, result.problem is None)
            except Refused as refused:  # the result is shown, too, where it cannot be kept
                unnoted = f"This result could not be noted. {_because(refused)}"
            found = message(result, exercise)
        except Refused as refused:
            found = Message(False, f"{exercise.function}: not checked", what=_because(refused))
        except OSError as error:  # the file is removed, or cannot be read
            found = Message(False, f"{exercise.function}: not checked", what=f"{path}: {error.strerror}")
        return asdict(found) | {"unnoted": unnoted}


def _stamps(folder: Path) -> set[tuple[str, tuple[int, int, int]]]:
    """The name of each file, and what a save changes."""
    found = set()
    with suppress(OSError):  # it is removed just now
        for each in os.scandir(folder):
            of = each.stat()
            found.add((each.name, (of.st_ino, of.st_size, of.st_mtime_ns)))
    return found


def _because(refused: Refused) -> str:
    return " ".join(f"{each.what}: {each.given}; to go on: {each.fix}." for each in refused.reasons)
