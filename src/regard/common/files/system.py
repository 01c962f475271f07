"""What files need from the system: no links, reads at a place, files on the disk, locks."""

from __future__ import annotations

import os
from pathlib import Path

NO_LINK, NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)


def create(path: Path) -> int:
    """A file descriptor to write a new file; FileExistsError if there is one, or a link.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, open(create(Path(folder, "new")), "wb") as file:
    ...     file.write(b"bytes")
    5
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o666)


def open_plain(path: Path) -> int:
    """A file descriptor to read a file; OSError if the path is a link. Opening does not wait, as for a named pipe."""
    return os.open(path, os.O_RDONLY | NO_LINK | NO_WAIT)


def read_at(handle: int, size: int, offset: int) -> bytes:
    """Bytes of a file at an offset."""
    return os.pread(handle, size, offset)


def to_disk(path: Path) -> None:
    """Writes a file, or the entries of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock(handle: int) -> bool:
    """Locks an open file for this process, without waiting; False if another holds it. The lock ends with the process.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     lock(file.fileno())
    True
    """
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_folder(folder: Path) -> int:
    """A file descriptor that locks a folder until it is closed; BlockingIOError if another process has locked it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not lock(handle):
            raise BlockingIOError(0, "locked", str(folder))
    except OSError:
        os.close(handle)
        raise
    return handle
