"""The lesson in a terminal: nothing that is printed is cut off, and no screen is empty."""

import pytest

from regard.cli.terminal import Console
from regard.learn.checking.problem import Checked, Problem
from regard.learn.lesson import Lesson
from regard.learn.screen import Screen
from regard.learn.source import chapters
from tests.learn.chapter_files import chapter

EXERCISE = chapters()[3].exercises[0]
CLAIM = '```python claim a\n"""Two is even."""\nholds = 2 % 2 == 0\n```\n'


class Pages(Screen):
    """Counts what is shown until Enter is pressed."""

    count = 0

    def pause(self):
        self.count += 1


def test_headings_are_shown_with_what_follows(tmp_path):
    """A title, a section with words, two sections that begin with a program: three screens."""
    screen = Pages(Console())
    text = f"# Scores\n\n## A\n\nWords.\n\n## B\n\n{CLAIM}\n## C\n\n{CLAIM.replace('claim a', 'claim b')}"
    Lesson(tmp_path / "learner", [chapter(tmp_path, text)], screen).teach()

    assert screen.count == 3


@pytest.mark.parametrize("text", [" ".join(f"word{number}" for number in range(200)), "x" * 77, "x" * 200])
def test_long_lines_are_wrapped(text, capsys):
    """Details of a problem and what the learner's code prints, such as an error of PyTorch or a row of numbers."""
    Screen(Console()).checked(Checked(Problem("raises", "not right", (text,)), text), EXERCISE)

    assert "".join(capsys.readouterr().out.split()).count(text.replace(" ", "")) == 2
