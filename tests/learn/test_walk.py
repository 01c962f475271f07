"""The course is walked as a learner walks it: questions are answered, exercises failed and solved."""

import importlib.util

import pytest

from regard.learn.chapter import BACK, Exercise, Question
from regard.learn.folder import read
from regard.learn.source import chapters
from tests.support.lanes import sweep

from .chapter_files import SCORES
from .chapter_files import chapter as written
from .test_command import run
from .typing import typed

pytestmark = pytest.mark.usefixtures("here")
COURSE = chapters()
QUESTIONS = {each.key: each for chapter in COURSE for each in chapter.questions}


def is_right(key):
    """Every third question is answered wrong."""
    return sorted(QUESTIONS).index(key) % 3 != 0


def lines_until_the_next_stop(folder, chapter):
    """The answers to questions that come back, and to those up to the next exercise that is not passed."""
    progress, lines = read(folder), []
    if str(chapter.number) not in progress.place:
        for key, noted in progress.answers.items():
            if not noted["right"] and chapter.number - int(key.split("/")[0]) in BACK:
                lines += typed(QUESTIONS[key], True)
    for part in chapter.parts:
        key = part.key
        if isinstance(part, Question) and key not in progress.answers:
            lines += typed(part, is_right(key))
        if isinstance(part, Exercise) and not progress.passed(key):
            break
    return lines


def solve(folder, chapter, exercise):
    """Passes with the solution; the first exercise of a chapter fails before that, with the name of its mistake."""
    path = folder / exercise.file_name
    assert path.read_text() == exercise.start
    if exercise is chapter.exercises[0] and exercise.wrong and exercise.cases:
        path.write_text(exercise.wrong[0].code)
        status, output = run(folder, "--check", str(path))
        assert status == 1 and exercise.wrong[0].mistake in output, output
    path.write_text(exercise.solution)
    status, output = run(folder, "--check", str(path))
    assert status == 0 and "is right" in output, output


@pytest.mark.slow
@pytest.mark.parametrize("course", [COURSE[4:6], *sweep(COURSE)], ids=len)
def test_the_course_from_its_first_to_its_last_word(course, tmp_path):
    """The end of each chapter is reached; what was answered is noted; wrong answers come back twice."""
    folder = tmp_path / "mine"
    for chapter in course:
        if any(each.needs and importlib.util.find_spec("torch") is None for each in chapter.exercises):
            pytest.skip("torch is not installed")
        for _ in range(3 + len(chapter.exercises)):
            status, output = run(folder, str(chapter.number), lines=lines_until_the_next_stop(folder, chapter))
            assert status == 0, output
            if f"the end of chapter {chapter.number}" in output:
                break
            progress = read(folder)
            if f"{chapter.number}: deeper" in output:
                continue
            left = [each for each in chapter.exercises if not progress.passed(each.key)]
            assert left, f"it stops in chapter {chapter.number} without an exercise:\n{output[-2000:]}"
            solve(folder, chapter, left[0])
        else:
            pytest.fail(f"chapter {chapter.number} does not end:\n{output[-3000:]}")
    progress = read(folder)

    asked = [each.key for chapter in course for each in chapter.questions]
    assert {key: noted["right"] for key, noted in progress.answers.items()} == {key: is_right(key) for key in asked}
    assert all(progress.passed(each.key) for chapter in course for each in chapter.exercises)
    numbers = {chapter.number for chapter in course}
    for key, noted in progress.answers.items():
        expected = [] if noted["right"] else [int(key.split("/")[0]) + by for by in BACK]
        seen = [each["chapter"] for each in noted["again"]]
        assert seen == [number for number in expected if number in numbers], key


def test_a_preview_goes_past_the_exercises(tmp_path, monkeypatch):
    """A teacher reads a chapter to its end, with what is shown after each exercise; nothing is written beside it."""
    monkeypatch.chdir(tmp_path)
    after = "\n```markdown after scores\nIt is shorter with einsum.\n```\n\n## The last words\n"
    status, output = run("--read", written(tmp_path, SCORES + after).path)

    assert status == 0
    for words in ("Exercise: scores", "It is shorter with einsum", "The last words", "the end of chapter 3"):
        assert words in output
    assert [each.name for each in tmp_path.iterdir()] == ["03-scores.md"]
