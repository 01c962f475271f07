"""Naming a mistake: it is named if it explains wrong results, never because a wrong answer is right in all cases."""

from regard.learn.checking.check import checked
from regard.learn.source import read_chapter

CHAPTER = '''+++
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


def problem(folder, cases, code):
    (folder / "01-twice.md").write_text(CHAPTER.replace("CASES", cases))
    (folder / "01_twice.py").write_text(code)
    chapter = read_chapter(folder / "01-twice.md")
    return checked(chapter, chapter.exercises[0], folder / "01_twice.py").problem


def test_a_mistake_that_no_case_shows_is_not_named(tmp_path, here):
    """Only the law finds it, and it finds other errors too."""
    found = problem(tmp_path, "(1.0, 2.0)", OTHER)

    assert found.kind == "law" and not found.mistakes and not found.cause


def test_a_mistake_that_a_case_shows_is_named(tmp_path, here):
    """The same chapter with a case below 0."""
    code = "def twice(x):\n    return x + x if x[0] > 0 else -2 * x\n"

    assert problem(tmp_path, "(1.0, -3.0)", code).mistakes == ("absolute-value",)
