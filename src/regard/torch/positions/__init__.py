"""Where tokens stand, in each of the usual ways."""

from .position import Position

__all__ = ["Position"]
