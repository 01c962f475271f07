"""Lesson: the way through a chapter, part by part, from where the learner stopped, with the checks of its exercises."""

from __future__ import annotations

from pathlib import Path

from .chapter import Chapter, Claim, Exercise, Part, Question, Reveal, Text, Visual, returning
from .checking.check import checked
from .folder import USUAL, starts
from .forms import FORMS, Judged, Unreadable, judge, options, right_answer
from .progress import changing, read
from .running import installed, run
from .screen import Screen, Stopped
from .source import chapter_of


class Lesson:
    """Chapters in one learner's folder. waits: whether a chapter stops at an exercise until that is passed."""

    waits = True

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

    def task(self, exercise: Exercise, path: Path) -> None:
        """What to do, and how to go on."""
        self.screen.heading(f"Exercise: {exercise.function}   (about {exercise.minutes} minutes)")
        self.screen.prose(exercise.task)
        self._is_installed("A check", exercise.needs)
        self.screen.note(
            f"Write it in {path}, then check it: {self.command} --check\n"
            "--watch instead checks at each save; --hint helps."
        )

    def check_exercise(self, chapter: Chapter, exercise: Exercise, path: Path) -> bool:
        """Checks a file, notes the try, and shows what came out."""
        found = checked(chapter, exercise, path)
        with changing(self.folder) as progress:
            progress.note_check(exercise.key, found.problem is None)
        self.screen.checked(found, exercise)
        if found.problem is None and exercise.after:
            self.screen.prose(exercise.after)
        return found.problem is None

    # ---- the way through a chapter -----------------------------------------------------------------------------------

    def teach(self, number: int | None = None) -> None:
        """Goes on where the learner stopped, or with a chapter; returns at the end, raises Stopped before it."""
        chapter = self.chapter(number)
        number, key = chapter.number, str(chapter.number)
        with changing(self.folder) as progress:
            progress.current = number
            if progress.place.get(key) == "":
                del progress.place[key]
        self.screen.heading(f"Chapter {chapter.number}: {chapter.title}   (about {chapter.time} minutes)")
        if key not in progress.place:
            self._again(chapter)
        names = [part.name for part in chapter.parts]
        place = progress.place.get(key)
        for part in chapter.parts[names.index(place) if place in names else 0 :]:
            with changing(self.folder) as progress:
                progress.place[key] = part.name
            self._show(chapter, part)
        following = next((each for each in self.chapters if each.number > number), chapter)
        with changing(self.folder) as progress:
            progress.place[key] = ""
            progress.current = following.number
        self.screen.right(f"This is the end of chapter {number}.")
        go_on = f"Next: chapter {following.number}, {following.title}. To go on: {self.command}"
        self.screen.note("It is the last chapter." if following is chapter else go_on)

    def _show(self, chapter: Chapter, part: Part) -> None:
        match part:
            case Text():
                if part.after_break:
                    self._break(chapter, part)
                self.screen.prose(part.text)
                if part.says:
                    self.screen.pause()
            case Question():
                self._question(part)
            case Reveal():
                self._reveal(part)
            case Claim():
                self.show_claim(part)
                self.screen.pause()
            case Exercise():
                self._exercise(chapter, part)
            case Visual():
                self.screen.note(f"On the page (regard learn --serve) there is a figure here: {part.caption}")

    def _break(self, chapter: Chapter, part: Part) -> None:
        number = 1 + chapter.breaks.index(part)
        minutes, count = chapter.minutes[number], len(chapter.minutes)
        self.screen.heading(f"Chapter {chapter.number}, part {number + 1} of {count}   (about {minutes} minutes)")
        self.screen.note(f"A good place for a break. {self.command} goes on from here.")

    # ---- questions ---------------------------------------------------------------------------------------------------

    def _question(self, question: Question) -> None:
        before = read(self.folder).answers.get(question.key)
        if before:
            self.screen.prose(f"**The question was:** {question.ask}")
            self.screen.note(f"Your answer: {before['given'] or 'none'}")
            return
        self.screen.heading(question.title)
        given, judged = self._answered(question)
        with changing(self.folder) as progress:  # before the reveal
            progress.answered(question.key, given, judged.right)
        if question.reveal:
            self._reveal(question.reveal)
        self._said(question, given, judged)
        self.screen.pause()

    def _answered(self, question: Question) -> tuple[str, Judged]:
        """What was typed, and how it is judged; repeated until it can be read."""
        self.screen.prose(f"{question.ask}\n\n{options(question)}")
        while True:
            text = self._typed(question)
            try:
                return text, judge(question, text)
            except Unreadable as error:
                self.screen.note(str(error))

    def _typed(self, question: Question) -> str:
        how = FORMS[question.form].how(question.fields)
        if question.form != "table":
            return self.screen.answer(how)
        return "\n".join(self.screen.answer(f"{row}: {how}") for row in question.fields["rows"])

    def _said(self, question: Question, given: str, judged: Judged) -> None:
        """Whether an answer is right, and why."""
        if judged.right:
            self.screen.right(f"Right: {right_answer(question)}.")
        else:
            self.screen.wrong(f"You answered {given.strip() or 'nothing'}; the answer is {right_answer(question)}.")
            if judged.why:
                self.screen.prose(judged.why)
        if question.fields.get("right"):
            self.screen.prose(question.fields["right"])

    def _again(self, chapter: Chapter) -> None:
        """Questions of earlier chapters that were answered wrong come back."""
        for question in returning(chapter, self.chapters):
            noted = read(self.folder).answers.get(question.key)
            if not noted or noted["right"] or chapter.number in {each["chapter"] for each in noted["again"]}:
                continue
            self.screen.heading(f"Again, from chapter {question.chapter}")
            given, judged = self._answered(question)
            with changing(self.folder) as progress:
                progress.again(question.key, chapter.number, judged.right)
            self._said(question, given, judged)

    # ---- what runs ---------------------------------------------------------------------------------------------------

    def _reveal(self, block: Reveal) -> None:
        self.screen.code(block.code)
        if self._is_installed("It", block.needs):
            self.screen.output(run(block).text)

    def show_claim(self, claim: Claim) -> None:
        """A claim, its program, and whether it is true."""
        self.screen.heading(f"Claim: {claim.name}")
        self.screen.prose(claim.quotation)
        if self._is_installed("Its program", claim.needs):
            self.screen.code(claim.program)
            result = run(claim)
            self.screen.output(result.text)
            show = self.screen.wrong if result.outcome == "fails" else self.screen.right
            show(f"It {claim.conclusion(result.outcome)}.")

    def _is_installed(self, what: str, needs: str) -> bool:
        """Whether the package is there that something needs; if not, how to install it is shown."""
        missing = installed(needs)
        if missing:
            self.screen.note(f"{what} is not run, because it needs a package. To install it:\n    {missing}\n")
        return not missing

    def _exercise(self, chapter: Chapter, exercise: Exercise) -> None:
        if read(self.folder).passed(exercise.key):
            return
        path = starts(self.folder, exercise)
        if path.read_text(encoding="utf-8", errors="replace") != exercise.start:
            if self.check_exercise(chapter, exercise, path):
                self.screen.pause()
                return
        else:
            self.task(exercise, path)
        if self.waits:
            raise Stopped
        if exercise.after:
            self.screen.prose(exercise.after)
        self.screen.pause()
