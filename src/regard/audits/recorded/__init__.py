"""Checks that read a recorded run: what each attention call was given, and what came out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...lens import Run
from ..finding import Result

__all__ = ["CHECKS", "checks"]

# Every check by its name: (run, module or None) -> what it found, or that it found nothing, or why it did not apply.
CHECKS: dict[str, Callable[[Run, Any], Iterable[Result]]] = {}


def checks(run: Run, module=None, names: Iterable[str] | None = None) -> Iterator[Result]:
    """What every check (or those named) says about a run. module: the torch model that made it, where it is at hand."""
    for name in CHECKS if names is None else names:
        yield from CHECKS[name](run, module)
