"""Right answers in another style than the chapter's pass; what is no answer at all is said to be none.

answers/ has a file for each chapter. In it, `scores__einsum` is an answer to the exercise whose file is 03_scores.py:
the learner's file is this function, under its right name, with what it uses. Where tests are to be written, it is the
body of the function.
"""

import ast
import re
from pathlib import Path

import pytest

from regard.learn.checking import check as checking
from regard.learn.checking.check import Checker, checked
from regard.learn.running import installed
from regard.learn.source import chapters
from tests.support.lanes import by_name

OF_FILE = {
    exercise.file_name.removesuffix(".py"): (chapter, exercise)
    for chapter in chapters()
    for exercise in chapter.exercises
}


def defined(statement):
    """The names that a statement of a file defines."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [name.asname or name.name for name in statement.names]
    return [target.id for target in statement.targets] if isinstance(statement, ast.Assign) else [statement.name]


def statements(path):
    """The statements of a file by the names that they define."""
    _, *found = ast.parse(path.read_text(encoding="utf-8")).body
    return {name: statement for statement in found for name in defined(statement)}


def used(name, names):
    """The statements that the code of a name needs, in the order of the file, and its own."""
    found, new = set(), {name}
    while new:
        found |= new
        read = {node.id for each in new for node in ast.walk(names[each]) if isinstance(node, ast.Name)}
        new = read & names.keys() - found
    return list(dict.fromkeys(names[each] for each in names if each in found))


FILES = {path.stem[-2:]: statements(path) for path in sorted(Path(__file__).parent.glob("answers/chapter_*.py"))}
ANSWERS = {f"{number}_{name}": names for number, names in FILES.items() for name in names if "__" in name}


def learners_file(answer, exercise):
    """The text of the file in which a learner gives this answer."""
    name, names = answer[3:], ANSWERS[answer]
    code = used(name, names)
    if exercise.tests_of:
        code = [each for each in code if each is not names[name]] + names[name].body
    return "\n\n\n".join(map(ast.unparse, code)).replace(name, exercise.function)


# The right answer, by somebody who reads each array with torch.
TENSORS = """{solution}

import torch

right = {function}

def {function}(*given):
    return right(*(torch.as_tensor(each).numpy() if hasattr(each, "__array__") else each for each in given))
"""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", OF_FILE)
def test_right_answers_pass(name, tmp_path, monkeypatch, here):
    """However they are written; torch reads the arrays of cases and laws."""
    chapter, exercise = OF_FILE[name]
    if missing := installed(exercise.needs):
        pytest.skip(missing)
    if exercise.needs:
        monkeypatch.setattr("torch.set_num_threads", int)  # other tests go on in this process
    path, problems = tmp_path / exercise.file_name, {}
    with Checker(chapter, exercise) as checker:
        for answer in [each for each in ANSWERS if each.startswith(f"{name}__")]:
            path.write_text(learners_file(answer, exercise), encoding="utf-8")
            problems[answer] = checker.checked(path).problem
        if exercise.cases and not exercise.needs:
            path.write_text(TENSORS.format(**vars(exercise)))
            problems["tensors"] = checker.checked(path).problem

    assert {answer: problem for answer, problem in problems.items() if problem} == {}


def test_a_law_shows_what_it_reads(tmp_path, here):
    """At sharpness 0, the sharpness of the case does not matter."""
    course, exercise = OF_FILE["01_lookup"]
    path = tmp_path / exercise.file_name
    path.write_text("def lookup(query, keys, values, sharpness):\n    return values[0]\n")

    problem = checked(course, exercise, path).problem

    shown = re.findall(r"^(\w+) +=", "\n".join(problem.details), re.M)
    assert problem.kind == "law" and shown == ["query", "keys", "values"]


def test_every_exercise_has_a_right_answer():
    """Every answer is one to an exercise, and what is no answer is used by one."""
    assert {answer.partition("__")[0] for answer in ANSWERS} == OF_FILE.keys()
    for number, names in FILES.items():
        in_answers = {id(each) for name in names if "__" in name for each in used(name, names)}

        assert [name for name, each in names.items() if id(each) not in in_answers] == [], number


OTHER = {"runs", "shape", "law", "value"}
VALUES = {"None": {"runs"}, "[1.5] * 7": OTHER, "1.5": OTHER, "'a'": OTHER}
OWN = {name: each for name, each in OF_FILE.items() if each[1].result and not each[1].needs}


@pytest.mark.one_in(2)
@by_name("course, exercise", OWN)
def test_a_value_that_the_check_cannot_use_is_not_called_an_error(course, exercise, tmp_path, here):
    """Exercises whose chapter computes with the value: the learner's code raised nothing."""
    path = tmp_path / exercise.file_name
    with Checker(course, exercise) as checker:
        for value, kinds in VALUES.items():
            path.write_text(f"def {exercise.function}(*given):\n    return {value}\n")

            problem = checker.checked(path).problem

            assert problem is not None and problem.kind in kinds, problem
            assert "Error" not in "".join(problem.details), problem
            assert (problem.what == f"{exercise.function} returns None: is there a `return`?") == (value == "None")


def test_warnings_of_the_solution_are_not_the_learners(tmp_path, monkeypatch):
    """Code that never returns is shown with what it printed itself."""
    monkeypatch.setattr(checking, "STEP", 1.0)
    first = chapters()[0]
    path = tmp_path / first.exercises[0].file_name
    path.write_text("def overflow(dtype):\n    while True:\n        pass\n")

    assert checked(first, first.exercises[0], path).printed == ""
