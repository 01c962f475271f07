"""Results cached between calls, and locks that are free in a forked child."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
COMPARED = 1 << 17  # the most bytes of an array that is compared in every call: ten microseconds
HELD = 1 << 16  # the most bytes of an array of regard's own that is kept for an equal rule of a later call


def lock() -> threading.RLock:
    """A re-entrant lock, because signal handlers and the garbage collector may run any code while it is held.

    A fork acquires all of these locks, the newest first. Packages import downwards, so the newest belongs to the
    highest layer, and locks are acquired in the same order as in calls. In the child no other thread can hold one.
    """
    made = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=made.acquire, after_in_parent=made.release, after_in_child=made.release)
    return made


class Memo(Generic[T]):
    """A cache of the last `kept` results, keyed by rules (expressions) and the other values they depend on.

    Results of rules that read arrays of the caller, which may still change, are valid as long as the arrays contain the
    same; large arrays are not compared, so that such results are cached only if they do not depend on what arrays
    contain: `of_contents` is then False. Rules that read arrays of the caller, or large ones, are referenced weakly, so
    that the arrays can be freed. The others are referenced strongly, because every call creates a new `causal()` or
    `documents(…)`.
    """

    def __init__(self, kept: int, of_contents: bool = True):
        self.kept, self.of_contents = kept, of_contents
        self.lock = lock()
        self.results: dict[tuple, tuple[tuple[Callable[[], Any], ...], tuple[tuple[Any, bytes], ...], T]] = {}

    def __call__(self, rules: tuple[Any, ...], rest: tuple, work_out: Callable[[], T]) -> T:
        identity = (*map(id, rules), *rest)
        known = self.results.get(identity)
        if known is not None:
            for get, rule in zip(known[0], rules, strict=True):
                if get() is not rule:  # the rule may have been freed, and its id reused
                    break
            else:
                if all(table.tobytes() == contents for table, contents in known[1]):
                    return known[2]
        found = work_out()
        tables = [() if rule is None else rule.tables for rule in rules]
        changing = [table for read in tables for table in read if self.of_contents and not table.frozen]
        if all(table.array.nbytes <= COMPARED and not table.sources for table in changing):
            contents = tuple((table.array, table.array.tobytes()) for table in changing)

            def forget(_) -> None:  # the result may reference the arrays too; a single pop needs no lock
                self.results.pop(identity, None)

            held = tuple(
                (lambda rule=rule: rule)
                if all(table.frozen and table.memory.nbytes <= HELD for table in read)
                else weakref.ref(rule, forget)
                for rule, read in zip(rules, tables, strict=True)
            )
            with self.lock:
                self.results[identity] = held, contents, found
                excess = max(0, len(self.results) - self.kept)
                for oldest in list(self.results)[:excess]:  # a list, because rules may be freed meanwhile
                    self.results.pop(oldest, None)
        return found
