"""Messages: what the two processes send each other, a length, then the content; and what code of others says, as one
line whose characters a terminal can show.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

HEAD = struct.Struct(">Q")


def framed(content: bytes) -> bytes:
    """A message: the length of its content, and the content."""
    return HEAD.pack(len(content)) + content


def read_frame(stream: BinaryIO) -> bytes | None:
    """Waits for one message; None if the other process has closed its end."""
    head = stream.read(HEAD.size)
    return stream.read(HEAD.unpack(head)[0]) if len(head) == HEAD.size else None


LONGEST = 300  # characters of one message


def one_line(text: str, longest: int = LONGEST) -> str:
    """The first line of a text; control characters are escaped, what exceeds `longest` is dropped.

    >>> one_line("wrong\\x1b[31m shape\\nmore")
    'wrong\\\\x1b[31m shape'
    """
    first = next(iter(text[: 4 * longest].strip().splitlines()), "")
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in first)
    return shown if len(shown) <= longest else shown[:longest] + " …"


def last_lines(text: bytes, count: int = 3) -> str:
    """The last lines of what a process printed, in one line."""
    lines = [one_line(line) for line in text.decode("utf-8", "replace").splitlines()]
    return " | ".join([line for line in lines if line][-count:])


def said(error: BaseException) -> str:
    """The type of an exception and the first line of its message, even if the message cannot be made."""
    name = type(error).__name__
    try:
        message = one_line(str(error))
    except BaseException:  # the exception is the judged function's own: its __str__ may raise anything
        return f"{name}, whose message cannot be read"
    return f"{name}: {message}" if message else name
