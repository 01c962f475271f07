"""Whatever a learner's file does, the check says what is wrong in time, and leaves nothing behind."""

import re

import pytest

from regard.learn.checking import check as checking
from regard.learn.checking.check import Checker, checked
from regard.learn.source import read_chapter
from regard.sandbox.child import Child
from tests.learn.chapter_files import SCORES, chapter
from tests.support.processes import marked
from tests.support.refusals import reasons_of, refusal

RIGHT = "    return q @ k.T / q.shape[-1] ** 0.5\n"
BEGIN = "def scores(q, k):\n"

# ruff: noqa: E501 (a table)

# What a file holds, or only the lines of `scores`; the kind of the problem; patterns of what is said, and of a detail, where there is one.
WRONG = {
    "loops": ("    while True:\n        pass\n", "runs", "scores did not return in 1 s: does a loop never end"),
    "loops-on-import": ("while True:\n    pass\n", "runs", "03_scores.py, when it is imported, did not return in 2 s"),
    "prints-gigabytes": (
        "    while True:\n        print('x' * 1000)\n",
        "runs",
        "the code prints more than 10 MiB",
        "line 3: print",
    ),
    "prints-past-python": (
        "import os\n" + BEGIN + "    for _ in range(300):\n        os.write(1, b'x' * 65536)\n" + RIGHT,
        "runs",
        "the code prints too much: \\d+ MiB|did not return in 1 s: it prints \\d+ MiB",
    ),
    "exits": (
        "import sys\n" + BEGIN + "    sys.exit(3)\n",
        "runs",
        "the code ends the program; a function returns instead",
        "SystemExit: 3",
    ),
    "os-exit": ("import os\n" + BEGIN + "    os._exit(3)\n", "runs", "scores ended the process: .*exit status 3"),
    "imports-what-is-missing": (
        "import a_module_that_is_missing\n" + BEGIN + RIGHT,
        "runs",
        "the file cannot be run",
        "ModuleNotFoundError: No module named 'a_module_that_is_missing'",
    ),
    "syntax": ("    return q @ (k.T\n", "runs", "this is not Python: '\\(' was never closed", "line 2: return q"),
    "empty": ("", "runs", "03_scores.py is empty: regard learn 3 shows how it begins"),
    "a-comment": ("# later\n", "runs", "there is no scores in 03_scores.py: it defines no function"),
    "changes-inputs": ("    q *= 2\n" + RIGHT, "inputs", "scores changes its inputs", "q = \\[\\["),
    "counts-calls": (
        "calls = []\n" + BEGIN + "    calls.append(1)\n    return q @ k.T + len(calls)\n",
        "random",
        "something else when it is called again: does it draw random numbers, or keep values",
    ),
    "none": ("    q @ k.T\n", "runs", "scores returns None: is there a `return`\\?"),
    "a-string": ("    return 'right'\n", "shape", "the result is the text 'right' and must be an array"),
    "an-object": ("    return object\n", "shape", "the result is an object of the type type and must be"),
    "complex": (RIGHT[:-1] + " * 1j\n", "shape", "an object of the type array of complex128"),
    "a-dict": ("    return {'scores': 1}\n", "shape", "the result is a dict"),
    "a-ragged-list": ("    return [[1, 2], [3]]\n", "shape", "2 values of the shapes \\(2,\\), \\(1,\\)"),
    "a-list-in-itself": ("    a = []\n    a.append(a)\n    return a\n", "raises", "raises an error", "Recursion"),
    "other-shape": (
        "    return (q @ k.T).T[:0]\n",
        "shape",
        "the result has the shape \\(0, 1\\) and must have \\(1, 1\\): \\(rows, keys\\)",
    ),
    "huge": (
        "import numpy as np\n" + BEGIN + "    return np.zeros((200_000, 2_000))\n",
        "shape",
        "the result has the shape \\(200000, 2000\\)",
    ),
    "too-large": (
        "import numpy as np\n" + BEGIN + "    return np.ones((10**7, 10**4)).sum()\n",
        "raises",
        "scores\\(q, k\\) raises an error",
        "MemoryError: Unable to allocate",
    ),
    "error-without-words": (
        "class Strange(BaseException):\n    def __str__(self):\n        raise self\n\n\n"
        + BEGIN
        + "    raise Strange\n",
        "raises",
        "scores\\(q, k\\) raises an error",
        "Strange, whose message cannot be read",
    ),
    "endless-words": (
        "    raise ValueError('x' * 10**7)\n",
        "raises",
        "raises an error",
        "ValueError: x{300} …",
    ),
    "error-of-a-library": (
        "import numpy as np\n" + BEGIN + "    np.reshape(q, 7)\n",
        "raises",
        "raises an error",
        "ValueError: cannot reshape.*\nline 3: np.reshape\\(q, 7\\)$",
    ),
    "rounded-on-the-way": (
        "    return (q / 3).astype('float32') @ k.T * (3 / q.shape[-1] ** 0.5)\n",
        "value",
        "is not right",
        "they differ by up to \\de-0\\d: is something computed in float32",
    ),
    "recursion": (
        "    return scores(q, k)\n",
        "raises",
        "scores\\(q, k\\) raises an error",
        "RecursionError: maximum recursion depth exceeded",
    ),
    "another-name": (
        "from math import sqrt\n\n\ndef score(q, k):\n" + RIGHT,
        "runs",
        "there is no scores in 03_scores.py: it defines score; rename it to scores$",
    ),
    "two-other-names": (
        "def helper():\n    pass\n\n\ndef score(q, k):\n" + RIGHT,
        "runs",
        "it defines helper, score; did you mean 'score'\\?",
    ),
    "not-a-function": ("scores = 3\n", "runs", "scores is not a function, but int"),
    "too-few-arguments": ("def scores(q):\n    return q\n", "raises", "scores\\(q, k\\) raises an error", "TypeError"),
    "waits-for-a-person": ("    input()\n", "raises", "raises an error", "EOFError"),
    "breaks-a-law": ("    return q @ k.T / 2**0.5 + 1\n", "law", "it must hold that twice the queries", "must be"),
    "no-number": ("    return q @ k.T * float('nan')\n", "value", "scores\\(q, k\\) is not right", "returned +\\[\\[nan"),
}  # fmt: skip

