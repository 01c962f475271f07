"""The processes that a test starts: found by a variable of their environment, wherever they are."""

import secrets
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import HANG

MARK = "REGARD_TEST_MARK"


def descendants(mark: str) -> list[str]:
    """The processes that inherited a variable of the environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append(f"{entry.name}: {(entry / 'cmdline').read_bytes()!r}")
        except OSError:
            continue
    return found


def without(mark: str) -> list[str]:
    """Those that are left after a moment; a killed process may still be listed."""
    end = time.monotonic() + HANG
    while (left := descendants(mark)) and time.monotonic() < end:
        time.sleep(0.01)
    return left


@contextmanager
def marked():
    """A variable of the environment; at the end no process has it."""
    mark = secrets.token_hex(8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, mark)
        yield mark
    if sys.platform == "linux":
        assert without(mark) == []
