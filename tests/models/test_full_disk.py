"""A disk that takes no more bytes, for real (by a limit on the size of files): one sentence, and no draft."""

import resource
from contextlib import contextmanager

import pytest

from regard.models.training import run
from tests.support.refusals import refusing


@contextmanager
def full(size: int = 0):
    """Inside, no file of this process becomes longer than this; Python ignores the signal and gets the error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def drafts(folder) -> list[str]:
    """The names of unfinished files."""
    return [path.name for path in folder.rglob("*.part")]


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_a_checkpoint_and_resuming(begin, tmp_path, size):
    """A new run that cannot be saved is refused, and training says which checkpoint is complete; no draft is left, and
    all goes on afterwards.
    """
    wishes = {"steps": 4, "eval_every": 2}
    with full(size), refusing("the checkpoint cannot be written"):
        begin("first", **wishes)
    steps = iter(begin(**wishes))
    next(steps), next(steps)
    with full(size), refusing(r"cannot be written[\s\S]*the checkpoint of step 2 is complete"):
        list(steps)
    steps.close()

    assert drafts(tmp_path) == []
    assert [line["step"] for line in run.resume(tmp_path / "run", [], {})] == [3, 4]
