"""A text to learn, and runs that learn it."""

import pytest

from regard.models.training import run
from tests.models.texts import RHYME, TINY


@pytest.fixture
def rhyme(tmp_path):
    path = tmp_path / "rhyme.txt"
    path.write_text(RHYME)
    return path


@pytest.fixture
def begin(rhyme, tmp_path):
    """Begins a run of a tiny model on the rhyme, in a folder of this name."""
    return lambda name="run", **wishes: run.begin(tmp_path / name, [rhyme], {**TINY, **wishes})
