"""The lesson in a terminal: nothing that is printed is cut off."""

import pytest

from regard.cli.terminal import Console
from regard.learn.checking.problem import Checked, Problem
from regard.learn.screen import Screen
from regard.learn.source import chapters

EXERCISE = chapters()[3].exercises[0]


@pytest.mark.parametrize("words", [3, 12, 13, 40, 200])
def test_long_lines_are_wrapped(words, capsys):
    """Details of a problem and what the learner's code prints, such as an error of PyTorch."""
    message = " ".join(f"word{number}" for number in range(words))
    Screen(Console()).checked(Checked(Problem("raises", "not right", (message,)), message), EXERCISE)

    assert capsys.readouterr().out.split().count(f"word{words - 1}") == 2


@pytest.mark.parametrize("length", [76, 77, 78, 200])
def test_long_words_are_wrapped(length, capsys):
    """A row of numbers without a space."""
    Screen(Console()).output("x" * length)

    assert capsys.readouterr().out.count("x") == length
