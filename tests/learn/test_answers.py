"""Right answers in many styles pass: a file in `answers` is named after the learner's file and its style."""

from pathlib import Path

import pytest

from regard.learn.checking.check import check
from regard.learn.running import installed
from regard.learn.source import chapters

ANSWERS = sorted((Path(__file__).parent / "answers").glob("*.py"))
OF_FILE = {
    chapter.file_of(exercise).removesuffix(".py"): (chapter, exercise)
    for chapter in chapters()
    for exercise in chapter.exercises
}


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.stem)
def test_a_right_answer_passes(path, tmp_path):
    """However it is written."""
    chapter, exercise = OF_FILE[path.stem.partition("__")[0]]
    if missing := installed(exercise.needs):
        pytest.skip(missing)
    copy = tmp_path / chapter.file_of(exercise)
    copy.write_bytes(path.read_bytes())

    problem = check(chapter, exercise, copy)

    assert problem is None, problem


def test_every_exercise_has_right_answers():
    """At least four for each function or class; two where tests are written, or a whole module is judged."""
    count = dict.fromkeys(OF_FILE, 0)
    for path in ANSWERS:
        count[path.stem.partition("__")[0]] += 1

    few = {
        name: found
        for name, found in count.items()
        if found < (2 if OF_FILE[name][1].tests_of or OF_FILE[name][1].conform is not None else 4)
    }
    assert few == {}
