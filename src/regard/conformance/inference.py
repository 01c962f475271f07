"""infer: measures the conventions of a function, and writes the adapter that says so, for its user to read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .cases.case import Case
from .cases.edges import edges
from .cases.gradients import gradients
from .cases.textbook import textbook
from .conventions.adapter_file import to_json
from .conventions.fields import Adapter
from .conventions.measure import measure
from .conventions.validation import Parameter
from .judge import Asks, Judge
from .process.session import open_session
from .run import limits_of

TRIED = 3  # calls with an argument, before it is given up


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
    """Measures the conventions of an attention function with some dozens of small calls.

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
        adapter, notes = _that_holds(session, measured.adapter, described.parameters)
    deviations = measured.deviations
    found = replace(
        adapter,
        confirmed=not deviations and not measured.unmeasured,
        expected={} if declared is None else declared.expected,
    )
    notes += [f"{each.field}: {each.words}" for each in deviations]
    if deviations:
        names = ", ".join(each.field for each in deviations)
        notes.append(
            f"read the adapter; if {names} {'is' if len(deviations) == 1 else 'are'} meant, set confirmed to true"
        )
    notes += [f"{name}: not measured: {why}" for name, why in measured.unmeasured.items()]
    return Inferred(adapter=found, text=json.dumps(to_json(found), indent=2), notes=tuple(notes))


def _that_holds(session: Asks, adapter: Adapter, parameters: Sequence[Parameter]) -> tuple[Adapter, list[str]]:
    """The adapter without what only seems to be there: dtypes that run with larger errors than theirs, and optional
    parameters whose name suggests a role in which no call succeeds. The notes say what was left out.
    """
    notes: list[str] = []
    judge = Judge(session, adapter)
    limits = limits_of(judge)
    listed = [*textbook(limits, 0), *edges(limits, 0), *gradients(limits, 0)]
    for role in ("lengths", "sinks", "softcap", "bias", "mask", "window"):
        name = adapter.parameters.get(role)
        free = [each for each in parameters if each.name == name and not each.required]
        if name and free and (error := _never_runs(judge, listed, role)):
            roles = {each: known for each, known in adapter.parameters.items() if known != name}
            adapter = replace(adapter, parameters=roles, fixed={**adapter.fixed, name: None})
            notes.append(f"{name}: always None, because calls that pass {role} fail: {error}")
    judge = Judge(session, adapter)
    kept = list(adapter.dtypes[:1])
    for dtype in adapter.dtypes[1:]:
        mine = [each for each in listed if each.law == 10 and each.name.endswith(f"-{dtype}")]
        failed = next((each for each in map(judge.result, mine) if each.status == "fail"), None)
        if failed is None:
            kept.append(dtype)
        else:
            notes.append(f"dtypes: without {dtype}, because {failed.case.id} fails: {failed.words}")
    return replace(adapter, dtypes=tuple(kept)), notes


def _never_runs(judge: Judge, listed: Sequence[Case], role: str) -> str:
    """Why all calls with this argument alone raise an exception; "" if one succeeds or none can be made."""
    alone = [each for each in listed if each.call.uses() == (role,)]
    words = ""
    for case in alone[:TRIED]:
        found = judge.result(case)
        if found.answer is not None and found.answer.status == "raised":
            words = found.words
        elif found.status in ("pass", "fail"):
            return ""
    return words
