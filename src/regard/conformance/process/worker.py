"""The child process: loads the judged function and calls it as the parent requests.

    python -m regard.conformance.process.worker CONNECTION LIFELINE

CONNECTION: the descriptor of a socket for messages · LIFELINE: that of a pipe on which nothing is ever sent; it closes
when the parent ends, however it ends, and this process and all that it started end with it.
"""

from __future__ import annotations

import _thread
import atexit
import os
import pickle
import signal
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ...common.errors import Refused, refuse
from ..call import Answer
from ..conventions.translate import Absent
from .frames import one_line, packed, read_frame, said, write_frame
from .one_call import Callee, describe, limit_memory
from .target import WHERE

MOST = 3  # events of one kind and call
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _name(value: object) -> str:
    """A path or an address; other objects are not printed, since their code is not ours."""
    if type(value) is bytes:
        value = value.decode("utf-8", "replace")
    if type(value) is tuple and len(value) >= 2:
        value = f"{_name(value[0])}:{_name(value[1])}"
    return one_line(str(value)) if type(value) in (str, int) else type(value).__name__


def _opened(arguments: tuple) -> str:
    path, _, flags = arguments
    written = type(path) in (str, bytes) and type(flags) is int and flags & WRITING
    shown = _name(path)
    # Python writes the byte code of a module that is imported by the call.
    return f"wrote to the file {shown}" if written and shown != os.devnull and "__pycache__" not in shown else ""


def _said(words: str, position: int | None = None) -> Callable[[tuple], str]:
    return lambda arguments: words if position is None else words + _name(arguments[position])


# The events of sys.addaudithook, and how they are said.
WORDS: dict[str, Callable[[tuple], str]] = {
    **dict.fromkeys(("os.fork", "os.forkpty", "os.posix_spawn", "os.exec"), _said("started a process")),
    **dict.fromkeys(("subprocess.Popen", "os.system", "_posixsubprocess.fork_exec"), _said("started a process")),
    "socket.connect": _said("opened a network connection to ", 1),
    "socket.sendto": _said("sent to the network address ", 1),
    "socket.bind": _said("opened the network address ", 1),
    "socket.getaddrinfo": _said("looked up the network address ", 0),
    "open": _opened,
    "os.remove": _said("removed the file ", 0),
    "os.rename": _said("renamed the file ", 0),
    "os.truncate": _said("wrote to the file ", 0),
    "os.mkdir": _said("created the folder ", 0),
    "os.rmdir": _said("removed the folder ", 0),
    "signal.pthread_kill": _said("sent a signal"),
    "os.kill": _said("sent a signal"),
    "os.killpg": _said("sent a signal"),
}


class ReportedEvents:
    """The events of one call at a time. Python keeps the hook until the process ends: for the child only."""

    def __init__(self) -> None:
        self.seen: list[str] | None = None
        self.kinds: Counter[str] = Counter()
        self.threads = 0
        sys.addaudithook(self._hook)

    def start(self) -> None:
        """Begins to collect."""
        self.threads = _thread._count()  # those that Python started, as all versions report them
        self.kinds.clear()
        self.seen = []

    def stop(self) -> list[str]:
        """What was collected, each event once."""
        seen, self.seen = self.seen or [], None
        return [*seen, "left a thread running"] if _thread._count() > self.threads else seen

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        seen = self.seen
        if seen is not None and event in WORDS and self.kinds[event] < MOST:
            words = WORDS[event](arguments)
            if words and words not in seen:
                self.kinds[event] += 1
                seen.append(words)


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
