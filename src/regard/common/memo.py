"""Results kept from call to call, for rules that cannot change."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .locks import lock

__all__ = ["Memo"]

T = TypeVar("T")


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
                for oldest in list(self.results)[
                    : max(0, len(self.results) - self.kept)
                ]:  # a list, because rules may go meanwhile
                    self.results.pop(oldest, None)
        return found
