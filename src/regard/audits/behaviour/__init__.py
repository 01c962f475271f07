"""Checks that run a model several times with something changed, and compare what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..finding import Result
from ..subject import Subject
from .batch import batch_dependence
from .cached import cache, position_offset
from .determinism import determinism, training
from .finite import finite
from .future import future_leak
from .padding import padding_leak

__all__ = ["CHECKS", "training"]

# Every check by its name, in the order in which they run. What comes after "determinism" compares runs that must be repeatable.
CHECKS: dict[str, Callable[[Subject], Iterable[Result]]] = {
    "finite": finite, "determinism": determinism, "future-leak": future_leak, "padding-leak": padding_leak,
    "batch-dependence": batch_dependence, "cache": cache, "position-offset": position_offset,
}  # fmt: skip
