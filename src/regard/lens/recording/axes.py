"""Axes of a recording: which call stands between which, found by who made it and by how many rows and keys it has."""

from __future__ import annotations

import numpy as np

from ..axis import Axis
from .taken import Taken

__all__ = ["Axes"]

SIGHT = ("vision", "visual", "image", "vit", "pixel")


class Axes:
    """The axes that are known before the model runs; a call that fits none gets plain positions of its own.

    Names that are known: "text", "source" and "target" of an encoder–decoder, "patches".
    """

    def __init__(self, known: dict[str, Axis]):
        self.known = dict(known)
        self.used: dict[str, Axis] = {}

    def place(self, taken: Taken) -> tuple[str, str]:
        """The names of the axes along the rows and the keys of a call."""
        Q, K = taken.sizes
        words = taken.name.lower()
        preferred = self._preferred(words)
        queries = self._named(Q, preferred)
        keys = queries if Q == K and not taken.cross else self._named(K, self._across(queries) if taken.cross else preferred)
        return queries, keys

    def special(self, name: str) -> np.ndarray:
        return np.array(self.used[name].special)

    def _preferred(self, words: str) -> list[str]:
        """The names of axes, the likeliest first."""
        names = list(self.known)
        if "patches" in names and len(names) > 1:
            seeing = any(word in words for word in SIGHT)
            return sorted(names, key=lambda name: (name == "patches") != seeing)
        if "target" in names:
            return ["source", "target"] if "encoder" in words and "decoder" not in words else ["target", "source"]
        return names

    def _across(self, queries: str) -> list[str]:
        """The axes that keys of another text stand on."""
        return sorted(self.known, key=lambda name: name == queries)

    def _named(self, size: int, preferred: list[str]) -> str:
        for name in preferred:
            if len(self.known[name]) == size:
                self.used[name] = self.known[name]
                return name
        name = f"{size} positions"
        self.used.setdefault(name, Axis.of(size, name=name))
        return name
