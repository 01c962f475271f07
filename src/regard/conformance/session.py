"""Session: the judged function in a process of its own, called from here."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from collections.abc import Callable
from typing import Any

from ..common.errors import Refused, refuse
from ..laws.call import Answer, Call
from ..sandbox.child import Child, Lost
from .callee import Callee, Description
from .conventions.fields import Adapter
from .conventions.translate import Absent
from .target import WHERE, Target

MOST = 1 << 36  # bytes of a reply; a longer one is what the function wrote to the connection


class Session:
    """Calls of one function in a child process, which is started when it is needed and again after it was lost.

    target: the function, by name · seconds: the limit of each call · loading: the limit of the import
    """

    isolated = True

    def __init__(self, target: Target, seconds: float = 10.0, loading: float = 60.0):
        self.target, self.seconds, self.loading = target, seconds, loading
        self._child: Child | None = None
        self._description: Description | None = None

    def close(self) -> None:
        """Ends the process and all that it started."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def describe(self) -> Description:
        """The function's parameters, declared adapter and version. Raises Refused if it cannot be loaded."""
        return self._description or self._start()[1]

    def call(self, call: Call, adapter: Adapter) -> Answer:
        """One call. What the function does wrong is in the answer. Raises Absent if the function has no such
        argument, Refused if it cannot be loaded or prepared.
        """
        late: tuple[str, ...] = ()
        if self._child is not None and self._child.ended():
            self._drop()
            late = ("the process ended after the previous call",)
        try:
            child = self._child or self._start()[0]
        except Refused as refused:
            if self._description is None:
                raise
            return Answer(status="crashed", words=f"it cannot be loaded again: {refused.reasons[0].given}")
        printed = child.printed
        try:
            answer = _exchange(child, (call, adapter), self.seconds)
        except Lost as lost:
            self._drop()
            answer = Answer(status=lost.status, words=str(lost))
        except (Absent, Refused):
            raise
        except BaseException:
            self._drop()
            raise
        count = child.printed - printed
        text = (f"printed {count:,} bytes",) if count else ()
        return dataclasses.replace(answer, events=late + answer.events + text)

    def _start(self) -> tuple[Child, Description]:
        child = self._child = Child("regard.conformance.callee")
        try:
            self._description = description = _exchange(child, self.target, self.loading)
        except Lost as lost:
            self._drop()
            what, given = f"{self.target.source} cannot be imported", str(lost).replace("return", "end")
            fix = "move what its import does into functions, or allow it more seconds"
            raise refuse(WHERE, what, given, "an import that ends without errors", fix) from None
        except BaseException:
            self._drop()
            raise
        return child, description

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()
            child.close()


def _exchange(child: Child, content: Any, seconds: float) -> Any:
    """What the process replies to a request. Raises Absent or Refused if that is the reply."""
    reply = pickle.loads(child.exchange(pickle.dumps(content), seconds, MOST))
    if isinstance(reply, Exception):
        raise reply
    return reply


class InProcess:
    """The same calls in this process, for functions without a name that can be imported: lambdas, closures, functions
    of `__main__`. What crashes or hangs here, crashes or hangs the caller: no call has a time limit.
    """

    isolated = False

    def __init__(self, function: Callable[..., Any]):
        self._callee = Callee(function, None, (Exception, SystemExit, GeneratorExit))  # Ctrl-C is the user's

    def close(self) -> None:
        """Does nothing: the function has no process of its own."""

    def describe(self) -> Description:
        """The function's parameters, declared adapter and version."""
        return self._callee.description

    def call(self, call: Call, adapter: Adapter) -> Answer:
        """One call."""
        return self._callee.answer(copy.deepcopy(call), adapter)  # arrays of its own, as in a child


def open_session(function: Callable[..., Any] | str, seconds: float) -> Session | InProcess:
    """The session for a function, or for its name `module:function` or `FILE.py:function`."""
    if isinstance(function, str):
        return Session(Target.parse(function), seconds)
    if not callable(function):
        raise refuse(
            WHERE,
            "this is not a function",
            type(function).__name__,
            "a function, or a text such as 'module:function' or 'FILE.py:function'",
            "pass the function itself, without calling it",
        )
    name = name_of(function)
    return InProcess(function) if name is None else Session(Target.parse(name), seconds)


def name_of(function: Callable[..., Any]) -> str | None:
    """`module:function`, if that is where another process finds this function; else None."""
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(path, str) or module == "__main__" or "<" in path:
        return None
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return f"{module}:{path}" if found is function and getattr(sys.modules[module], "__file__", None) else None
