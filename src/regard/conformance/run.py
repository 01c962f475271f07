"""conform: runs the suite on one attention function; infer: measures its conventions, and writes the adapter that says
so, for its user to read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from ..common.errors import refuse
from ..common.text.keywords import known_keywords
from .cases.behavior import basics, isolation, scale
from .cases.calls import edges, gradients, textbook
from .cases.case import LEVELS, Case, Draw, Limits, Result
from .conventions.adapter_file import to_json
from .conventions.fields import Adapter
from .conventions.measure import measure
from .conventions.parameters import Parameter
from .conventions.translate import Absent, Asks
from .diagnose import Diagnosis
from .judge import Judge, Watched
from .report import Report
from .session import InProcess, Session, name_of, open_session

LOST = 3  # calls that hang or crash, after which the rest is not run
MAKERS = (basics, textbook, edges, gradients, isolation, scale)  # by level


@known_keywords
def conform(
    function: Callable[..., Any] | str,
    *,
    adapter: Adapter | None = None,
    level: int = 3,
    seed: int = 0,
    seconds: float = 10.0,
) -> Report:
    """Runs the conformance suite on an attention function.

    The function is called with small arrays that follow from the seed. Every result is compared with
    softmax(score(scale · q kᵀ) where mask) v in float64, within a bound on the rounding errors of each number.

    Args:
        function: the function, or where it is: `"module:function"` or `"FILE.py:function"`. It runs in a process of its
            own if it can be imported; a lambda, a closure or a function of `__main__` runs in this one.
        adapter: its conventions. None: those that it declares with the decorator `regard.conformance.adapter`, else
            those of the laws.
        level: the highest level to run, 0 to 5: runs, textbook, edges, gradients, isolation, scale.
        seed: of the random cases.
        seconds: the time that one call may take.

    Returns:
        The report: the level that was reached, and the findings.

    Raises:
        Refused: the function cannot be loaded or called, or the adapter does not fit it.

    Source:
        The laws: docs/reference/laws.md.

    Examples:
        >>> import regard as rg
        >>> report = rg.conform("regard:attention", level=1)
        >>> report.right, report.level
        (True, 1)
    """
    if isinstance(level, bool) or level not in range(len(LEVELS)):
        raise refuse(
            "conform",
            "level is not a level",
            repr(level),
            f"a number from 0 ({LEVELS[0]}) to {len(LEVELS) - 1} ({LEVELS[-1]})",
            "choose one of them",
        )
    began = time.monotonic()
    with closing(open_session(function, seconds)) as session:
        target = function if isinstance(function, str) else name_of(function) or session.describe().name
        suite = Suite(session, target, adapter, level, seed)
        results, stopped = _run(suite)
        results = _with_expectations([*suite.watched.results(), *results], suite.measured.adapter)
        return Report(
            target=target,
            adapter=suite.measured.adapter,
            declared=suite.declared,
            conventions=dict(suite.measured.evidence),
            requested=level,
            results=tuple(results),
            findings=tuple(suite.diagnosis.findings(results, suite.measured.deviations)),
            seed=seed,
            seconds=time.monotonic() - began,
            isolated=session.isolated,
            stopped=stopped,
            noticed=suite.watched.noticed(),
            version=suite.described.version,
        )


class Suite:
    """The cases of one function, its conventions already measured. target: its name · adapter: as in `conform`."""

    def __init__(self, session: Session | InProcess, target: str, adapter: Adapter | None, level: int, seed: int):
        self.session, self.target = session, target
        self.described = session.describe()
        self.declared = adapter if adapter is not None else self.described.adapter
        self.watched = Watched(session)
        parameters = self.described.parameters
        self.measured = measure(self.watched, parameters, self.declared, self.described.name)
        self.watched.measuring = False
        self.judge = Judge(self.watched, judged(self.measured.adapter, self.declared))
        limits = limits_of(self.judge)
        self.cases = cases(limits, level, seed)
        self.diagnosis = Diagnosis(self.judge, limits, target, parameters, seed)
        self.lost = 0  # calls that hung or ended the process

    def result(self, case: Case) -> Result:
        """The result of a case."""
        result = self.judge.result(case)
        self.lost += result.answer is not None and result.answer.status in ("timeout", "crashed")
        return result


def cases(limits: Limits, level: int, seed: int) -> list[Case]:
    """The cases of all levels up to this one."""
    return [each for number in range(level + 1) for each in MAKERS[number](limits, seed)]


def judged(measured: Adapter, declared: Adapter | None) -> Adapter:
    """The measured conventions; of the dtypes, only the first if none are declared."""
    if declared is not None and declared.declares("dtypes"):
        return measured
    return replace(measured, dtypes=measured.dtypes[:1])


def limits_of(judge: Judge) -> Limits:
    """What the function takes, found by two calls."""
    limits = Limits(judge.adapter)

    def runs(name: str, **sizes: int) -> bool:
        try:
            return judge.ask(Draw(limits, 0, name, sizes).call()).status == "ok"
        except Absent:
            return False

    if not runs("plain", Q=6, K=6):  # then every other question would give the same answer
        return limits
    return Limits(judge.adapter, rectangular=runs("rectangular", Q=5, K=7), wide=runs("wide", Q=6, K=6, D=8, E=4))


def _run(suite: Suite) -> tuple[list[Result], str]:
    """The results, and why the run stopped before its end."""
    results: list[Result] = []
    for case in suite.cases:
        results.append(suite.result(case))
        if suite.lost >= LOST:
            left = len(suite.cases) - len(results)
            why = f"{suite.lost} calls hung or ended the process; {left} of {len(suite.cases)} cases did not run"
            return results, why
    return results, ""


def _with_expectations(results: Sequence[Result], adapter: Adapter) -> list[Result]:
    """The results, where expected failures are marked, and those that pass instead."""
    known = adapter.expected
    found = []
    for result in results:
        reason = known.get(result.case.id) or known.get(f"law-{result.case.law:02d}")
        if reason is not None and result.status == "fail":
            words = f"{result.words} (expected: {reason.get('reason', '')} {reason.get('link', '')})".rstrip()
            result = replace(result, status="expected", words=words)
        elif result.case.id in known and result.status == "pass":
            result = replace(result, status="unexpected-pass", words=f"expected to fail: {reason}")
        found.append(result)
    for law in [name for name in known if "[" not in name]:
        ran = [
            number
            for number, each in enumerate(found)
            if f"law-{each.case.law:02d}" == law and each.status in ("pass", "expected")
        ]
        if ran and all(found[number].status == "pass" for number in ran):
            first = ran[0]
            found[first] = replace(found[first], status="unexpected-pass", words=f"{law} was expected to fail")
    return found


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
    with closing(open_session(function, seconds)) as session:
        described = session.describe()
        declared = adapter if adapter is not None else described.adapter
        measured = measure(session, described.parameters, declared, described.name)
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
