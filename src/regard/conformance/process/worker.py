"""The child process: loads the judged function and calls it as the parent requests.

    python -m regard.conformance.process.worker CONNECTION LIFELINE

CONNECTION: the descriptor of a socket for messages · LIFELINE: that of a pipe on which nothing is ever sent; it closes
when the parent ends, however it ends, and this process and all that it started end with it.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import sys
import threading
import warnings
from typing import Any

import numpy as np

from ...common.errors import Refused, refuse
from ..call import Answer
from ..conventions.translate import Absent
from .frames import packed, read_frame, said, write_frame
from .one_call import Callee, describe, limit_memory
from .reported_events import ReportedEvents
from .target import WHERE


def main(connection: int, lifeline: int) -> None:
    """Answers requests until the parent closes the connection."""
    end_with(lifeline)
    for descriptor in (connection, lifeline):
        os.set_inheritable(descriptor, False)  # what the function starts shall not keep them open
    limit_memory()
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # a warning would count as printed by the function
    first = read_frame(connection)
    if first is None:
        return
    reply, callee = loaded(first)
    write_frame(connection, reply)
    while callee is not None and (request := read_frame(connection)) is not None:
        write_frame(connection, answered(callee, request))
    leave()


def loaded(request: bytes) -> tuple[bytes, Callee | None]:
    """Loads the function: the reply, and the function, or None if it cannot be loaded."""
    try:
        function = pickle.loads(request).load()
        reply = packed({"description": describe(function).as_json()}, {})
        callee = Callee(function, ReportedEvents(), (BaseException,))
    except Refused as refused:
        return refusal(refused), None
    flush()
    return reply, callee


def answered(callee: Callee, request: bytes) -> bytes:
    """Makes one call: the reply."""
    try:
        answer = callee.answer(*pickle.loads(request))
    except Absent as absent:
        return packed({"absent": [absent.role, absent.words]}, {})
    except Refused as refused:
        return refusal(refused)
    except Exception as error:
        # What prepares the call failed: an array library that is not installed, or a state that the function left.
        expected, fix = "a call that can be prepared", "change what the adapter declares, or install what it needs"
        return refusal(refuse(WHERE, "the call cannot be prepared", said(error), expected, fix))
    flush()
    return packed(*parts(answer))


def parts(answer: Answer) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """An answer as the types of JSON and arrays."""
    simple = ("status", "words", "returned", "dtype", "events", "seconds", "peak")
    arrays = {name: getattr(answer, name) for name in ("out", "lse", "weights")}
    arrays |= {f"gradient {name}": array for name, array in answer.gradients.items()}
    return {name: getattr(answer, name) for name in simple}, {k: v for k, v in arrays.items() if v is not None}


def refusal(refused: Refused) -> bytes:
    """A refusal as a reply."""
    return packed({"refused": [[each.what, each.given, each.expected, each.fix] for each in refused.reasons]}, {})


def flush() -> None:
    """Sends what the function printed, so that the parent counts it with this call."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # the function may have put anything in their place
            continue


def leave() -> None:
    """Ends this process, but does not take the libraries apart that it loaded: with torch, that takes half a second."""
    atexit._run_exitfuncs()
    flush()
    os._exit(0)


def end_with(lifeline: int) -> None:
    """Ends the whole process group when the other end of a pipe closes."""
    import fcntl

    if hasattr(fcntl, "F_SETSIG"):  # Linux: the system sends the signal, even if the function never returns to Python
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        return

    def wait() -> None:
        os.read(lifeline, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
