"""`regard plan`: how a sequence is divided over several ranks, from sizes and a mask as text."""

from .command import plan

__all__ = ["plan"]
