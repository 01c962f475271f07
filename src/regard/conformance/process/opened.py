"""open_session: the session for a function, in a process of its own if the function can be imported there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ...common.errors import refuse
from .session import InProcess, Session
from .target import WHERE, Target


def open_session(function: Callable[..., Any] | str, seconds: float) -> Session | InProcess:
    """The session for a function, or for its name `module:function` or `FILE.py:function`."""
    if isinstance(function, str):
        return Session(Target.parse(function), seconds=seconds)
    if not callable(function):
        raise refuse(
            WHERE,
            "this is not a function",
            f"{type(function).__name__}",
            "a function, or a text such as 'module:function' or 'FILE.py:function'",
            "pass the function itself, without calling it",
        )
    name = name_of(function)
    return InProcess(function) if name is None else Session(Target.parse(name), seconds=seconds)


def name_of(function: Callable[..., Any]) -> str | None:
    """`module:function`, if that is where another process finds this function; else None."""
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(path, str) or module == "__main__" or "<" in path:
        return None
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return f"{module}:{path}" if found is function and getattr(sys.modules[module], "__file__", None) else None
