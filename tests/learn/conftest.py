"""What tests of the course share: checks that start no process."""

import sys
import threading
from types import SimpleNamespace

import pytest

from regard.laws import explain
from regard.learn.checking import check, grading, worker

TURN = threading.Lock()  # what one file prints is caught for the whole process


class Here:
    """Answers in this process what the process of a check answers: for code that ends, and does no harm."""

    printed, end = 0, SimpleNamespace(alive=True)

    def __init__(self, *_):
        self.answer = worker.service()

    def exchange(self, request, *_):
        with TURN:
            return self.answer(request)

    def close(self):
        pass


@pytest.fixture
def here(monkeypatch):
    """Checks run in this process, because starting one takes a second, and hardly search for pairs of mistakes.
    test_check.py starts processes.
    """
    monkeypatch.setattr(explain, "EFFORT", 300)
    monkeypatch.setattr(check, "Child", Here)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setitem(sys.modules, grading.MODULE, None)
