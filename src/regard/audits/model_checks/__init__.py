"""Checks that run a model several times with something changed, and compare what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..finding import Result
from ..subject import Subject
from .batch import batch_dependence
from .cache import cache, position_offset
from .determinism import determinism, training
from .finite import finite
from .future import future_leak
from .implementations import implementation_difference
from .padding import padding_leak

__all__ = ["CHECKS", "NEEDS", "training"]

# Every check by its name, in the order in which they run.
CHECKS: dict[str, Callable[[Subject], Iterable[Result]]] = {
    "finite": finite, "determinism": determinism, "future-leak": future_leak, "padding-leak": padding_leak,
    "batch-dependence": batch_dependence, "implementation-difference": implementation_difference, "cache": cache,
    "position-offset": position_offset,
}  # fmt: skip

# What must be in order before a check can say anything: otherwise it would find the same fault again.
NEEDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("future-leak", "padding-leak", "batch-dependence", "implementation-difference"), ("finite", "determinism")
    ),
    "cache": ("finite", "determinism", "future-leak"),
    "position-offset": ("finite", "determinism", "future-leak", "cache"),
}
