"""Naming a mistake: it is named if it explains wrong results, never because a wrong answer is right in all cases."""

import pytest

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
ABSOLUTE = "def twice(x):\n    return x + x if x[0] > 0 else -2 * x\n"


@pytest.mark.parametrize(
    ("cases", "code", "kind", "mistakes"),
    [("(1.0, 2.0)", OTHER, "law", ()), ("(1.0, -3.0)", ABSOLUTE, "law", ("absolute-value",))],
)
def test_a_mistake_is_named_if_a_case_shows_it(cases, code, kind, mistakes, tmp_path, here):
    """A case below 0 does. The law alone finds other errors too."""
    (tmp_path / "01-twice.md").write_text(CHAPTER.replace("CASES", cases))
    (tmp_path / "01_twice.py").write_text(code)
    chapter = read_chapter(tmp_path / "01-twice.md")
    found = checked(chapter, chapter.exercises[0], tmp_path / "01_twice.py").problem

    assert (found.kind, found.mistakes, bool(found.cause)) == (kind, mistakes, bool(mistakes))
