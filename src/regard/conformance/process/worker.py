"""The service of a judged function: it is loaded, and called as the parent requests."""

from __future__ import annotations

import _thread
import dataclasses
import os
import pickle
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ...common.errors import Refused, refuse
from ...laws.call import Answer
from ...sandbox.foreign import one_line, said
from ...sandbox.frames import packed
from ..conventions.translate import Absent
from .one_call import Callee, describe
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


def service() -> Callable[[bytes], bytes]:
    """The replies: to the first request, which names the function, and to calls of it."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # a warning would count as printed by the function
    callee: Callee | None = None

    def reply(request: bytes) -> bytes:
        nonlocal callee
        if callee is not None:
            return answered(callee, request)
        content, callee = loaded(request)
        return content

    return reply


def loaded(request: bytes) -> tuple[bytes, Callee | None]:
    """Loads the function: the reply, and the function, or None if it cannot be loaded."""
    try:
        function = pickle.loads(request).load()
        reply = packed({"description": dataclasses.asdict(describe(function))}, {})
        callee = Callee(function, ReportedEvents(), (BaseException,))
    except Refused as refused:
        return refusal(refused), None
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
