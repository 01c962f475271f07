"""Results kept from call to call, for as long as the rules they were worked out from live and cannot change."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .expr import Expr, tables_of

__all__ = ["Memo"]

T = TypeVar("T")


class Memo(Generic[T]):
    """The last `kept` results, by rules (expressions, held weakly) and whatever else they depend on.

    Rules that read arrays which somebody may still change are worked out anew each time.
    """

    def __init__(self, kept: int):
        self.kept = kept
        self.lock = threading.Lock()
        self.results: dict[tuple, tuple[tuple[Any, ...], T]] = {}

    def __call__(self, rules: tuple[Expr | None, ...], rest: tuple, work_out: Callable[[], T]) -> T:
        identity = (*map(id, rules), *rest)
        with self.lock:
            known = self.results.get(identity)
        # A rule may be gone, and its id taken by another.
        if known is not None and all(ref is None or ref() is rule for ref, rule in zip(known[0], rules, strict=True)):
            return known[1]
        found = work_out()
        present = [rule for rule in rules if rule is not None]
        if all(table.frozen for table in tables_of(*present).values()):
            with self.lock:
                self.results[identity] = tuple(None if rule is None else weakref.ref(rule) for rule in rules), found
                while len(self.results) > self.kept:
                    del self.results[next(iter(self.results))]
        return found
