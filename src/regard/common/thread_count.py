"""The number of threads that a call may use: what was set, or else what the machine and its other software allow."""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from .caching import lock
from .call_hooks import torch_if_imported
from .errors import refuse

VARIABLE = "REGARD_NUM_THREADS"
MOST = 1024
CGROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

_affinity = getattr(os, "sched_getaffinity", lambda process: range(MOST))
limits = 0  # blocks in force, in any thread


class _Here(threading.local):
    """The numbers of the blocks that this thread is in, the inner one last."""

    def __init__(self) -> None:
        self.numbers: list[int | None] = []


class _Setting:
    """A number for the whole process, and the setting before it, which is valid again if this one began a block."""

    __slots__ = ("before", "inherited", "number", "void")

    def __init__(self, number: int | None, before: _Setting | None) -> None:
        self.number, self.before = number, before
        self.void = self.inherited = False


_here = _Here()
_latest = _Setting(None, None)
_lock = lock()


def count() -> int:
    """The number of threads that a call in this thread may use."""
    number, inherited = _here.numbers[-1] if _here.numbers else None, False
    if number is None and not _here.numbers:
        setting = _latest if not _latest.void else _valid()
        number, inherited = setting.number, setting.inherited
    if number is None:
        number, inherited = _of_environment(), True
    if number is None:
        return _default()
    return min(number, _default()) if inherited and _is_worker() else number


class limit:
    """`with limit(1):` calls made in this thread use at most that many threads; None: as many as by default."""

    def __init__(self, number: int | None):
        if number is not None and number < 1:
            raise ValueError(f"at least one thread is needed, not {number}")
        self.number = number

    def __enter__(self) -> Self:
        global limits
        with _lock:
            limits += 1
        _here.numbers.append(self.number)
        return self

    def __exit__(self, *exc) -> None:
        global limits
        _here.numbers.pop()
        with _lock:
            limits -= 1


class threads:
    """Sets the number of threads that calls may use: in a block for the calling thread, otherwise for the process.

    $$n = n_{block} \\ \\text{or}\\ n_{process} \\ \\text{or}\\ \\texttt{REGARD\\_NUM\\_THREADS} \\ \\text{or}\\
    \\min(n_{torch}, n_{cores}, \\lceil quota \\rceil)$$

    The first of these that is set is used. n_torch is `torch.get_num_threads()` if torch is imported, and
    OMP_NUM_THREADS otherwise; cores are those that this process may run on (and Python's own limit, `-X cpu_count`);
    the quota is that of the container (cgroup). The results do not depend on the number: every bit is the same. Small
    calls use one thread.

    In a worker process of torch's DataLoader, which has one thread, a setting of the parent process and the variable
    cannot raise that number; a setting made in the worker can.

    Args:
        n: an integer, 1 … 1024; None for the default.

    Raises:
        Refused: n is not such a number.

    Examples:
        >>> import numpy as np, regard as rg
        >>> q = np.ones((2, 64, 16), np.float32)
        >>> with rg.threads(1):  # calls of this thread, in this block
        ...     out = rg.attention(q, q, q)
        >>> setting = rg.threads(4)  # all calls of this process from here on
        >>> setting = rg.threads(None)  # the default again
    """

    def __init__(self, n: int | None) -> None:
        global _latest
        self.n = n if n is None else _number(n, "threads", f"{n!r}")
        with _lock:
            self._setting = _latest = _Setting(self.n, _valid())

    def __enter__(self) -> Self:
        global _latest
        with _lock:  # the number is for a block, so it is none for the process
            self._setting.void = True
            _latest = _valid()
        limit(self.n).__enter__()
        return self

    def __exit__(self, *exc) -> None:
        limit(self.n).__exit__(*exc)

    def __del__(self) -> None:
        setting = getattr(self, "_setting", None)
        if setting is not None and not setting.void:
            setting.before = None  # it can no longer begin a block, so settings that are replaced are freed

    def __repr__(self) -> str:
        return f"regard.threads({self.n})"


def _valid() -> _Setting:
    """The setting in force."""
    found = _latest
    while found.void and found.before is not None:
        found = found.before
    return found


def _is_worker() -> bool:
    """Whether this process is a worker of torch's DataLoader: there are as many as its user wants to keep busy."""
    info = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", None)
    return info is not None and info() is not None


def _default() -> int:
    """The smallest of the numbers that the machine and other software allow."""
    torch = torch_if_imported()
    # The cores that this process may run on may change while it runs.
    cores = min(_counted() or 1, len(_affinity(0)))
    return min(cores, _quota(), _of_openmp() if torch is None else torch.get_num_threads())


# It reads a file of the system, which takes longer than a small call. Since 3.13 its user may set a number, and
# `os.process_cpu_count`, which has the cores of the process in it, too, would change while the process runs.
_counted = functools.cache(os.cpu_count)


@functools.cache  # an exception is not cached: it is raised in every call
def _of_environment() -> int | None:
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return None
    return _number(int(given) if given.isdecimal() else given, VARIABLE, f"{VARIABLE}={given}")


@functools.cache
def _of_openmp() -> int:
    """OMP_NUM_THREADS, of whose list the first entry is for threads that are not nested; OpenMP ignores other text."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else MOST


def _number(given, where: str, shown: str) -> int:
    if isinstance(given, bool) or not hasattr(given, "__index__") or not 1 <= given.__index__() <= MOST:
        raise refuse(
            where,
            "not a number of threads",
            shown,
            f"an integer, 1 … {MOST}",
            "leave it unset, or pass None, for as many as the machine allows",
        )
    return given.__index__()


def quota(root: Path = CGROUPS, own: Path = OWN) -> int:
    """The processors that the control groups of this process (Linux) leave it, rounded up; MOST without a limit.

    A container sees its own group as the root, or the groups of the host and not its own path among them.
    """
    found = float(MOST)
    for folder in _groups(root, own):
        try:
            if (folder / "cpu.max").is_file():  # version 2: "max 100000", or microseconds of each period
                allowed, period = (folder / "cpu.max").read_text().split()
            else:
                allowed, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            if allowed != "max" and int(allowed) > 0:
                found = min(found, int(allowed) / int(period))
        except (OSError, ValueError):  # no such limit here, or not in a form that is known
            continue
    return max(1, math.ceil(found))


_quota = functools.cache(quota)


def _groups(root: Path, own: Path) -> Iterator[Path]:
    """The folders of the groups that hold this process, each with those above it."""
    try:
        lines = own.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "cpu" if controllers and (root / "cpu").is_dir() else root / controllers
        inner = base / path.lstrip("/")
        yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(base))


def _after_fork() -> None:
    global limits
    limits, _valid().inherited = len(_here.numbers), True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
