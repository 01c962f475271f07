"""What explains a wrong answer: a known mistake, or the place of the learner's code where one change makes it right."""

import ast
import gc

import numpy as np
import pytest

from regard.learn.checking import repair
from regard.learn.checking.changes import changes
from regard.learn.checking.grading import Grading, agree, shown
from regard.learn.checking.naming import explained, known_mistake
from regard.learn.checking.problem import Problem
from regard.learn.source import chapters

EXERCISES = {exercise.key: exercise for chapter in chapters() for exercise in chapter.exercises}
LOOP = """import numpy as np


def attend(q, k, v):
    out = np.zeros((len(q), v.shape[1]))
    for i, row in enumerate(q):
        scores = k @ row / np.sqrt(len(row))
        powers = np.exp(scores - scores.max())
        for weight, value in zip(powers / powers.sum(), v):
            out[i] += weight * value
    return out
"""
TURNED = """import numpy as np


def scores(q, k):
    depth = q.shape[1]
    return np.einsum("id,jd->ij", q, k) / np.sqrt(depth)
"""


@pytest.fixture
def found(tmp_path, monkeypatch):
    """What is said of an answer to an exercise."""
    monkeypatch.setattr(repair, "SEARCHING", 20.0)  # seconds: a busy machine takes longer

    def of(key, code):
        path = tmp_path / "answer.py"
        path.write_text(code, encoding="utf-8")
        grading = Grading(EXERCISES[key])
        assert grading.load(str(path)) is None
        return explained(Problem("value", "not right"), grading)

    return of


def test_two_known_mistakes_at_once_are_named(found):
    """In code of any style; with both causes and both fixes."""
    problem = found("5/attend", LOOP.replace("/ np.sqrt", "* np.sqrt").replace("sum(), v)", "sum(), v[::-1])"))

    assert problem.mistakes == ("scale-inverted", "values-reversed")
    for name in problem.mistakes:
        known = known_mistake(EXERCISES["5/attend"], name)
        assert known.cause in problem.cause and known.fix in problem.fix


@pytest.mark.parametrize(
    ("key", "code", "old", "new", "place", "fix"),
    [
        ("3/scores", TURNED, "(depth)", "(depth - 1)", "`1` in line 6", "another operator, value, order or function"),
        ("3/scores", TURNED, '"id,jd->ij", q,', '"id,jd->ij", abs(q),', "`abs(q)` in line 6", "`q` alone"),
        ("3/scores", TURNED, "np.sqrt(depth)", "np.log(depth + 9)", "`np.log(depth + 9)` in line 6", "something else"),
        ("5/attend", LOOP, "out[i] += ", "out[i] = ", "`out[i] = weight * value` in line 10", "another operator"),
        ("5/attend", LOOP, "zip(powers", "zip(1 - powers", "in line 9", "another operator"),
    ],
)
def test_the_place_of_a_mistake_is_named(key, code, old, new, place, fix, found):
    """Whatever the style: the smallest place where one change makes every case right."""
    assert old in code
    problem = found(key, code.replace(old, new))

    assert problem.description.startswith("a mistake in one place: ") and place in problem.description
    assert fix in problem.fix and problem.fix.endswith("then every case is right") and problem.mistakes == ()


def test_of_two_mistakes_one_place_and_the_rest_are_named(found):
    """What is left once one of them is mended is a known mistake."""
    problem = found("3/scores", TURNED.replace("q, k) /", "q - 1, k) *"))

    assert problem.description.startswith("two mistakes, one of them in ") and "line 6" in problem.description
    assert problem.fix.endswith("; what is left is scale-inverted") or "what a right answer gives" in problem.fix


ENDLESS = "for _ in iter(int, 1):\n        if True:\n            return q * 0"
COLLECTING = ENDLESS.replace("if", "gc.collect(0), sum([1 for _ in range(100_000)])\n        if")


@pytest.mark.parametrize("body", ["return np.cos(q) @ np.sin(k).T", "while True: return q * 0", ENDLESS])
def test_what_no_change_makes_right_has_no_name(body, found, monkeypatch):
    """Nor has code with a loop that does not end once it is changed."""
    monkeypatch.setattr(repair, "SEARCHING", 0.5)
    problem = found("3/scores", f"import numpy as np\n\n\ndef scores(q, k):\n    {body}\n")

    assert (problem.mistakes, problem.description) == ((), "")


def test_the_search_is_interrupted_in_the_learners_code_alone(found, monkeypatch):
    """In a callback of the garbage collector, an error would be lost, and shown to the learner."""

    def callback(*_):
        sum(1 for _ in range(100_000))

    monkeypatch.setattr(repair, "SEARCHING", 0.1)
    gc.callbacks.append(callback)
    try:
        problem = found("3/scores", f"import gc\n\n\ndef scores(q, k):\n    {COLLECTING}\n")
    finally:
        gc.callbacks.remove(callback)

    assert problem.description == ""


def test_no_change_makes_a_loop_endless(found):
    """A loop over the list that it appends to would not end."""
    loop = "for row in list(q):\n        out.append(row @ k.T + 0.5)"
    code = f"def scores(q, k):\n    out = []\n    {loop}\n    return out\n"

    assert found("3/scores", code).mistakes == ()


def test_a_place_that_is_the_whole_answer_is_no_place(found):
    """To say that the line with `return` is wrong would say nothing."""
    problem = found("3/scores", "import numpy as np\n\n\ndef scores(q, k):\n    return np.cos(q).sum() + k.sum()\n")

    assert "cos" not in problem.description.partition("one place")[2]


@pytest.mark.parametrize("key", ["3/scores", "4/softmax", "5/attend", "17/single-head"])
def test_wrong_answers_that_the_catalog_explains_differ_from_the_right_one(key):
    """Each is in the catalog, or explained, and wrong in some case."""
    grading = Grading(EXERCISES[key])
    for each in grading.exercise.wrong:
        assert known_mistake(grading.exercise, each.mistake).cause
        function = grading.defined(each.code)
        pairs = zip(grading.cases, grading.wanted)
        assert not all(agree(grading.outcome(function, case), wanted, grading.digits) for case, wanted in pairs)


def test_an_empty_array_shows_its_shape():
    """Brackets alone do not say which axis is empty."""
    assert shown(np.zeros((2, 0, 1))) == "an empty array of the shape (2, 0, 1)"
    assert shown(np.zeros(0)) == "[]"


def test_no_list_is_put_into_itself():
    """NumPy would never end to make an array of it."""
    tree = ast.parse("def f(x):\n    out = []\n    out.append(x)\n    return np.array(out)")
    assert not any("append(out" in ast.unparse(tree) for _ in changes(tree, ["out[0]", ":", "*x"]))
