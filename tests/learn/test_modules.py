"""Exercises in which a module is written: first cases can be computed by hand, problems say what is wrong."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch  # noqa: F401, without which all is skipped

from regard.learn.checking.grading import Grading, plain
from regard.learn.checking.naming import explained
from regard.learn.source import chapters
from tests.support.command import done, regard

COMMON = {"scale-missing", "softmax-over-queries", "mask-inverted", "mask-ignored"}
WRITTEN = [chapter for chapter in chapters() if chapter.number in (7, 8)]  # later ones begin with a broken module
MODULES = {each.name: each for chapter in WRITTEN for each in chapter.exercises if each.result and each.needs}


@pytest.fixture(params=MODULES)
def exercise(request):
    return MODULES[request.param]


def failing(grading, code, folder):
    """The first case that an answer fails, and the problem, explained."""
    path = folder / "answer.py"
    path.write_text(code, encoding="utf-8")
    assert grading.load(str(path)) is None
    number, found = next((at, found) for at in range(len(grading.cases)) if (found := grading.case(at)))
    return number, explained(found, grading)


def test_listed_mistakes_can_be_seen_by_hand(exercise, tmp_path):
    """The first case in which they fail has few whole numbers, parameters included; of several results the first one
    that differs is shown, with its name.
    """
    grading = Grading(exercise)
    codes = {each.mistake: each.code for each in exercise.wrong if each.mistake in COMMON}
    shown = 0
    for mistake, code in codes.items():
        number, found = failing(grading, code, tmp_path)
        arrays = [each for each in map(plain, grading.cases[number].values()) if isinstance(each, np.ndarray)]

        assert mistake in (*found.mistakes, *found.alike)
        assert all(each.size <= 6 and (each == np.round(each)).all() for each in arrays), mistake
        details = "\n".join(found.details)
        if found.kind == "value":
            shown += 1
            assert len(re.findall(r"^[\w. ]+: (?:returned   |must be    )", details, re.M)) == 2
            assert "{" not in details
    assert shown


RETURNED = "return (out, weights) if return_weights else out"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (RETURNED, "return out, weights", "forward returns the output alone"),
        (RETURNED, "return out", "returns two results"),
        (RETURNED, "out", "is there a `return`"),
        ("self.W_q", "self.Wq", r"the parameters are W_q, W_k, W_v and W_o(.|\n)*Wq\.weight.* it lacks W_q\.weight$"),
    ],
)
def test_what_forward_returns_is_said_in_words(exercise, old, new, what, tmp_path):
    """An error of the check itself, such as in unpacking, is never shown; a parameter that is missing is named."""
    assert old in exercise.solution
    _, found = failing(Grading(exercise), exercise.solution.replace(old, new), tmp_path)

    assert found.kind == "law" and re.search(what, "\n".join([found.what, *found.details]))


@pytest.mark.slow
def test_a_model_talks_and_its_card_is_checked(tmp_path, monkeypatch):
    """The solutions train for a second; the lens sees their attention; a card that was changed is not right."""
    monkeypatch.chdir(tmp_path)
    block, attention = (chapters()[17].part(name) for name in ("block", "attention"))
    forward = block.solution.partition("(self, x):\n")[2]
    Path(block.file_name).write_text(block.start.replace('the same shape."""', f'x"""\n{forward}'))
    Path(attention.file_name).write_text(attention.solution)
    subprocess.run([sys.executable, block.file_name, "1"], check=True)

    assert "2 attention calls" in done("look", "17_run")
    card = Path("card.svg")
    card.write_text(card.read_text().replace("x + self.W_o", "self.W_o"))
    status, said, _ = regard("learn", "--claim", card)
    assert status == 1 and "attention is right" in said and "Block: not yet" in said
