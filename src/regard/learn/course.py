"""Course: what each option of `regard learn` does, in one learner's folder."""

from __future__ import annotations

import contextlib
import tempfile
import urllib.parse
import webbrowser
from pathlib import Path

from ..common.errors import refuse
from ..common.text.units import counted
from .card import read_card
from .chapter import Chapter, Exercise, files
from .checking.check import checked
from .folder import add_note, changing, place_in, predictions, put_aside, read, starts
from .lesson import Lesson
from .screen import Screen, Stopped
from .source import chapter_of, chapters, read_chapter


class Course(Lesson):
    """The course, its learner's folder, and the screen. own: a folder with a teacher's own chapters, which is noted."""

    def __init__(self, folder: Path, screen: Screen, own: Path | None = None):
        super().__init__(folder, chapters(own if own is not None else _noted(folder)), screen)
        self.own = own
        if folder.exists():
            self._note_own()

    def go_on(self, number: int | None = None) -> None:
        """Goes on where the learner stopped, or with a chapter."""
        if not self.folder.exists():
            self.screen.note(f"Your files will be in {self.folder}/. `regard learn` goes on where you stop.")
            self._note_own()
        try:
            self.teach(number)
        except Stopped:
            self.screen.note(f"To go on: {self.command}")

    def preview(self, path: Path) -> None:
        """A chapter's file, as a learner reads it, past its exercises; nothing is noted."""
        chapter = read_chapter(path)
        with tempfile.TemporaryDirectory() as folder:
            lesson = Lesson(Path(folder), [chapter], self.screen)
            lesson.waits = False
            with contextlib.suppress(Stopped):
                lesson.teach(chapter.number)

    def check(self, file: Path | None, number: int | None) -> bool:
        """Whether a file, or the exercise that is worked on, is right."""
        right = self.check_file(file) if file is not None else self.check_exercise(*self.current(number))
        if right:
            self.screen.note(f"To go on: {self.command}")
        elif file is None:  # the file may be that of another exercise, which has other hints
            self.screen.note(f"A hint: {self.command} --hint")
        return right

    def check_file(self, path: Path) -> bool:
        """Checks the exercise that a file is for."""
        known = files(self.chapters)
        if path.name not in known:
            raise refuse(
                "learn",
                "the file is not one of the course",
                str(path),
                "a file that regard learn wrote, such as " + next(iter(known)),
                "regard learn --list shows the files",
            )
        return self.check_exercise(*known[path.name], path)

    def current(self, number: int | None = None) -> tuple[Chapter, Exercise, Path]:
        """The exercise that the learner works on: the first of the chapter that is not passed."""
        progress = read(self.folder)
        chapter = self.chapter(number)
        left = [each for each in chapter.exercises if not progress.passed(each.key)]
        if not left:
            given = f"chapter {chapter.number}, whose {counted(len(chapter.exercises), 'exercise')} are passed"
            fix = "go on with regard learn, or name a file: regard learn --check FILE"
            raise refuse("learn", "no exercise is left", given, "an exercise that is not passed", fix)
        return chapter, left[0], starts(self.folder, left[0])

    def hint(self, number: int | None = None) -> None:
        """The next of three hints."""
        self.next_hint(self.current(number)[1])

    def show(self, number: int | None = None) -> None:
        """The solution, once the learner has tried."""
        exercise = self.current(number)[1]
        with changing(self.folder) as progress:
            progress.note_shown(exercise, "regard learn --check, or regard learn --hint")
        self.screen.heading(f"A solution of {exercise.function}")
        self.screen.code(exercise.solution)
        self.screen.note("That it was shown is noted in your progress.")

    def serve(self, number: int | None, port: int, open_browser: bool) -> None:
        """The course in the browser, until Ctrl-C; its address is printed before the server starts.

        number: the chapter to open, or None for the contents · port: 0 for any that is free
        """
        from .pages.server import CourseServer
        from .pages.site import name_of

        page = "" if number is None else name_of(chapter_of(self.chapters, number))
        self._note_own()
        server = CourseServer(self.folder, self.chapters, port=port)
        address = server.address + urllib.parse.quote(page)
        print(f"Press Ctrl-C to stop. Open in a browser on this machine: {address}", flush=True)
        if open_browser:
            webbrowser.open(address)
        server.run()

    def ask(self, question: str) -> None:
        """Notes a learner's own question, with the place where it arose."""
        chapter = self.chapter(None)
        place = read(self.folder).place.get(str(chapter.number), "")
        path = add_note(self.folder, question, place_in(chapter, place))
        self.screen.right(f"Noted in {path}.")

    def fast(self, number: int | None) -> None:
        """Writes the files of all exercises of a chapter, for those who know."""
        self._note_own()
        for exercise in self.chapter(number).exercises:
            self.task(exercise, starts(self.folder, exercise))
        self.screen.note("To check one of these files: regard learn --check FILE")

    def reset(self, number: int) -> None:
        """Begins a chapter anew."""
        chapter = chapter_of(self.chapters, number)
        moved = put_aside(self.folder, chapter)
        with changing(self.folder) as progress:
            progress.forget(number)
            progress.current = number
        for path in moved:
            self.screen.note(f"kept as {path}")
        self.screen.right(f"Chapter {number} begins anew: {self.command}")

    def card(self, path: Path) -> bool:
        """Whether the files that a card holds are right: copies of them are checked."""
        known, right = files(self.chapters), True
        with tempfile.TemporaryDirectory() as folder:
            for name, code in read_card(path, known).items():
                chapter, exercise = known[name]
                copy = Path(folder, name)
                copy.write_text(code, encoding="utf-8")
                found = checked(chapter, exercise, copy, copy.parent)
                self.screen.checked(found, exercise)
                right = right and found.problem is None
        return right

    def claim(self, name: str) -> None:
        """Runs a claim by name; `all` lists them."""
        known = {claim.name: claim for chapter in self.chapters for claim in chapter.claims}
        if name == "all":
            self.screen.table([[claim.name, claim.outcome, claim.statement] for claim in known.values()])
            return
        if name not in known:
            raise refuse(
                "learn", "the claim does not exist", name, "the name of a claim", "regard learn --claim all lists them"
            )
        self.show_claim(known[name])

    def list_chapters(self) -> None:
        """The chapters, and how far the learner is."""
        progress = read(self.folder)
        rows = [["", "chapter", "minutes", "exercises", "right answers", "files"]]
        for chapter in self.chapters:
            place = progress.place.get(str(chapter.number))
            mark = "done" if place == "" else "here" if chapter.number == progress.current else ""
            passed = sum(progress.passed(each.key) for each in chapter.exercises)
            answers = predictions(progress, chapter)
            rows.append(
                [
                    mark,
                    f"{chapter.number}  {chapter.title}",
                    chapter.time,
                    f"{passed} of {len(chapter.exercises)}",
                    f"{answers.right} of {answers.count}",
                    "\n".join(each.file_name for each in chapter.exercises),
                ]
            )
        self.screen.table(rows)

    def _note_own(self) -> None:
        """Later commands find the teacher's chapters by themselves."""
        if self.own is not None:
            with changing(self.folder) as progress:
                progress.own = str(self.own.resolve())


def _noted(folder: Path) -> Path | None:
    """The folder of a teacher's own chapters that a learner's folder notes."""
    own = read(folder).own
    if own and not Path(own).is_dir():
        raise refuse(
            "learn",
            "the folder of your teacher's chapters does not exist",
            own,
            "the folder that --chapters named",
            "regard learn --chapters FOLDER, with its new place",
        )
    return Path(own) if own else None