RIGHT_FILES = {
    "plain": BEGIN + RIGHT,
    "a-list": BEGIN + "    return [[sum(a * b for a, b in zip(x, y)) / len(x) ** 0.5 for y in k] for x in q]\n",
    "lambda": "scores = lambda q, k: q @ k.T / q.shape[1] ** 0.5\n",
    "class": "class scores:\n    def __new__(cls, q, k):\n    " + RIGHT,
    "forks": "import os\n" + BEGIN + "    os.fork()\n" + RIGHT,
    "forks-and-stays": "import os, time\n" + BEGIN + "    if os.fork() == 0:\n        time.sleep(6000)\n" + RIGHT,
    "replaces-stdout": "import sys\nsys.stdout = None\n" + BEGIN + RIGHT,
    "byte-order-mark": "\ufeff" + BEGIN + RIGHT,
    "main-block": BEGIN + RIGHT + "\n\nif __name__ == '__main__':\n    raise SystemExit\n",
    "dataclass": "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom typing import ClassVar\n\n\n"
    "@dataclass\nclass Pair:\n    q: object\n    count: ClassVar[int] = 1\n\n\n" + BEGIN + RIGHT,
    "annotations-are-objects": BEGIN + RIGHT + "\n\ndef f(x: int):\n    pass\n\n\nassert f.__annotations__['x'] is int\n",
}  # fmt: skip


