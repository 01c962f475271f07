"""The process in which code of others runs: it answers requests, one after the other, until its parent closes the
connection.
"""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
import threading

from .frames import read_frame, write_frame
from .limits import limit_memory


def main(connection: int, lifeline: int, service: str, memory: int | None) -> None:
    """Answers with the service of a module: its `service()` is a function from a request to a reply, as bytes.

    connection: the descriptor of a socket for messages · lifeline: that of a pipe on which nothing is ever sent; it
    closes when the parent ends, however it ends, and this process and all that it started end with it · memory: the
    most bytes that this process takes, if not those of the machine
    """
    end_with(lifeline)
    for descriptor in (connection, lifeline):
        os.set_inheritable(descriptor, False)  # what the code starts shall not keep them open
    limit_memory(memory)
    answer = importlib.import_module(service).service()
    process = os.getpid()
    while (request := read_frame(connection)) is not None:
        reply = answer(request)
        flush()
        if os.getpid() != process:
            os._exit(0)  # a copy of the process that the code made and returned in: one answer is enough
        write_frame(connection, reply)
    leave()


def flush() -> None:
    """Sends what the code printed, so that the parent counts it with this request."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # the code may have put anything in their place
            continue


def leave() -> None:
    """Ends this process, but does not take the libraries apart that it loaded: with torch, that takes half a second."""
    atexit._run_exitfuncs()
    flush()
    os._exit(0)


def end_with(lifeline: int) -> None:
    """Ends the whole process group when the other end of a pipe closes."""
    import fcntl

    if hasattr(fcntl, "F_SETSIG"):  # Linux: the system sends the signal, even if the code never returns to Python
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        return

    def wait() -> None:
        os.read(lifeline, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()
