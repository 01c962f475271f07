"""Every chapter is proved: its reveals, claims and answers run, and say what the chapter states."""

import re

import pytest

from bench.course_coverage import ITEMS
from bench.course_minutes import short_path
from bench.course_seeds import unstable
from regard.learn.proof import proved
from regard.learn.source import chapters, read_chapter
from tests import ROOT
from tests.learn.chapter_files import SCORES, TESTS, chapter, each_chapter

READ, GUIDE = chapters(), ROOT / "docs/how-to/write-a-chapter.md"
# ruff: noqa: E501 (a table)


@pytest.mark.one_in(9)
@pytest.mark.slow
@each_chapter
def test_a_chapter_is_proved(read):
    """Nothing fails; what a reveal prints is at most 78 columns wide, and a section of text at most 25 lines long."""
    assert [(what, wrong) for part in read.parts for what, wrong in proved(read, part) if wrong] == []


@pytest.mark.sweep
@each_chapter
def test_what_is_stated_holds_for_other_random_numbers(read):
    assert list(unstable(read)) == []


def test_numbers_and_names():
    """Only planned chapters are missing between the numbers; files and exercises are named, and claims stated, once."""
    names = [exercise.file_name for chapter in READ for exercise in chapter.exercises]
    names += [claim.statement for chapter in READ for claim in chapter.claims]

    numbers = [chapter.number for chapter in READ]
    planned = {int(found[1]) for item in ITEMS.values() if (found := re.match(r"chapter (\d+)", item.later))}

    assert numbers == sorted(numbers) and set(range(max(numbers))) - set(numbers) == planned
    assert [chapter.path.stem[:3] for chapter in READ] == [f"{chapter.number:02}-" for chapter in READ]
    assert len(names) == len(set(names))


@each_chapter
def test_predictions_come_first(read):
    """Each prediction has a reveal, which is Python without the line that keeps the answer; a chapter has three."""
    predictions = [question for question in read.questions if question.predicts]

    assert [question.name for question in predictions if question.reveal is None] == []
    assert len(predictions) >= 3
    for question in predictions:
        compile(question.reveal.shown, question.name, "exec")


@each_chapter
def test_minutes_hold_the_exercises(read):
    """A chapter, or each part between its breaks, takes 15 to 40 minutes: its exercises, and some for reading."""
    exercises = [0]
    for part in read.parts:
        if part in read.breaks:
            exercises.append(0)
        exercises[-1] += getattr(part, "minutes", 0)

    own = list(zip(exercises, read.minutes, strict=True))[bool(read.deeper) :]
    assert all(work + 5 <= minutes and 15 <= minutes <= 40 for work, minutes in own), exercises
    assert sum(exercises) + 10 <= sum(read.minutes)


def test_the_short_path_is_short():
    """Six chapters of at most 12 minutes and 12 screens, as stated and as a reader of 200 words a minute needs them; the
    first exercise is passed within five. No claim, and nothing that has to be installed, is on it.
    """
    found = list(short_path(READ))
    assert [each.chapter for each in found] == [1, 3, 4, 5, 6, 8] and found[0].first <= 5
    for each in found:
        assert each.needed <= each.stated <= 12 and each.screens <= 12 and 1 <= each.exercises <= 3 and not each.unfit


def failures(found):
    return {what: wrong for part in found.parts for what, wrong in proved(found, part) if wrong}


def test_meta_the_chapter_of_the_guide_is_proved(tmp_path, here):
    """The proof runs every part; checks are in a file of their own, each law after its doc string."""
    path, beside = tmp_path / "20-mean.md", tmp_path / "20-mean.checks.md"
    for file, text in zip((path, beside), re.findall(r"~~~~text\n(.*?)~~~~", GUIDE.read_text(), re.S)):
        file.write_text(text)
    read = read_chapter(path)
    found = dict(each for part in read.parts for each in proved(read, part))

    assert list(found)[2:] == ["solution mean", "start mean", "not-divided in mean", "of-each-row in mean"]
    assert not any(found.values()) and len(read.exercises[0].laws) == 2


@pytest.mark.parametrize(
    ("text", "what", "wrong"),
    [
        (SCORES.replace('    """The scores."""', "    return q @ k.T / q.shape[1] ** 0.5"), "start scores", "it passes"),
        (SCORES.replace("return q @ k / q", "return q @ k.T / q"), "keys-not-transposed in scores", "it passes"),
        (SCORES.replace("2 * scores(q, k))", "3 * scores(q, k))"), "solution scores", "law / it must hold that twice"),
        ("```python reveal a\nprint('x' * 79)\n```\n", "reveal a", "line 1 that is printed has 79 columns"),
        ("```python reveal a\n1 / 0\n```\n", "reveal a", "ZeroDivisionError"),
        ("```python reveal a\nraise SystemExit\n```\n", "reveal a", "SystemExit"),
        ('```python claim a\n"""x"""\nholds = False\n```\n', "claim a", "it fails, stated: holds"),
        ("## A\n\n" + 26 * "a line\n", "text, line 6", "it has 27 lines, more than 25"),
        ("## A\n\n```text\n" + 79 * "x" + "\n```\n", "text, line 6", "a line of a block has 79 columns"),
        ('```toml question a\nask = "x"\nform = "number"\nanswer = 1\n```\n```python reveal a\nanswer = 2\n```\n', "number a", "the code gives 2, stated: 1"),
        ('```toml question a\nask = "x"\nform = "number"\nanswer = 1\n```\n```python reveal a\nx = 2\n```\n', "number a", "the code gives None"),
        ('```toml question a\nask = "x"\nform = "number"\nanswer = 1\nwrong = [{ answer = 1, why = "y" }]\n```\n', "number a", "is not explained as stated"),
    ],
)  # fmt: skip
def test_meta_each_failure_is_found(text, what, wrong, tmp_path, here):
    """The proof can fail at every part, and goes on."""
    found = failures(chapter(tmp_path, text + TESTS if "exercise" in text else text))

    assert what in found and wrong in found[what], found
