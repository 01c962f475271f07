"""Visuals: figures of attention that compute in the page, and change when the reader changes a number.

The viewer and the pages of the course use the same ones. A kind is a row of `KINDS` and a script of its name beside
this file, which adds `visuals["NAME"] = (root, data) => …`; parts.js says what it returns. Every number that a visual
shows is a <data> element with all its digits, so that a test can compare it with NumPy's.
"""

from .kinds import KINDS, Kind, given
from .scripts import script, style

__all__ = ["KINDS", "Kind", "given", "script", "style"]
