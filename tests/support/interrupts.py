"""Exceptions that come from outside, raised before any chosen line of regard: an interrupt, or no memory."""

import itertools
import sys
from pathlib import Path

import regard as rg

FOLDER = str(Path(rg.__file__).parent)
FINALIZERS = ("__del__", "forget")  # run whenever an object ends, and Python lets no exception out of them


def ends_before(number: int, error: type[BaseException], call) -> bool:
    """Whether the call ends before it reaches this line, counted from 1 in the order of execution; if not, `error` is
    raised there, and has to leave the call.
    """
    lines = itertools.count(1)

    def line(frame, event, arg):
        if event == "line" and next(lines) == number:
            raise error
        return line

    def enter(frame, event, arg):
        code = frame.f_code
        return line if code.co_filename.startswith(FOLDER) and code.co_name not in FINALIZERS else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        call()
    except error:
        return False
    finally:
        sys.settrace(before)
    assert next(lines) <= number, "the exception was swallowed"
    return True


def interrupted(error: type[BaseException], call, *arguments):
    """Interrupts a call before each of its lines, and yields their numbers, until the call ends."""
    for number in itertools.count(1):
        if ends_before(number, error, lambda: call(*arguments)):
            return
        yield number
