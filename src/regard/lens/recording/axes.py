"""Axes of a recording: assigns each call its query and key axis, by the name of its layer and by its size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...common.text.counted import counted
from ..runs.axis import Axis
from .recorded_call import Recorded

BEFORE = 16  # the most tokens, such as a class token and registers, that a model puts before the patches
VISION = ("vision", "visual", "image", "vit", "pixel")


@dataclass(frozen=True)
class PatchGrid:
    """An image as a grid of (rows, columns) patches."""

    grid: tuple[int, int]
    image: bytes

    def axis(self, size: int) -> Axis | None:
        """The axis of `size` positions, or None if it does not fit. Positions beyond the patches, such as a class token
        and registers, come first.
        """
        rows, columns = self.grid
        more = size - rows * columns
        if not 0 <= more <= BEFORE:
            return None
        before = ["[CLS]", *(f"[REG {i}]" for i in range(1, more))][:more]
        words = (*before, *(f"{row},{column}" for row in range(rows) for column in range(columns)))
        return Axis("patches", words, (True,) * more + (False,) * (rows * columns), self.grid, self.image)


class Axes:
    """The axes that are known before the model runs. A call that fits none of them gets an axis of plain positions.

    needed: whether a known axis that fits no call is an error.

    Known names: "text"; "source" and "target" of an encoder–decoder; "patches".
    """

    def __init__(self, known: dict[str, Axis], patches: PatchGrid | None = None, needed: bool = False):
        self.known = dict(known)
        self.patches = patches
        self.needed = tuple(known) if needed else ()
        self.used: dict[str, Axis] = {}

    def place(self, recorded: Recorded) -> tuple[str, str]:
        """The names of the query axis and the key axis of a call."""
        call, (_, Q, K) = recorded.call, recorded.call.shape
        if "windows" in call.notes:
            return self._windows(Q, call.notes["windows"]), self._windows(K, call.notes["windows"])
        preferred = self._preferred(call.name.lower())
        queries = self._named(Q, preferred)
        if recorded.cross:
            return queries, self._named(K, self._across(queries))
        return queries, queries if Q == K else self._named(K, preferred)

    def special(self, name: str) -> np.ndarray:
        return np.array(self.used[name].special)

    def _preferred(self, words: str) -> list[str]:
        """The names of the axes, the likeliest first."""
        names = list(self.known)
        if self.patches is not None and len(names) > 1:
            seeing = any(word in words for word in VISION)
            return sorted(names, key=lambda name: (name == "patches") != seeing)
        if "target" in names:
            reading = "encoder" in words and "decoder" not in words
            return sorted(names, key=lambda name: (name == "target") == reading)
        return names

    def _across(self, queries: str) -> list[str]:
        """The candidate axes for keys of another text, the likeliest first."""
        return sorted(self.known, key=lambda name: name == queries)

    def _windows(self, size: int, count: int) -> str:
        """An axis of positions within windows; the windows are concatenated."""
        name = f"{counted(count, 'window')} of {size // count}"
        words = [f"{window}:{place}" for window in range(count) for place in range(size // count)]
        self.used.setdefault(name, Axis.of(words, name=name))
        return name

    def _named(self, size: int, preferred: list[str]) -> str:
        if self.patches is not None and "patches" not in self.known and (axis := self.patches.axis(size)) is not None:
            self.known["patches"] = self.used["patches"] = axis
            return "patches"
        for name in preferred:
            if len(self.known[name]) == size:
                self.used[name] = self.known[name]
                return name
        name = counted(size, "position")
        self.used.setdefault(name, Axis.of(size, name=name))
        return name
