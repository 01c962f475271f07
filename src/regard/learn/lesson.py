"""Lesson: the way through a chapter, part by part, from where the learner stopped, with the checks of its exercises."""

from __future__ import annotations

import re
from pathlib import Path

from ..common.text.units import counted
from .chapter import Chapter, Claim, Exercise, Part, Question, Reveal, Text, Visual, returning
from .checking.check import checked
from .folder import USUAL, changing, predictions, read, starts
from .forms import FORMS, Judged, Unreadable, judge, options, right_answer
from .running import installed, run
from .screen import Screen, Stopped
from .source import chapter_of

ASKS = re.compile(r'\binput\("(.*?)"\)')


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
        """The chapter of a number, or the one that is being read; at first, the first one of the short path."""
        if number is None:
            number = read(self.folder).current
        if number is None:
            return next((each for each in self.chapters if each.deeper), self.chapters[0])
        return chapter_of(self.chapters, number)

    def task(self, exercise: Exercise, path: Path) -> None:
        """What to do, and how to go on."""
        self.screen.heading(
            f"Exercise: {exercise.function}   ({exercise.difficulty}, about {exercise.minutes} minutes)"
        )
        self.screen.prose(exercise.task)
        self._is_installed("A check", exercise.needs)
        self.screen.note(f"Write it in {path}")
        if not self.screen.interactive:
            self.screen.note(f"To check it: {self.command} --check. A hint: {self.command} --hint")

    def check_exercise(self, chapter: Chapter, exercise: Exercise, path: Path) -> bool:
        """Checks a file, notes the try, and shows what came out."""
        found = checked(chapter, exercise, path)
        right = found.problem is None
        with changing(self.folder) as progress:
            progress.note_check(exercise.key, right)
        self.screen.checked(found, exercise)
        if right:
            self.screen.prose(exercise.after)
        return right

    def next_hint(self, exercise: Exercise) -> None:
        """The next of three hints."""
        with changing(self.folder) as progress:
            noted = progress.exercise(exercise.key)
            step = min(noted["hints"], len(exercise.hints) - 1)
            noted["hints"] = step + 1
        self.screen.heading(f"Hint {step + 1} of {len(exercise.hints)} for {exercise.function}")
        self.screen.prose(exercise.hints[step])

    def until_right(self, chapter: Chapter, exercise: Exercise, path: Path) -> None:
        """Checks a file each time it is saved, until it is right. Raises Stopped on Ctrl-C."""
        self.screen.note(f"Waiting for {path.name}: each save is checked. h and Enter: a hint. Ctrl-C stops.")
        before = path.read_bytes()
        try:
            while True:
                line = self.screen.line_soon()
                now = (path.is_file() and path.read_bytes()) or before  # while it is written, it is empty
                if line == "h":
                    self.next_hint(exercise)
                elif line is not None or now != before:
                    before = now
                    if self.check_exercise(chapter, exercise, path):
                        return
        except KeyboardInterrupt:
            raise Stopped from None

    # ---- the way through a chapter -----------------------------------------------------------------------------------

    def teach(self, number: int | None = None) -> None:
        """Goes on where the learner stopped, or with a chapter; returns at the end, raises Stopped before it."""
        chapter = self.chapter(number)
        key, names = str(chapter.number), [part.name for part in chapter.parts]
        place = read(self.folder).place.get(key)
        done = place == "" and number is None  # the last chapter: a done one is read again if its number is given
        first = len(names) if done else names.index(place) if place in names else 0
        end = chapter.parts.index(chapter.deeper) if chapter.deeper else 0
        minutes = chapter.minutes[0] if first < end else chapter.time
        self.screen.heading(f"Chapter {key}: {chapter.title}   (about {minutes} minutes)")
        if not first:
            self._again(chapter)
        for at, part in enumerate(chapter.parts[first:], first):
            if part is chapter.deeper and at > first and self.waits and not self._goes_deeper(chapter, part.name):
                return
            self._at(chapter, chapter, part.name)
            self.screen.done = (at + 1) / (end if at < end else len(names))
            self._show(chapter, part)
        places = read(self.folder).place
        left = [each for each in self.chapters if each is not chapter and places.get(str(each.number)) != ""]
        following = next((each for each in left if each.number > chapter.number), (left or [chapter])[0])
        self._at(chapter, following, "")
        self.screen.right(f"This is the end of chapter {key}. {self._so_far(chapter)}")
        go_on = f"Next: chapter {following.number}, {following.title}. To go on: {self.command}"
        self.screen.note(go_on if left else "You have finished the course.")

    def _at(self, chapter: Chapter, current: Chapter, place: str) -> None:
        """Notes the place in a chapter, and which chapter is read."""
        with changing(self.folder) as progress:
            progress.place[str(chapter.number)] = place
            progress.current = current.number

    def _so_far(self, chapter: Chapter) -> str:
        """What the learner did of a chapter."""
        progress = read(self.folder)
        passed, answers = sum(progress.passed(each.key) for each in chapter.exercises), predictions(progress, chapter)
        results = counted(answers.answered, "result")
        return f"You passed {counted(passed, 'exercise')} and predicted {answers.right} of {results}."

    def _goes_deeper(self, chapter: Chapter, place: str) -> bool:
        """Where the short path leaves a chapter: whether the learner stays in it. Otherwise the next one has begun."""
        later = [each for each in self.chapters if each.deeper and each.number > chapter.number]
        following = (later or self.chapters)[0]
        self._at(chapter, following, place)
        self.screen.right(self._so_far(chapter) + ("" if later else " This is the end of the short path."))
        go_on = f"{self.command}: on to chapter {following.number}, {following.title}"
        self.screen.note(f"{go_on}\n{self.command} {chapter.number}: deeper, {sum(chapter.minutes[1:])} minutes")
        if not self.screen.interactive:
            return False
        deeper = "d" in self.screen.answer("Press Enter to continue, d and Enter to go deeper, Ctrl-C to stop")
        if not deeper:
            self.teach(following.number)
        return deeper

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
        self.screen.heading(f"Chapter {chapter.number}, part {number + 1}   (about {chapter.minutes[number]} minutes)")
        self.screen.note(f"A good place for a break. {self.command} goes on from here.")

    # ---- questions ---------------------------------------------------------------------------------------------------

    def _question(self, question: Question) -> None:
        if question.key in read(self.folder).answers:
            return
        self.screen.heading(question.title)
        given, judged = self._answered(question)
        with changing(self.folder) as progress:  # before the reveal
            progress.answered(question.key, given, judged.right)
        self._said(question, given, judged)
        if question.reveal:
            self._reveal(question.reveal)
        self.screen.pause()

    def _answered(self, question: Question) -> tuple[str, Judged]:
        """What was typed, and how it is judged; repeated until it can be read."""
        self.screen.prose(f"{question.ask}\n\n{options(question)}")
        while True:
            text = self._typed(question)
            if text.startswith("?"):
                return "", Judged(False)
            try:
                return text, judge(question, text)
            except Unreadable as error:
                self.screen.note(str(error))

    def _typed(self, question: Question) -> str:
        how = f"{FORMS[question.form].how(question.fields)} (? shows the answer)"
        if question.form != "table":
            return self.screen.answer(how)
        return "\n".join(self.screen.answer(f"{row}: {how}") for row in question.fields["rows"])

    def _said(self, question: Question, given: str, judged: Judged) -> None:
        """Whether an answer is right, and why."""
        if judged.right:
            self.screen.right(f"Right: {right_answer(question)}.")
        else:
            self.screen.wrong(f"You answered {given.strip() or '?'}; the answer is {right_answer(question)}.")
        self.screen.prose("\n\n".join([judged.why, question.fields.get("right", "")]))

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
        if not block.folded:
            self.screen.code(block.shown)
        self._ran(block)

    def _ran(self, block: Reveal | Claim) -> str:
        """Shows what a program prints, and returns its outcome; an empty one if it is not run."""
        if not self._is_installed("It", block.needs):
            return ""
        asks = ASKS.search(block.code)
        result = run(block, self.screen.answer(asks[1]) if asks and self.screen.interactive else "")
        self.screen.output(result.text)
        return result.outcome

    def show_claim(self, claim: Claim) -> None:
        """A claim, its program, and whether it is true."""
        self.screen.heading(f"Claim: {claim.name}")
        self.screen.prose(claim.quotation)
        self.screen.code(claim.program)
        if outcome := self._ran(claim):
            show = self.screen.wrong if outcome == "fails" else self.screen.right
            show(f"It {claim.conclusion(outcome)}.")

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
        begun = path.read_text(encoding="utf-8", errors="replace") != exercise.start
        if not begun:
            self.task(exercise, path)
        if not self.waits:
            self.screen.prose(exercise.after)
        elif not (begun and self.check_exercise(chapter, exercise, path)):
            if not self.screen.interactive:
                raise Stopped
            self.until_right(chapter, exercise, path)
        self.screen.pause()