@pytest.fixture(autouse=True)
def short_limits(monkeypatch):
    """Tests of loops shall be short, and those of mistakes that nobody knows."""
    monkeypatch.setattr(checking, "Child", lambda _, *where: Child("tests.learn.hasty", *where))
    monkeypatch.setattr(checking, "STEP", 1.0)
    monkeypatch.setattr(checking, "LOADING", 2.0)


@pytest.fixture(scope="module")
def checker(tmp_path_factory):
    """One checker for all files: it survives each of them, and begins a process anew where one has ended."""
    read = chapter(tmp_path_factory.mktemp("course"))
    with Checker(read, read.exercises[0]) as found:
        yield found


def written(folder, code):
    """The learner's file; lines that are indented are those of `scores`."""
    path = folder / "03_scores.py"
    if isinstance(code, str):
        code = (BEGIN * code.startswith("    ") + code).encode()
    path.write_bytes(code)
    return path


@pytest.fixture
def check(tmp_path, checker):
    """What finds the problem of a file with this code."""
    return lambda code: checker.checked(written(tmp_path, code)).problem


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name, tmp_path, check):
    """The kind, the sentence and a detail; no file is left behind."""
    code, kind, what, *details = WRONG[name]

    problem = check(code)

    assert problem is not None and problem.kind == kind, problem
    assert re.search(what, problem.what), problem
    assert all(re.search(each, "\n".join(problem.details)) for each in details), problem
    assert len(str(problem)) < 10_000
    assert [path.name for path in tmp_path.iterdir()] == ["03_scores.py"]


def test_what_is_right_passes(tmp_path, checker):
    """However it is written, and whatever else it does; nothing is left behind."""
    with marked(), Checker(checker.chapter, checker.exercise) as own:
        assert [name for name, code in RIGHT_FILES.items() if own.checked(written(tmp_path, code)).problem] == []


def test_lines_of_an_array_are_below_each_other(check):
    """Inputs, and the two arrays that must be equal, which begin in lines of their own."""
    problem = check("    return (q @ k.T / q.shape[-1] ** 0.5 + (len(q) > 1)) ** 1\n")

    assert problem is not None and problem.kind == "law"
    lines = "\n".join(problem.details).splitlines()
    firsts = [number for number, line in enumerate(lines) if "[[" in line]
    assert len(firsts) == 4, lines
    for first in firsts:
        assert lines[first + 1].index("[") == lines[first].index("[[") + 1, lines
    assert lines[firsts[3] - 1] == "and" and lines[-1] == "must be equal"


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_file_in_another_encoding(encoding, check):
    """The encoding is named, and no line of the file is blamed; a file may name its encoding, as Python has it."""
    code = "# caf\xe9\n" + BEGIN + RIGHT

    problem = check(code.encode(encoding))

    assert problem is not None and problem.kind == "runs"
    assert problem.what == "03_scores.py is not a text in UTF-8; save it with this encoding"
    assert check(("# -*- coding: latin-1 -*-\n" + code).encode("latin-1")) is None


@pytest.mark.parametrize(
    "returned", ["{}.astype('float32')", "[{}.astype('float32')][0]", "list({}.astype('float32'))"]
)
def test_a_result_of_32_bits_is_compared_as_one(returned, check):
    """What float32 rounds is no mistake; a wrong result in float32 is still wrong, and its mistake is named."""
    for scale, mistakes in ((" / q.shape[-1] ** 0.5", None), ("", ("scale-missing",))):
        problem = check(f"    return {returned.format(f'(q @ k.T{scale})')}\n")
        assert (problem and problem.mistakes) == mistakes


def test_a_tensor_is_as_good_as_an_array(tmp_path):
    """Also one that requires gradients, and in a law, which takes the results as arrays: [::-1] works."""
    import torch  # noqa: F401, without which it is skipped

    read = chapter(tmp_path, SCORES.replace("same(scores(2 * q, k), ", "same(scores(2 * q, k)[::-1][::-1], "))
    code = "import torch\n" + BEGIN + "    return torch.tensor(q @ k.T / q.shape[1] ** 0.5, requires_grad=True)\n"

    assert checked(read, read.exercises[0], written(tmp_path, code)).problem is None


