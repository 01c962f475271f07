"""Exercises in which tests are written: they must accept the right answer and reject every wrong one."""

import pytest

from regard.learn.checking import check as checking
from regard.learn.checking.check import Checker
from tests.learn.chapter_files import chapter

# ruff: noqa: E501 (a table)

BY_HAND = """import numpy as np


def test_a_pair(scores):
    assert scores(np.array([[2.0, 0, 0, 0]]), np.array([[3.0, 9, 9, 9], [1, 9, 9, 9]])).tolist() == [[3.0, 1.0]]
"""
WRONG = {
    "none": ("x = 1\n", "03_test_scores.py has no tests: write functions such as `def test_shape(scores):`"),
    "syntax": ("def test_a(scores)\n", "this is not Python", "line 1"),
    "import": ("import missing_module\n", "the file cannot be run", "ModuleNotFoundError"),
    "too-strict": (
        "def test_sum(scores):\n    assert scores is None\n",
        "test_sum rejects the right answer",
        "line 2: assert scores is None",
    ),
    "no-argument": ("def test_sum():\n    pass\n", "test_sum rejects the right answer", "TypeError"),
    "exits": ("def test_sum(scores):\n    raise SystemExit\n", "the code ends the program", "SystemExit"),
    "waits": ("import time\n\n\ndef test_sum(scores):\n    time.sleep(600)\n", "a test did not return in 1 s"),
    "waits-if-wrong": (
        "import time\nimport numpy as np\n\n\ndef test_sum(scores):\n    while scores(*2 * [4 * np.eye(4)])[0, 0] != 8:\n        time.sleep(600)\n",
        "a test did not return in 3 s",
    ),
    "shape-only": (
        "import numpy as np\n\n\ndef test_shape(scores):\n    assert scores(np.ones((2, 3)), np.ones((4, 3))).shape == (2, 4)\n",
        "your tests accept 3 of 4 wrong answers",
        "scale-1/D: ",
    ),
}


@pytest.fixture(scope="module")
def checker(tmp_path_factory):
    """One checker for all files of tests."""
    read = chapter(tmp_path_factory.mktemp("course"))
    with Checker(read, read.exercises[1]) as found:
        yield found


@pytest.fixture
def tests_of_scores(checker, tmp_path, monkeypatch):
    """What the check says about a file of tests."""
    monkeypatch.setattr(checking, "SLOW", 1.0)

    def found(code):
        path = tmp_path / "03_test_scores.py"
        path.write_text(code)
        return checker.checked(path).problem

    return found


RIGHT = {
    "by-hand": BY_HAND,
    "several": "import numpy as np\n\n\ndef test_nothing(scores):\n    print('here')\n\n\n" + BY_HAND,
    "changes-its-arrays": BY_HAND
    + "\n\ndef test_again(scores):\n    q = np.eye(4)\n    scores(q, q)\n    q *= 0\n    test_a_pair(scores)\n",
}


@pytest.mark.parametrize("name", RIGHT)
def test_tests_that_reject_every_wrong_answer_pass(name, tests_of_scores):
    """The chapter's wrong answers; several tests count together, and share no state."""
    assert tests_of_scores(RIGHT[name]) is None


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_tests_is_said(name, tests_of_scores):
    """The sentence, and a detail."""
    code, what, *details = WRONG[name]

    problem = tests_of_scores(code)

    assert problem is not None and what in problem.what, problem
    assert all(each in "\n".join(problem.details) for each in details)
    assert problem.kind in ("runs", "tests")


def test_accepted_wrong_answers_are_named(tests_of_scores):
    """All names for programs; descriptions for people; and what the tests print."""
    problem = tests_of_scores("def test_a(scores):\n    print('here')\n")

    assert problem is not None and (problem.kind, problem.printed) == ("tests", "here\n")
    assert set(problem.mistakes) == {"scale-missing", "scale-1/D", "scale-inverted", "keys-not-transposed"}
    assert "keys-not-transposed: k is not transposed" in problem.details
