"""Files that regard wrote: only these may be replaced, because a user's own would be lost."""

from __future__ import annotations

from pathlib import Path

__all__ = ["GENERATOR", "written_by_regard"]

GENERATOR = 'name="generator" content="regard"'  # in the head of every page
HEAD = 4000  # bytes of a file that are read


def written_by_regard(path: Path, mark: str = GENERATOR) -> bool:
    """Whether a file is one that regard wrote, by a mark near its beginning, or empty.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "notes.html")
    ...     path.write_text("mine"), written_by_regard(path)
    (4, False)
    """
    if not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(HEAD)
    return not begin or mark.encode() in begin
