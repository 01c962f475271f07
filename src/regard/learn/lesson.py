"""Lesson: the way through a chapter, part by part, from where the learner stopped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .chapter import Chapter, Claim, Exercise, Part, Question, Reveal, Text, Visual, key_of
from .exercises import Exercises, command
from .folder import starts
from .forms import FORMS, Unreadable
from .progress import Progress, changing, read
from .running import installed, outcome, reveal
from .screen import Screen, Stopped
from .source import chapter_of

BACK = (1, 3)  # after so many chapters, a question that was answered wrong comes back


class Lesson:
    """The course in one learner's folder. waits: whether it stops at an exercise until that is passed."""

    def __init__(self, folder: Path, chapters: list[Chapter], screen: Screen, waits: bool = True):
        self.folder, self.chapters, self.screen, self.waits = folder, chapters, screen, waits

    def go_on(self, number: int | None = None) -> None:
        """Goes on where the learner stopped, or with a chapter; returns at the end, raises Stopped before it."""
        progress = read(self.folder)
        if number is None:
            number = progress.current if progress.current is not None else self.chapters[0].number
        chapter = chapter_of(self.chapters, number)
        with changing(self.folder) as progress:
            progress.current = number
            finished = progress.place.get(str(number)) == ""
            if finished:
                del progress.place[str(number)]
        minutes = " + ".join(str(each) for each in chapter.minutes)
        self.screen.heading(f"Chapter {chapter.number}: {chapter.title}   (about {minutes} minutes)")
        if str(number) not in progress.place:
            self._again(chapter)
        for part in self._left(chapter, progress):
            with changing(self.folder) as progress:
                progress.place[str(number)] = part.name
            self._show(chapter, part)
        following = next((each for each in self.chapters if each.number > number), None)
        with changing(self.folder) as progress:
            progress.place[str(number)] = ""
            progress.current = number if following is None else following.number
        self.screen.right(f"This is the end of chapter {number}.")
        if following is None:
            self.screen.note("It is the last one so far.")
        else:
            self.screen.note(f"Next: chapter {following.number}, {following.title}. Go on with the same command.")

    def _left(self, chapter: Chapter, progress: Progress) -> Iterator[Part]:
        """The parts from the place where the learner stopped."""
        names = [part.name for part in chapter.parts]
        place = progress.place.get(str(chapter.number))
        start = names.index(place) if place in names else 0
        yield from chapter.parts[start:]

    def _show(self, chapter: Chapter, part: Part) -> None:
        match part:
            case Text():
                if part.after_break:
                    self._break(chapter, part)
                self.screen.prose(re.sub(r"^# .*\n", "", part.text))  # the title is above
                self.screen.pause()
            case Question():
                self._question(chapter, part)
            case Reveal():
                self._reveal(part)
            case Claim():
                self.claim(part)
                self.screen.pause()
            case Exercise():
                self._exercise(chapter, part)
            case Visual():
                self.screen.note(f"On the page (regard learn --serve) there is a figure here: {part.caption}")

    def _break(self, chapter: Chapter, part: Part) -> None:
        number = 1 + chapter.breaks.index(part)
        minutes, count = chapter.minutes[number], len(chapter.minutes)
        self.screen.heading(f"Chapter {chapter.number}, part {number + 1} of {count}   (about {minutes} minutes)")
        self.screen.note(f"A good place for a break. {command(self.folder)} goes on from here.")

    # ---- questions ---------------------------------------------------------------------------------------------------

    def _question(self, chapter: Chapter, question: Question) -> None:
        key = key_of(chapter, question)
        before = read(self.folder).answers.get(key)
        if before:
            self.screen.prose(f"**The question was:** {question.ask}")
            self.screen.note(f"Your answer: {before['given'] or 'none'}")
            return
        self.screen.heading("Predict" if question.predicts else "Question")
        given, judged = self._answered(question)
        with changing(self.folder) as progress:  # before the reveal
            progress.answered(key, given, judged.right)
        if question.reveal:
            self._reveal(question.reveal)
        self._said(question, given, judged)
        self.screen.pause()

    def _answered(self, question: Question) -> tuple[str, Any]:
        """What was typed, and how it is judged; repeated until it can be read."""
        form = FORMS[question.form]
        self.screen.prose(question.ask)
        self._choices(question)
        while True:
            text = self._typed(question)
            try:
                return text, form.judge(form.read(text, question.fields), question.fields)
            except Unreadable as error:
                self.screen.note(str(error))

    def _typed(self, question: Question) -> str:
        how = FORMS[question.form].how(question.fields)
        if question.form != "table":
            return self.screen.answer(how)
        return "\n".join(self.screen.answer(f"{row}: {how}") for row in question.fields["rows"])

    def _choices(self, question: Question) -> None:
        fields = question.fields
        match question.form:
            case "choice":
                self.screen.prose("\n".join(f"{at}. {each['text']}" for at, each in enumerate(fields["choices"], 1)))
            case "pairs":
                self.screen.prose("\n".join(f"- **{chr(65 + at)}** {text}" for at, text in enumerate(fields["left"])))
                self.screen.prose("\n".join(f"{at}. {text}" for at, text in enumerate(fields["right_side"], 1)))
            case "table":
                self.screen.note(f"Columns: {', '.join(map(str, fields['columns']))}")
            case "line":
                self.screen.code(fields["code"].strip("\n"), numbered=True)

    def _said(self, question: Question, given: str, judged: Any) -> None:
        """Whether an answer is right, and why."""
        shown = FORMS[question.form].shown(question.fields)
        if judged.right:
            self.screen.right(f"Right: {shown}.")
        else:
            self.screen.wrong(f"You answered {given.strip() or 'nothing'}; the answer is {shown}.")
            if judged.why:
                self.screen.prose(judged.why)
        if question.fields.get("right"):
            self.screen.prose(question.fields["right"])

    def _again(self, chapter: Chapter) -> None:
        """Questions of earlier chapters that were answered wrong come back."""
        known = {key_of(each, question): question for each in self.chapters for question in each.questions}
        answers = read(self.folder).answers
        for key, noted in answers.items():
            earlier = int(key.split("/")[0])
            seen = {each["chapter"] for each in noted["again"]}
            if noted["right"] or chapter.number - earlier not in BACK or chapter.number in seen or key not in known:
                continue
            self.screen.heading(f"Again, from chapter {earlier}")
            given, judged = self._answered(known[key])
            with changing(self.folder) as progress:
                progress.again(key, chapter.number, judged.right)
            self._said(known[key], given, judged)

    # ---- what runs ---------------------------------------------------------------------------------------------------

    def _reveal(self, block: Reveal) -> None:
        self.screen.code(block.code)
        missing = installed(block.needs)
        if missing:
            self.screen.note(f"It is not run, because it needs a package. To install it:\n    {missing}\n")
            return
        self.screen.output(reveal(block).text)

    def claim(self, claim: Claim) -> None:
        """A claim, its program, and whether it is true."""
        self.screen.heading(f"Claim: {claim.name}")
        source = f" ({claim.source})" if claim.source else ""
        self.screen.prose(f"“{claim.statement}”{source}")
        missing = installed(claim.needs)
        if missing:
            self.screen.note(f"Its program is not run, because it needs a package. To install it:\n    {missing}\n")
            return
        self.screen.code(claim.code.split('"""', 2)[-1].strip("\n"))
        found = outcome(claim)
        self.screen.output(found.text)
        words = {"holds": "It holds.", "holds if": f"It holds if {claim.condition}.", "fails": "It fails."}
        (self.screen.wrong if found.outcome == "fails" else self.screen.right)(words[found.outcome])

    def _exercise(self, chapter: Chapter, exercise: Exercise) -> None:
        if read(self.folder).passed(key_of(chapter, exercise)):
            return
        path, written = starts(self.folder, chapter, exercise)
        work = Exercises(self.folder, self.chapters, self.screen)
        if not written and path.read_text(encoding="utf-8", errors="replace") != exercise.start:
            if work.check(chapter, exercise, path):
                self.screen.pause()
                return
        else:
            work.task(chapter, exercise, path)
        if self.waits:
            raise Stopped
        if exercise.after:
            self.screen.prose(exercise.after)
        self.screen.pause()
