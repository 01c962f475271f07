"""Kernels of torch's operators on the CPU that are replaced, by blocks that may be nested and used from any thread."""

from __future__ import annotations

import threading
from typing import Any, ClassVar, Self

_lock = threading.Lock()


class ReplacedOperators:
    """A replacement until `restore()` or the end of the block. Each derived class is a replacement that begins with its
    first block and ends with the last.
    """

    active: ClassVar[list[Any]]  # the blocks that have begun

    def __init_subclass__(cls) -> None:
        cls.active = []

    def __init__(self) -> None:
        self.__enter__()

    @classmethod
    def connect(cls) -> None:
        """Replaces the kernels."""
        raise NotImplementedError

    @classmethod
    def disconnect(cls) -> None:
        """Puts torch's own kernels back."""
        raise NotImplementedError

    def restore(self) -> None:
        """Ends the replacement; torch computes its own operators again when the last one has ended."""
        with _lock:
            if self in self.active:
                self.active.remove(self)
                if not self.active:
                    self.disconnect()

    def __enter__(self) -> Self:
        with _lock:
            if self not in self.active:
                self.active.append(self)
                if len(self.active) == 1:
                    self.connect()
        return self

    def __exit__(self, *_) -> None:
        self.restore()
