"""A small course that tests serve: questions, programs, a claim, a picture, an exercise, and a chapter after it."""

import pytest

from regard.learn.pages import server
from regard.learn.source import read_chapter
from tests.learn.chapter_files import HEAD, SCORES

for package in server.PACKAGES:
    pytest.importorskip(package, reason=f"{package} is not installed")


THREE = '''
# Scores

## A first section

Some words.

```toml prediction size
ask = "How many?"
form = "number"
answer = 8
otherwise = "Count them."
```

```python reveal size
print("counted:", 8)
answer = 8
```

## After the prediction

```python reveal alone
print("by itself")
```

```python claim true holds
"""Eight is even."""

holds = 8 % 2 == 0
print("8 % 2 =", 8 % 2)
```

```python visual bars softmax
"""Bars: move the slider."""

scores = [1.0, 2.0, 3.0]
```
'''
REST = """
```toml question last
ask = "Which one?"
form = "choice"
answer = 2
choices = [{ text = "this", why = "No." }, { text = "that" }]
```
"""
FOUR = """+++
number = 4
title = "Weights"
minutes = 10
+++

# Weights

The next chapter.
"""
RIGHT = "def scores(q, k):\n    return q @ k.T / q.shape[-1] ** 0.5\n"
WRONG = "def scores(q, k):\n    print('seen')\n    return q @ k.T\n"


def small_course(folder, more=""):
    """The chapters, from files in a folder. more: blocks before the exercise"""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"03-scores.md": HEAD + THREE + more + SCORES + REST, "04-weights.md": FOUR}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [read_chapter(folder / name) for name in texts]
