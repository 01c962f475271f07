"""`regard learn`: the course on self-attention, and its teacher's side."""

from .command import learn

__all__ = ["learn"]
