"""Lost: a rank died, is late, or does something else than this one, so nothing can be exchanged any more."""

from __future__ import annotations


class Lost(RuntimeError):
    """An exchange between ranks failed; the process group cannot be used afterwards.

    Args:
        message: which rank did not take part, in which exchange, and what it did last.

    Examples:
        >>> import regard.parallel as rp
        >>> raise rp.Lost("rank 2 ended")
        Traceback (most recent call last):
        regard.parallel.Lost: rank 2 ended
    """

    def __init__(self, message: str):
        super().__init__(message)
