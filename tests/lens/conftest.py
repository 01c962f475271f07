"""A run that is kept in a folder."""

import pytest

from regard.lens.storage.folder import save
from tests.support.kept_runs import rich


@pytest.fixture
def kept(tmp_path):
    """The folder of a good run."""
    save(rich(), tmp_path / "run")
    return tmp_path / "run"
