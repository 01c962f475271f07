"""A disk that takes no more bytes, for real (by a limit on the size of files): one sentence, and no draft."""

import resource
from contextlib import contextmanager

import pytest

from regard import Refused
from regard.models.training import checkpoint, run

TINY = {"layers": 1, "width": 16, "heads": 2, "context": 16, "batch": 2, "warmup": 1, "steps": 4, "eval_every": 2}


@contextmanager
def full(size: int = 0):
    """Inside, no file of this process becomes longer than this; Python ignores the signal and gets the error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def text(tmp_path):
    """A file to train on."""
    path = tmp_path / "text.txt"
    path.write_text("a rose is a rose is a rose. " * 200)
    return path


def drafts(folder) -> list[str]:
    """The names of unfinished files."""
    return [path.name for path in folder.rglob("*.part")]


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_the_first_checkpoint(text, tmp_path, size):
    """A new run that cannot be saved is refused, and leaves no draft."""
    with full(size), pytest.raises(Refused, match="the checkpoint cannot be written"):
        run.begin(tmp_path / "run", [text], TINY)

    assert drafts(tmp_path) == []


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_a_later_checkpoint_and_resuming(text, tmp_path, size):
    """Training says which checkpoint is complete, resuming that the log cannot be written; both go on afterwards."""
    found = run.begin(tmp_path / "run", [text], TINY)
    steps = iter(found)
    next(steps), next(steps)
    with full(size), pytest.raises(Refused, match=r"cannot be written[\s\S]*the checkpoint of step 2 is complete"):
        list(steps)
    steps.close()
    if size == 0:
        with full(), pytest.raises(Refused, match="the log cannot be written"):
            run.resume(tmp_path / "run", [], {})

    assert drafts(tmp_path) == []
    assert [line["step"] for line in run.resume(tmp_path / "run", [], {})] == [3, 4]


def test_a_model_that_is_saved_by_hand(text, tmp_path):
    """`save` raises the OSError of the system, with its number, and the model in the folder stays."""
    found = run.begin(tmp_path / "run", [text], TINY)
    before = (tmp_path / "run" / checkpoint.NAME).read_bytes()
    with full(100), pytest.raises(OSError) as caught:
        checkpoint.save(tmp_path / "run", found.model)

    assert caught.value.errno and caught.value.strerror
    assert (tmp_path / "run" / checkpoint.NAME).read_bytes() == before and drafts(tmp_path) == []
