"""The process in which code of others runs: it answers requests, one after the other, until its parent closes the
connection; and its memory: the limit, and how far it grows.
"""

from __future__ import annotations

import atexit
import importlib
import os
import re
import signal
import sys
import threading
from pathlib import Path

from .messages import framed, read_frame


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
    with open(connection, "rb") as requests, open(connection, "wb", closefd=False) as replies:
        while (request := read_frame(requests)) is not None:
            reply = answer(request)
            flush()
            if os.getpid() != process:
                os._exit(0)  # a copy of the process that the code made and returned in: one answer is enough
            replies.write(framed(reply))
            replies.flush()
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


STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def limit_memory(most: int | None = None) -> None:
    """Limits this process to the memory of the machine, or to `most` bytes if that is less, and makes it the first that
    the system ends if there is none left.

    On Linux the limit counts the memory that can be written, not reserved addresses, of which GPU drivers take far
    more than the machine has.
    """
    import resource

    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        limit = physical if most is None else min(physical, most)
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no file of its memory when it crashes
        Path("/proc/self/oom_score_adj").write_text("1000")
    except (OSError, ValueError):
        return  # a system that does not allow limits has none; the time limit remains


def restart_peak() -> int:
    """Starts a measurement: the bytes from which `peak` counts."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return _largest()
    return _field("VmRSS")


def peak(start: int) -> int:
    """By how many bytes the memory grew at most since `restart_peak`; 0 if the system does not say."""
    now = _field("VmHWM") if CLEAR.exists() else _largest()
    return max(now - start, 0)


def _field(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", STATUS.read_text(), re.M)
    return 1024 * int(found[1]) if found else 0


def _largest() -> int:
    """The largest size of this process so far, where it cannot be started again."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
