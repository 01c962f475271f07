"""What files need from the system, on POSIX and on Windows: no links, reads at a place, files on the disk, locks.

The variants for Windows are written from its documentation and were never run.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import sys
from pathlib import Path

__all__ = ["create", "lock", "lock_folder", "open_plain", "read_at", "remove", "to_disk"]

# Windows has neither: there `open_plain` compares the file with what its path names, and opening never waits.
NO_LINK, NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)
BINARY = getattr(os, "O_BINARY", 0)  # without it, Windows changes line ends
LOCK = ".lock"  # in a locked folder on Windows, as long as it is locked


def create(path: Path) -> int:
    """A file descriptor to write a new file; FileExistsError if there is one, or a link.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, open(create(Path(folder, "new")), "wb") as file:
    ...     file.write(b"bytes")
    5
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | BINARY, 0o666)


def open_plain(path: Path) -> int:
    """A file descriptor to read a file; OSError if the path is a link. Opening does not wait, as for a named pipe."""
    handle = os.open(path, os.O_RDONLY | NO_LINK | NO_WAIT | BINARY)
    try:
        if not NO_LINK:
            named = os.lstat(path)
            if stat.S_ISLNK(named.st_mode) or not os.path.samestat(named, os.fstat(handle)):
                raise OSError(errno.ELOOP, "a link", str(path))
    except OSError:
        os.close(handle)
        raise
    return handle


def read_at(handle: int, size: int, offset: int) -> bytes:
    """Bytes of a file at an offset."""
    if hasattr(os, "pread"):
        return os.pread(handle, size, offset)
    os.lseek(handle, offset, os.SEEK_SET)  # Windows: it moves the position, which no caller relies on
    return os.read(handle, size)


def to_disk(path: Path) -> None:
    """Writes a file, or the entries of a folder, to the disk.

    Windows opens no folders as files, and its file system writes their entries to a journal by itself. It writes out
    files only through a descriptor that may write.
    """
    if sys.platform == "win32" and path.is_dir():
        return
    handle = os.open(path, (os.O_RDWR if sys.platform == "win32" else os.O_RDONLY) | BINARY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Removes a file. Windows keeps one that a process has mapped: it is left for the next who tidies up."""
    with contextlib.suppress(*([PermissionError] if sys.platform == "win32" else [])):
        path.unlink()


def lock(handle: int) -> bool:
    """Locks an open file for this process, without waiting; False if another holds it. The lock ends with the process.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     lock(file.fileno())
    True
    """
    if sys.platform == "win32":
        import msvcrt

        held: tuple[type[OSError], ...] = (PermissionError,)
        os.lseek(handle, 0, os.SEEK_SET)  # the lock is one of bytes, from the position on
        take = functools.partial(msvcrt.locking, handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        held = (BlockingIOError,)
        take = functools.partial(fcntl.flock, handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        take()
    except held:
        return False
    return True


def lock_folder(folder: Path) -> int:
    """A file descriptor that locks a folder until it is closed; BlockingIOError if another process has locked it.

    Windows cannot open a folder, so a file in it is opened, which the system removes when the process closes it.
    """
    if sys.platform == "win32":
        try:
            return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_TEMPORARY)
        except FileExistsError as error:
            raise BlockingIOError(*error.args) from error
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not lock(handle):
            raise BlockingIOError(0, "locked", str(folder))
    except OSError:
        os.close(handle)
        raise
    return handle
