"""Approximate attention: Linformer, Performer, linear attention, and how far they are from the exact result."""

from .deviation import deviation

__all__ = ["deviation"]
