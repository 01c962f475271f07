"""Disk cache of machine code: stored only where no other user can write, and loaded only if its digest matches.

The folder belongs to this user, its parents to this user or root, and no one else may write to them (a sticky folder
such as /tmp is accepted as a parent, because there users cannot move the files of others). A file is read only if it is
a regular file of this user with a single link, and begins with the digest of its content and its cache key. It is
written under a temporary name and renamed, so that processes never read a partial file. Without such a folder kernels
are compiled in every process; `place` reports the reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from ....common.files.output import open_plain

SEAL = 32  # bytes of a SHA-256
LARGEST = 64 << 20  # bytes of a file that is read: hundreds of times the largest kernels
OTHERS = stat.S_IWGRP | stat.S_IWOTH


def place() -> tuple[Path | None, str]:
    """($XDG_CACHE_HOME/regard or ~/.cache/regard, status), created if missing; (None, reason) if it is not trusted."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    home = os.path.expanduser("~")
    base = named if os.path.isabs(named) else os.path.join(home, ".cache")
    # HOME is "" or "/" where a service has no home: what is kept there would be in the root folder.
    if not os.path.isabs(base) or (base != named and not home.rstrip(os.sep)):
        return None, "the home folder is unknown"
    folder = Path(os.path.realpath(base)) / "regard"
    try:
        _make(folder)
        for each in (folder, *folder.parents):
            against = _why_not(each, inner=each == folder)
            if against:
                return None, f"{each} {against}"
    except OSError as error:
        return None, str(error)
    return folder, "only this user can write there"


def _make(folder: Path) -> None:
    for each in (*reversed(folder.parents), folder):
        with contextlib.suppress(FileExistsError):
            if not each.exists():
                each.mkdir(mode=0o700)


def _why_not(folder: Path, inner: bool) -> str:
    """Why other users could write to a folder or replace it; empty if they cannot."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "is not a folder"
    if found.st_uid not in ((os.getuid(),) if inner else (os.getuid(), 0)):
        return "belongs to another user"
    if found.st_mode & OTHERS and (inner or not found.st_mode & stat.S_ISVTX):
        return "can be written by others"
    return ""


def fetch(digest: str) -> bytes | None:
    """The machine code stored under a digest, or None."""
    folder, _ = place()
    if folder is None:
        return None
    try:
        handle = open_plain(folder / f"{digest}.o")
    except OSError:
        return None
    try:
        found = os.fstat(handle)
        if not _ours(found):
            return None
        with open(handle, "rb", closefd=False) as file:
            content = file.read(found.st_size)  # without a size, a file that others lengthen would be read to its end
    except OSError:
        return None
    finally:
        os.close(handle)
    seal, code = content[:SEAL], content[SEAL:]
    return code if seal == _seal(digest, code) else None


def _ours(found: os.stat_result) -> bool:
    """Whether it is a regular file of this user, not too large, with a single link, that no other user can write."""
    mine = found.st_uid == os.getuid() and not found.st_mode & OTHERS
    small = found.st_size <= LARGEST  # also where a file system claims more than it holds
    return mine and small and stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def store(digest: str, code: bytes) -> None:
    """Stores machine code. Write errors are ignored: the next process then compiles again."""
    folder, _ = place()
    if folder is None:
        return
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_seal(digest, code) + code)
        os.replace(name, folder / f"{digest}.o")
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)


def _seal(digest: str, code: bytes) -> bytes:
    return hashlib.sha256(digest.encode() + code).digest()
