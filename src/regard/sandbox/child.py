"""Child: a process that runs code of others, with its time limit, its printed text, and its certain end."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
import weakref
from pathlib import Path

from ..common.errors import refuse
from .messages import HEAD, framed, last_lines

KEPT = 2048  # bytes of the text that it printed
GLANCE = 0.1  # seconds between two looks whether the process still exists
LONGEST = 4  # times the limit: how long a process may take that computes on a machine where it has to wait for a core
MARK = "REGARD_CHILD"  # the environment variable by which its descendants are recognized


class Lost(Exception):
    """The process is gone. status: "timeout" or "crashed"."""

    def __init__(self, status: str, words: str):
        super().__init__(words)
        self.status = status


class Child:
    """A new Python process in a session of its own, with the same interpreter, search path, folder and environment.

    service: the module whose service answers the requests · folder: in which folder, if it is another one · memory: the
    most bytes that it takes, if not those of the machine
    """

    def __init__(self, service: str, folder: Path | None = None, memory: int | None = None) -> None:
        _check_system(sys.platform)
        self.connection, theirs = socket.socketpair()
        lifeline_end, lifeline = os.pipe()
        self.mark = secrets.token_hex(16)
        # The search path comes first: the parent's may have been changed since it started.
        code = (
            f"import sys; sys.path[:] = {[os.path.abspath(each) for each in sys.path]!r}; "
            f"from regard.sandbox.worker import main; main({theirs.fileno()}, {lifeline_end}, {service!r}, {memory})"
        )
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(), lifeline_end),
                start_new_session=True,
                env={**os.environ, MARK: self.mark},
                cwd=folder,
                bufsize=0,
            )
        except BaseException:
            os.close(lifeline)
            self.connection.close()
            raise
        finally:
            theirs.close()
            os.close(lifeline_end)
        self.printed = 0
        self.tail = b""
        self.connection.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.streams = [stream for stream in (self.process.stdout, self.process.stderr) if stream is not None]
        for stream in self.streams:
            os.set_blocking(stream.fileno(), False)
            self.selector.register(stream, selectors.EVENT_READ)
        self.selector.register(self.connection, selectors.EVENT_READ)
        # At the latest when this interpreter exits; a copy of it, made by fork, must not end the process.
        self.end = weakref.finalize(self, _end, os.getpid(), self.process, self.mark, lifeline, self.connection)

    def kill(self) -> None:
        """Ends the process now; a thread that waits for its reply gets `Lost`."""
        _kill(self.process)

    def exchange(self, request: bytes, seconds: float, most: int) -> bytearray:
        """Sends a request and returns the reply, of at most `most` bytes. Raises Lost, and then the process is gone."""
        try:
            return self._exchange(memoryview(framed(request)), _Deadline(self.process.pid, seconds), most)
        except Lost as lost:
            raise self._gone(lost, seconds) from None
        except BaseException:  # Ctrl-C: the process may be in the middle of a call
            self.end()
            raise

    def _exchange(self, request: memoryview, deadline: _Deadline, most: int) -> bytearray:
        reply = bytearray()
        size = HEAD.size
        self.selector.modify(self.connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while len(reply) < size:
            if deadline.passed():
                raise Lost("timeout", "")
            ready = self.selector.select(deadline.pause())
            if not ready and self.ended():  # a copy of the process may keep the connection open
                raise Lost("crashed", "")
            for key, events in ready:
                if key.fileobj is not self.connection:
                    self._drain(key.fileobj)
                    continue
                if events & selectors.EVENT_WRITE:
                    request = request[self._sent(request) :]
                    if not request:
                        self.selector.modify(self.connection, selectors.EVENT_READ)
                if events & selectors.EVENT_READ:
                    reply += self._received(size - len(reply))
                    if size == HEAD.size == len(reply):
                        size += HEAD.unpack(reply)[0]
                        if size > most:
                            raise Lost("crashed", "wrote to the connection with regard")
        while any(self._drain(key.fileobj) for key, _ in self.selector.select(0) if key.fileobj in self.streams):
            if deadline.passed():
                break
        return reply[HEAD.size :]

    def _sent(self, request: memoryview) -> int:
        try:
            return self.connection.send(request)
        except BlockingIOError:
            return 0
        except (BrokenPipeError, ConnectionResetError):
            raise Lost("crashed", "") from None

    def _received(self, most: int) -> bytes:
        try:
            piece = self.connection.recv(min(most, 1 << 20))
        except BlockingIOError:
            return b""
        except ConnectionResetError:
            piece = b""
        if not piece:
            raise Lost("crashed", "")
        return piece

    def _drain(self, stream) -> bool:
        """Reads what was printed: counted, its end kept."""
        try:
            piece = os.read(stream.fileno(), 1 << 20)
        except BlockingIOError:
            return False
        if not piece:
            self.selector.unregister(stream)
        self.printed += len(piece)
        if stream is self.process.stderr:
            self.tail = (self.tail + piece)[-KEPT:]
        return bool(piece)

    def _gone(self, lost: Lost, seconds: float) -> Lost:
        """Ends the process, and says how it ended."""
        if lost.status == "crashed" and not lost.args[0]:
            try:
                self.process.wait(1.0)  # it has closed the connection: it ends, or it goes on without us
            except subprocess.TimeoutExpired:
                lost = Lost("crashed", "closed the connection with regard")
        status = self.process.poll()
        for key, _ in self.selector.select(0):
            if key.fileobj in self.streams:
                self._drain(key.fileobj)
        self.end()
        if lost.status == "timeout":
            return Lost("timeout", f"did not return in {seconds:g} s")
        words = lost.args[0] or _how(status)
        printed = last_lines(self.tail)
        return Lost("crashed", f"{words}; it printed: {printed}" if printed else words)

    def ended(self) -> bool:
        """Whether the process has ended by itself."""
        return self.process.poll() is not None

    def close(self) -> None:
        """Lets the process exit, and ends it after a second if it does not."""
        if self.end.alive:
            self.connection.shutdown(socket.SHUT_WR)
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(1.0)
            finally:
                self.end()
        self.selector.close()
        for stream in self.streams:
            stream.close()


class _Deadline:
    """When a process has had its time: the seconds have passed, and it waits, or has computed for as long.

    Where the system tells (Linux), a process that has to share its core gets up to LONGEST times the seconds.
    """

    def __init__(self, pid: int, seconds: float):
        self.pid, self.seconds, self.began = pid, seconds, time.monotonic()
        self.computed = self._state()[1]

    def passed(self) -> bool:
        taken = time.monotonic() - self.began
        if taken < self.seconds:
            return False
        runs, computed = self._state()
        return taken >= LONGEST * self.seconds or not runs or computed - self.computed >= self.seconds

    def pause(self) -> float:
        """Seconds until the next look."""
        return min(max(self.began + self.seconds - time.monotonic(), 0.01), GLANCE)

    def _state(self) -> tuple[bool, float]:
        """Whether the process computes, or would if it had a core; and the seconds that it has computed so far."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # another system, or the process has ended
            return False, 0.0
        return fields[0] in "RD", (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _check_system(system: str) -> None:
    if system == "win32":
        raise refuse(
            "checks",
            "code is checked in a process that ends for certain, with all that it started",
            "Windows, which has no process groups and signals that do that",
            "Linux or macOS",
            "run it in the Windows Subsystem for Linux",
        )


def _how(status: int | None) -> str:
    if status is None:
        return "the process ended"
    if status >= 0:
        return f"the process ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"the process was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def _end(owner: int, process: subprocess.Popen, mark: str, lifeline: int, connection: socket.socket) -> None:
    """Kills a child and everything that it started."""
    if os.getpid() != owner:
        return
    _kill(process)
    process.wait()
    while found := _descendants(mark):
        for each in found:
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.001)
    os.close(lifeline)
    connection.close()


def _descendants(mark: str) -> list[int]:
    """The processes that left the group, on systems that show the environment of processes (Linux)."""
    needle, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if needle in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return found


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left; macOS says it in the second way
        os.killpg(process.pid, signal.SIGKILL)
