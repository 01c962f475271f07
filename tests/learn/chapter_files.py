"""Chapters: those of the course, and one that tests write, with right and wrong answers to its exercises."""

import pytest

from regard.learn.source import chapters, read_chapter

each_chapter = pytest.mark.parametrize("read", chapters(), ids=lambda read: read.path.stem)

HEAD = """+++
number = 3
title = "Scores"
minutes = 25
+++
"""

SCORES = '''
```toml exercise scores
file = "scores"
function = "scores"
task = "Write it."
shape = "(rows, keys)"
hints = ["a question", "a direction", "a line"]
```

```python start scores
def scores(q, k):
    """The scores."""
```

```python solution scores
def scores(q, k):
    return q @ k.T / q.shape[-1] ** 0.5
```

```python cases scores
for rows, keys, depth in [(1, 1, 2), (2, 3, 4), (5, 7, 8)]:
    case(q=whole(rows, depth), k=whole(keys, depth))
```

```python law scores
"""twice the queries give twice the scores"""

same(scores(2 * q, k), 2 * scores(q, k))
```

```python wrong scores scale-missing
def scores(q, k):
    return q @ k.T
```

```python wrong scores keys-not-transposed
"""k is not transposed

cause: columns of k are not keys
fix: write k.T
"""


def scores(q, k):
    return q @ k / q.shape[-1] ** 0.5
```

```toml wrong scores
"scale-1/D" = { body = "return q @ k.T / q.shape[-1]" }
scale-inverted = { body = "return q @ k.T * q.shape[-1] ** 0.5" }
```
'''

TESTS = '''
```toml exercise tests-of-scores
file = "test_scores"
function = "scores"
task = "Write tests."
hints = ["a question", "a direction", "a line"]
tests_of = "scores"
```

```python start tests-of-scores
"""Tests of scores."""
```

```python solution tests-of-scores
import numpy as np


def test_a_pair(scores):
    assert scores(np.array([[2.0, 0, 0, 0]]), np.array([[3.0, 9, 9, 9], [1, 9, 9, 9]])).tolist() == [[3.0, 1.0]]
```
'''


def chapter(folder, text=SCORES + TESTS):
    """A chapter with this text."""
    path = folder / "03-scores.md"
    path.write_text(HEAD + text, encoding="utf-8")
    return read_chapter(path)
