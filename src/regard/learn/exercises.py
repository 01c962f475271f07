"""The learner's work on exercises: task, check, hint, solution."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from ..common.errors import refuse
from ..common.optional import needs
from .chapter import Chapter, Exercise, key_of
from .checking.check import Checked, checked
from .folder import USUAL, starts
from .progress import changing, read
from .running import installed
from .screen import Screen
from .source import chapter_of


class Exercises:
    """The exercises of one learner's folder."""

    def __init__(self, folder: Path, chapters: list[Chapter], screen: Screen):
        self.folder, self.chapters, self.screen = folder, chapters, screen

    @property
    def command(self) -> str:
        """What to type for this folder."""
        return "regard learn" if self.folder in (Path(), USUAL) else f"regard learn {self.folder}"

    def chapter(self, number: int | None) -> Chapter:
        """The chapter of a number, or the one that is being read."""
        if number is None:
            current = read(self.folder).current
            number = self.chapters[0].number if current is None else current
        return chapter_of(self.chapters, number)

    def task(self, chapter: Chapter, exercise: Exercise, path: Path) -> None:
        """What to do, and how to go on."""
        self.screen.heading(f"Exercise: {exercise.function}   (about {exercise.minutes} minutes)")
        self.screen.prose(exercise.task)
        missing = installed(exercise.needs)
        if missing:
            self.screen.note(f"It needs PyTorch: {missing}")
        self.screen.note(
            f"Write it in {path}, then check it: {self.command} --check\n"
            "--watch instead checks at each save; --hint helps."
        )

    def check_exercise(self, chapter: Chapter, exercise: Exercise, path: Path) -> bool:
        """Checks a file, notes the try, and shows what came out."""
        found = checked(chapter, exercise, path)
        note_check(self.folder, chapter, exercise, found)
        self.screen.checked(found, exercise)
        if found.problem is None and exercise.after:
            self.screen.prose(exercise.after)
        return found.problem is None

    def check_file(self, path: Path) -> bool:
        """Checks all exercises that a file is for."""
        known = files(self.chapters)
        if path.name not in known:
            raise refuse(
                "learn",
                "the file is not one of the course",
                str(path),
                "a file that regard learn wrote, such as " + next(iter(known)),
                "regard learn --list shows the files",
            )
        right = [self.check_exercise(chapter, exercise, path) for chapter, exercise in known[path.name]]
        return all(right)

    def current(self, number: int | None = None) -> tuple[Chapter, Exercise, Path]:
        """The exercise that the learner works on: the first of the chapter that is not passed."""
        progress = read(self.folder)
        chapter = self.chapter(number)
        left = [each for each in chapter.exercises if not progress.passed(key_of(chapter, each))]
        if not left:
            expected = "an exercise that is not passed" if chapter.exercises else "a chapter with exercises"
            given = f"chapter {chapter.number}: {'all are passed' if chapter.exercises else 'it has none'}"
            fix = "go on with regard learn, or name a file: regard learn --check FILE"
            raise refuse("learn", "no exercise is left", given, expected, fix)
        return chapter, left[0], starts(self.folder, chapter, left[0])

    def hint(self, number: int | None = None) -> None:
        """The next of three hints."""
        chapter, exercise, _ = self.current(number)
        with changing(self.folder) as progress:
            noted = progress.exercise(key_of(chapter, exercise))
            step = min(noted["hints"], len(exercise.hints) - 1)
            noted["hints"] = step + 1
        self.screen.heading(f"Hint {step + 1} of {len(exercise.hints)} for {exercise.function}")
        self.screen.prose(exercise.hints[step])

    def show(self, number: int | None = None) -> None:
        """The solution, once the learner has tried."""
        chapter, exercise, _ = self.current(number)
        note_shown(self.folder, chapter, exercise, "regard learn --check, or regard learn --hint")
        self.screen.heading(f"A solution of {exercise.function}")
        self.screen.code(exercise.solution.strip("\n"))
        self.screen.note("That it was shown is noted in your progress.")

    def watch(self, number: int | None = None) -> None:
        """Checks a file each time it is saved, until Ctrl-C."""
        needs("learn --watch", "learn", "watchfiles")
        from watchfiles import watch

        *_, path = self.current(number)
        self.screen.note(f"Waiting for {path.name} to be saved. Ctrl-C ends it.")
        with contextlib.suppress(KeyboardInterrupt):
            for changes in watch(self.folder, debounce=100, step=20, raise_interrupt=True):
                for name in saved(changes, files(self.chapters)):
                    self.check_file(name)
                    self.screen.note("Waiting for the next save. Ctrl-C ends it.")


def files(chapters: Iterable[Chapter]) -> dict[str, list[tuple[Chapter, Exercise]]]:
    """The exercises of each file, by the file's name."""
    known: dict[str, list[tuple[Chapter, Exercise]]] = {}
    for chapter in chapters:
        for exercise in chapter.exercises:
            known.setdefault(chapter.file_of(exercise), []).append((chapter, exercise))
        if chapter.exercises:
            both = [(chapter, each) for each in chapter.exercises if not each.tests_of]
            known[chapter.fast_file] = both
    return known


def note_check(folder: Path, chapter: Chapter, exercise: Exercise, found: Checked) -> None:
    """Notes a try, and whether it passed."""
    with changing(folder) as progress:
        noted = progress.exercise(key_of(chapter, exercise))
        noted["tries"] += 1
        if found.problem is None and not noted["passed"]:
            noted["passed"] = "shown" if noted["shown"] else True


def note_shown(folder: Path, chapter: Chapter, exercise: Exercise, fix: str) -> None:
    """Notes that the solution was shown; raises Refused before the first try. fix: how to try"""
    with changing(folder) as progress:
        noted = progress.exercise(key_of(chapter, exercise))
        if not noted["tries"]:
            raise refuse(
                "learn",
                "the solution is shown after a try",
                f"no check of {chapter.file_of(exercise)} so far",
                "at least one",
                fix,
            )
        noted["shown"] = True


def saved(changes: Iterable[tuple[object, str]], known: Container[str]) -> Iterator[Path]:
    """The learner's files among those that changed and still exist."""
    for name in sorted({name for _, name in changes}):
        path = Path(name)
        if path.name in known and path.is_file():
            yield path
