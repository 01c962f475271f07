"""infer: measures the conventions of a function, and writes the adapter that says so, for its user to read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .conventions.adapter_file import to_json
from .conventions.fields import Adapter
from .conventions.measure import measure
from .process.opened import open_session

__all__ = ["Inferred", "infer"]


@dataclass(frozen=True, kw_only=True)
class Inferred:
    """What was measured.

    Args:
        adapter: the measured conventions; not confirmed if any of them deviates from the laws.
        text: the adapter as JSON.
        notes: one line for each convention that deviates from the laws, and for each that could not be measured.

    Examples:
        >>> import regard.conformance as rc
        >>> found = rc.infer("regard:attention")
        >>> found.adapter.layout, found.adapter.parameters["mask"]
        ('BHSD', 'mask')
    """

    adapter: Adapter
    text: str
    notes: tuple[str, ...]


def infer(function: Callable[..., Any] | str, *, adapter: Adapter | None = None, seconds: float = 10.0) -> Inferred:
    """Measures the conventions of an attention function with about a dozen calls.

    With queries of 0 every allowed key has the same weight, and with one-hot values the output is the matrix of
    weights, so each convention can be read from a result.

    Args:
        function: the function, or where it is: `"module:function"` or `"FILE.py:function"`.
        adapter: what is known already, such as the names of unusual parameters.
        seconds: the time that one call may take.

    Returns:
        The adapter as an object and as JSON, and what its user has to read. With `"confirmed": false` in it,
        conventions that deviate from the laws are still reported as mistakes.

    Raises:
        Refused: the function cannot be loaded, or has parameters whose meaning is unknown.

    Examples:
        >>> import regard.conformance as rc
        >>> print(*rc.infer("regard:attention").notes)
        <BLANKLINE>
    """
    with open_session(function, seconds) as session:
        described = session.describe()
        declared = adapter if adapter is not None else described.adapter
        measured = measure(session, described, declared)
    deviations = measured.deviations
    found = replace(
        measured.adapter,
        confirmed=not deviations and not measured.unmeasured,
        expected={} if declared is None else declared.expected,
    )
    notes = [f"{each.field}: {each.words}" for each in deviations]
    if deviations:
        names = ", ".join(each.field for each in deviations)
        notes.append(
            f"read the adapter; if {names} {'is' if len(deviations) == 1 else 'are'} meant, set confirmed to true"
        )
    notes += [f"{name}: not measured" for name in measured.unmeasured]
    return Inferred(adapter=found, text=json.dumps(to_json(found), indent=2), notes=tuple(notes))
