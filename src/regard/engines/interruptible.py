"""Long computations of NumPy that Ctrl-C ends at once: Python handles signals only between two calls of NumPy."""

from __future__ import annotations

import contextvars
import ctypes
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class _Abandoned(BaseException):
    """Ends a computation whose caller was interrupted."""


def interruptible(long: bool, compute: Callable[..., T], *given: Any) -> T:
    """compute(*given), in a thread of its own if it is long and the caller is the main thread, which handles signals.

    An exception of a signal handler leaves this function at once; the computation ends after its current call of NumPy.
    """
    if not long or threading.current_thread() is not threading.main_thread():
        return compute(*given)
    results: list[T] = []
    errors: list[BaseException] = []
    running = threading.Lock()  # an interrupt inside of `Event.wait` can end as RuntimeError("release unlocked lock")
    running.acquire()

    def run() -> None:
        try:
            results.append(compute(*given))
        except BaseException as error:  # which the caller raises
            errors.append(error)
        finally:
            running.release()

    worker = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True, name="regard-law")
    worker.start()
    try:
        while not running.acquire(timeout=0.05):  # with a limit, because a wait may hide signals
            pass
    except BaseException:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident or 0), ctypes.py_object(_Abandoned))
        raise
    if errors:
        raise errors.pop()
    return results.pop()
