"""Results kept from call to call, and locks that a forked child finds free."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Memo", "lock"]

T = TypeVar("T")


def lock() -> threading.RLock:
    """A re-entrant lock, because handlers of signals and the garbage collector may run anybody's code while it is held.

    A fork takes all of them, the newest first. Rooms import downwards, so the newest belongs to the highest floor: it
    takes them in the order in which calls do. In the child nobody else is there to hold one.
    """
    made = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=made.acquire, after_in_parent=made.release, after_in_child=made.release)
    return made


class Memo(Generic[T]):
    """The last `kept` results, by rules (expressions) and whatever else they depend on.

    Rules that read arrays which somebody may still change are worked out anew each time. Rules that read other arrays
    are held weakly, so that the arrays can go; a rule without arrays stays, because `causal()` is written anew in every
    call.
    """

    def __init__(self, kept: int):
        self.kept = kept
        self.lock = lock()
        self.results: dict[tuple, tuple[tuple[Callable[[], Any], ...], T]] = {}

    def __call__(self, rules: tuple[Any, ...], rest: tuple, work_out: Callable[[], T]) -> T:
        identity = (*map(id, rules), *rest)
        known = self.results.get(identity)
        if known is not None:
            for get, rule in zip(known[0], rules, strict=True):
                if get() is not rule:  # the rule may be gone, and its id taken by another
                    break
            else:
                return known[1]
        found = work_out()
        tables = [() if rule is None else rule.tables for rule in rules]
        if all(table.frozen for read in tables for table in read):

            def forget(_) -> None:  # what was worked out may hold the arrays too; a single pop needs no lock
                self.results.pop(identity, None)

            held = tuple(
                weakref.ref(rule, forget) if read else lambda rule=rule: rule
                for rule, read in zip(rules, tables, strict=True)
            )
            with self.lock:
                self.results[identity] = held, found
                excess = max(0, len(self.results) - self.kept)
                for oldest in list(self.results)[:excess]:  # a list, because rules may go meanwhile
                    self.results.pop(oldest, None)
        return found