def test_what_is_printed_is_shown(tmp_path, checker):
    """Of a right answer each case once; of a wrong one the case that fails; of one that never ends what it printed; of
    much a few screens.
    """
    code = "print('at first')\n" + BEGIN + "    print('shape', q.shape)\n"

    def found(rest):
        result = checked(checker.chapter, checker.exercise, written(tmp_path, code + rest))
        return result.problem, result.printed.splitlines()

    assert found(RIGHT) == (None, ["at first", "shape (1, 2)", "shape (2, 4)", "shape (5, 8)"])
    wrong, printed = found("    return q @ k.T / q.shape[0] / 2 ** 0.5\n")
    assert printed == wrong.printed.splitlines() == ["at first", "shape (2, 4)"]
    endless, printed = found("    while True:\n        pass\n")
    assert "does a loop never end" in endless.what and printed == ["at first", "shape (1, 2)"]
    right, printed = found("    print('x' * 100_000)\n" + RIGHT)
    assert right is None and 1000 < len("".join(printed)) <= 4000


def test_the_smallest_case_is_shown(check):
    """The first case that fails is small, and its numbers are the details."""
    problem = check("    return q @ k.T\n")

    assert problem is not None and problem.kind == "value" and problem.mistakes == ("scale-missing",)
    assert [line.split(" ")[0] for line in problem.details] == ["q", "k", "returned", "must"]
    assert problem.cause and problem.fix and problem.description


def test_an_error_is_not_taken_for_another(check):
    """A wrong answer that raises an error explains only code that does the same in all cases."""
    keys = check("    return np.dot(q, k) / q.shape[-1] ** 0.5\n")

    assert keys is not None and keys.mistakes == () and "NameError" in keys.details[-2]


def test_a_file_that_is_missing(tmp_path, checker):
    """What was given, what is expected, and what to do; a folder is no file."""
    (reason,) = reasons_of(checker.checked, tmp_path / "03_other.py")
    assert reason.what.endswith("the file does not exist")
    assert reason.fix == "regard learn 3 writes 03_other.py anew"
    assert refusal(checker.checked, tmp_path)


TWICE = '''+++
number = 1
title = "Twice"
minutes = 5
+++

```toml exercise twice
file = "twice"
function = "twice"
task = "Double x."
hints = ["a", "b", "c"]
```

```python start twice
def twice(x):
    """x doubled."""
```

```python solution twice
def twice(x):
    return 2 * x
```

```python cases twice
for x in CASES:
    case(x=np.array([x]))
```

```python law twice
"""numbers below 0 are doubled, too"""

same(twice(np.array([-1.0])), np.array([-2.0]))
```

```python wrong twice absolute-value
"""the sign is lost

cause: abs
fix: leave it out
"""


def twice(x):
    return abs(2 * x)
```
'''
OTHER = "def twice(x):\n    return 2 * x if x.min() >= 0 else 3 * x\n"
ABSOLUTE = "def twice(x):\n    return x + x if x[0] > 0 else -2 * x\n"


@pytest.mark.parametrize(
    ("cases", "code", "kind", "mistakes"),
    [
        ("(1.0, 2.0)", OTHER, "law", ()),
        ("(1.0, -3.0)", ABSOLUTE, "law", ("absolute-value",)),
    ],
)
def test_a_mistake_is_named_if_a_case_shows_it(cases, code, kind, mistakes, tmp_path):
    """A case below 0 does. The law alone finds other errors too. A name is never
    due to a wrong answer that is right in all cases.
    """
    (tmp_path / "01-twice.md").write_text(TWICE.replace("CASES", cases))
    read = read_chapter(tmp_path / "01-twice.md")
    found = checked(read, read.exercises[0], written(tmp_path, code)).problem

    assert (found.kind, found.mistakes, bool(found.cause)) == (kind, mistakes, bool(mistakes))
