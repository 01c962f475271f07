"""Files that a command writes where its user says: checked before the work, written whole, never over a user's own."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import refuse

GENERATOR = 'name="generator" content="regard"'  # in the head of every page
FIGURE = "drawn by regard"  # in the metadata of every figure
ENDS = 4000  # bytes that are read at the beginning and at the end of a file: a PDF names its program at its end


def check_output(where: str, option: str, path: Path, *, what: str, mark: str = GENERATOR) -> None:
    """Raises Refused if a file cannot be written there, or if it would replace one that regard did not write.

    where: the command · what: the file in words, such as "a page" · mark: what a file of this kind contains
    """
    with _refused(where, option, path):  # a name that is too long, a folder that may not be read
        if path.is_dir():
            raise IsADirectoryError(21, "a folder")
        if not path.parent.is_dir():
            raise FileNotFoundError(2, f"no folder {path.parent}")
        if not _device(path):
            _try(path.parent)
        foreign = path.is_file() and not written_by_regard(path, mark)
    if foreign:
        raise refuse(
            where,
            f"the file exists and is not {what} of regard",
            f"{option} {path}",
            f"a new file, or {what} that regard wrote",
            "choose another file, or remove it",
        )


def check_folder(where: str, folder: Path) -> None:
    """Raises Refused if files cannot be written into a folder, which may not exist yet."""
    there = folder
    try:
        there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        if not there.is_dir():
            raise NotADirectoryError(20, "not a folder", str(there))
        _try(there)
    except OSError as error:
        raise refuse(
            where,
            "the folder cannot be written",
            f"{folder}: {error.strerror}" + ("" if there == folder else f" ({there})"),
            "a folder in which you may write",
            "name another folder",
        ) from error


@contextlib.contextmanager
def replacing(where: str, option: str, path: Path) -> Iterator[Path]:
    """The path of a draft that replaces the file at the end of the block; if it fails, an old file is as it was.

    Raises Refused if the system does not let it be written. A device such as /dev/stdout is written itself.

    >>> with tempfile.TemporaryDirectory() as folder, replacing("look", "--out", Path(folder, "look.html")) as draft:
    ...     draft.write_text("numbers")
    7
    """
    draft = path if _device(path) else path.with_name(f".{path.name}.part")
    with _refused(where, option, path):
        try:
            yield draft
            if draft != path:
                os.replace(draft, path.resolve())  # through a link, which stays
        finally:
            if draft != path:
                draft.unlink(missing_ok=True)


def written_by_regard(path: Path, mark: str = GENERATOR) -> bool:
    """Whether a file is one that regard wrote, by a mark near its beginning or end, or empty.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "notes.html")
    ...     path.write_text("mine"), written_by_regard(path)
    (4, False)
    """
    if not path.is_file():
        return False
    with path.open("rb") as file:
        ends = file.read(ENDS)
        if file.seek(0, os.SEEK_END) > ENDS:
            file.seek(-ENDS, os.SEEK_END)
            ends += file.read(ENDS)
    return not ends or mark.encode() in ends


def _device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _try(folder: Path) -> None:
    """Raises OSError if no file can be made in a folder; modes do not say so for root, or on a read-only disk."""
    handle, name = tempfile.mkstemp(prefix=".regard-", dir=folder)
    os.close(handle)
    os.unlink(name)


@contextlib.contextmanager
def _refused(where: str, option: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        given, expected = f"{option} {path}: {error.strerror or error}", "a file in a folder in which you may write"
        raise refuse(where, "the file cannot be written", given, expected, "choose another path") from error


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
