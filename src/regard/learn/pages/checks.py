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
from ..folder import saved
from ..progress import NAME, changing

GLANCE = 0.3  # seconds until a folder that is gone is searched for again
PATIENCE = 1000  # milliseconds after which a silent folder is looked at: it may be another one now

Entry = tuple[Chapter, Exercise, Path]


class Checks:
    """The checks of one learner's folder, in two threads: one waits for saves, the other checks.

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
        self._threads = [
            threading.Thread(target=each, name=f"regard {each.__name__}", daemon=True)
            for each in (self._watch, self._check_all)
        ]

    def start(self) -> None:
        """Begins to wait for saves."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends both threads, and a check that runs."""
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
            checking = [*([self._checking] if self._checking else []), *self._waiting]
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
        """Waits for saves. The folder may be removed, and written anew; then that one is watched."""
        from watchfiles import watch

        while not self._over.is_set():
            here = _identity(self.folder)
            if here is None:
                self._over.wait(GLANCE)
                continue
            with suppress(OSError):  # it is removed just now
                for changes in watch(
                    self.folder,
                    watch_filter=None,
                    debounce=100,
                    step=20,
                    stop_event=self._over,
                    rust_timeout=PATIENCE,
                    yield_on_timeout=True,
                    recursive=False,
                ):
                    for path in saved(changes, self.known):
                        self._saved(path)
                    if any(Path(name).name == NAME for _, name in changes):
                        self._tell()
                    # A new folder may have the number of the one that was removed.
                    if _identity(self.folder) != here or any(Path(name) == self.folder for _, name in changes):
                        break

    def _saved(self, path: Path) -> None:
        """Checks what a file is for, unless nothing has been written in it so far."""
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        for chapter, exercise in self.known[path.name]:
            if text != exercise.start:
                self.check(chapter, exercise, path)

    # ---- checks ------------------------------------------------------------------------------------------------------

    def _check_all(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._over.is_set())
                if self._over.is_set():
                    return
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


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _because(refused: Refused) -> str:
    return " ".join(f"{each.what}: {each.given}; to go on: {each.fix}." for each in refused.reasons)
