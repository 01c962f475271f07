"""Right answers in many styles pass: a file in `answers` is named after the learner's file and its style. What is no
answer at all is said to be none.
"""

from pathlib import Path

import pytest

from regard.learn.checking.check import Checker, check, checked
from regard.learn.running import installed
from regard.learn.source import chapters

ANSWERS = sorted((Path(__file__).parent / "answers").glob("*.py"))
OF_FILE = {
    chapter.file_of(exercise).removesuffix(".py"): (chapter, exercise)
    for chapter in chapters()
    for exercise in chapter.exercises
}


@pytest.mark.parametrize("name", OF_FILE)
def test_right_answers_pass(name, tmp_path):
    """However they are written."""
    chapter, exercise = OF_FILE[name]
    if missing := installed(exercise.needs):
        pytest.skip(missing)
    copy, problems = tmp_path / chapter.file_of(exercise), {}
    with Checker(chapter, exercise) as checker:
        for path in ANSWERS:
            if path.stem.partition("__")[0] == name:
                copy.write_bytes(path.read_bytes())
                problems[path.stem] = checker.checked(copy).problem

    assert {style: problem for style, problem in problems.items() if problem} == {}


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


OTHER = {"runs", "shape", "law", "value"}
OWN = [(each, exercise) for each in chapters() for exercise in each.exercises if exercise.result and not exercise.needs]


@pytest.mark.parametrize(("value", "kinds"), [("None", {"runs"}), ("[1.5] * 7", OTHER), ("1.5", OTHER), ("'a'", OTHER)])
@pytest.mark.parametrize(("course", "exercise"), OWN, ids=[f"{each.number}-{exercise.name}" for each, exercise in OWN])
def test_a_value_that_the_check_cannot_use_is_not_called_an_error(course, exercise, value, kinds, tmp_path):
    """Exercises whose chapter computes with the value: the learner's code raised nothing."""
    path = tmp_path / course.file_of(exercise)
    path.write_text(f"def {exercise.function}(*given):\n    return {value}\n")

    problem = check(course, exercise, path)

    assert problem is not None and problem.kind in kinds, problem
    assert "Error" not in "".join(problem.details), problem
    assert (problem.what == f"{exercise.function} returns None: is there a `return`?") == (value == "None")


def test_warnings_of_the_solution_are_not_the_learners(tmp_path):
    """Code that never returns is shown with what it printed itself."""
    first = chapters()[0]
    path = tmp_path / first.file_of(first.exercises[0])
    path.write_text("def overflow(dtype):\n    while True:\n        pass\n")

    assert checked(first, first.exercises[0], path).printed == ""
