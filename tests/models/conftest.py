"""A text to learn."""

import pytest

from tests.models.texts import RHYME


@pytest.fixture
def rhyme(tmp_path):
    path = tmp_path / "rhyme.txt"
    path.write_text(RHYME)
    return path
