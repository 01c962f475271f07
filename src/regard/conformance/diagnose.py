"""Turns failed cases into findings: the convention or known mistake that explains them, and a small counterexample."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..common.errors import Refused
from ..laws.call import Answer, Call
from ..laws.expected import expected, expected_gradients
from ..laws.explain import Explanation, explain
from ..laws.mistake import Mistake
from ..laws.mistakes import of_name
from ..laws.observed import ObservedAnswer
from .cases.calls import edges, textbook
from .cases.case import Limits, Result
from .conventions.fields import Adapter
from .conventions.measure import Deviation
from .conventions.parameters import Parameter
from .conventions.translate import Absent
from .counterexample import BEHAVIOR, script, shrunk
from .judge import Judge
from .report import Finding

# The laws in one sentence each, for counterexamples, whose readers may not know regard.
SENTENCES = (
    "a call returns numbers of the right shape and dtype, and changes nothing else",
    "out = softmax(score(scale · q·k) where mask) · v, with scale = 1/√D unless given",
    "a row attends to the keys that its mask allows, and to no others",
    "a causal row attends to its own position and to earlier ones",
    "a window contains the row itself and the declared number of keys beside it",
    "the output of a fully masked row is 0",
    "keys and values that a row may not attend to have no effect on it, not even NaN",
    "lse = ln Σ exp(score) over the allowed keys",
    "a sink is one more logit in the denominator, without a value",
    "dropout applies to the weights, after the softmax, in the forward and the backward pass alike",
    "errors are those of the usual computation in the dtype",
    "a row depends on nothing but its own query and the keys that it attends to",
    "a score of −∞ removes its key; a finite number removes nothing",
    "an argument has the same meaning in every call",
)
UNKNOWN = "no known mistake, alone or with another one, explains it"
COMPARE = "compare the function with the law on the counterexample, step by step"
# Cause and fix where a call gave no result, by the status of its answer.
LOST = {
    "timeout": (
        "an endless loop, a lock, or a function that needs more time",
        "see where it waits, or allow more time",
    ),
    "crashed": ("an error in compiled code, or a call that ends the process", "run the counterexample in a debugger"),
    "raised": (
        "the function does not support this call, or has an error",
        "run the counterexample, read the traceback",
    ),
    "unreadable": (
        "the result is not what the adapter declares",
        "correct `returns` and `layout` in the adapter, or the result",
    ),
}
# The known mistake that a convention is, if it is not declared.
UNDECLARED = {
    ("mask", "true-hides"): "mask-inverted",
    ("mask", "additive"): "mask-added-as-numbers",
    ("causal", "top-left"): "alignment-top-left",
    ("groups", "tile"): "groups-tiled",
    ("lse", "base-2"): "lse-base-2",
    ("lse", "natural-unscaled"): "lse-without-scale",
    ("empty_row", "nan"): "empty-row-nan",
    ("empty_row", "mean"): "empty-row-mean",
}
# The law that a convention belongs to, and its level.
LAWS = {
    "arrays": (0, 0), "layout": (1, 1), "heads": (0, 0), "parameters": (0, 0), "returns": (0, 0), "dtypes": (10, 2),
    "mask": (2, 1), "mask_shapes": (2, 1), "causal": (3, 1), "always": (3, 1), "scale": (1, 1), "groups": (1, 1),
    "window": (4, 2), "softcap": (1, 2), "lse": (7, 2), "lse_layout": (7, 2), "empty_row": (5, 2), "empty_lse": (7, 2),
    "gradients": (1, 3),
}  # fmt: skip


def _finding(group: Sequence[Result], measured: str, cause: str, fix: str, **more: Any) -> Finding:
    """What cases that fail alike have in common, with more fields of a finding, or others."""
    law, level = min(each.case.law for each in group), min(each.case.level for each in group)
    cases = tuple(each.case.id for each in group)
    usual: dict[str, Any] = {"law": law, "level": level, "kind": "law", "mistake": None, "cases": cases}
    return Finding(measured=measured, cause=cause, fix=fix, **usual | more)


@dataclass(frozen=True)
class Diagnosis:
    """Explains what is wrong in one run.

    judge: asks the function · limits: what it takes · target: its name, for scripts · parameters: those of the
    function · seed: of the cases
    """

    judge: Judge
    limits: Limits
    target: str
    parameters: Sequence[Parameter]
    seed: int

    def findings(self, results: Sequence[Result], deviations: Sequence[Deviation] = ()) -> list[Finding]:
        """The findings: whatever keeps the function from running first, then conventions, then laws in order, then
        expected failures that did not fail.
        """

        def order(finding: Finding) -> tuple:
            by_law = () if finding.kind == "convention" else (finding.mistake is None, finding.level, finding.law)
            return finding.level > 0, len(by_law), *by_law

        found = [self._convention(each) for each in deviations]
        failed = [each for each in results if each.status == "fail"]
        broken = self._laws(failed, [each for each in results if each.status == "pass"])
        found = sorted([*found, *broken], key=order)
        for each in results:
            if each.status == "unexpected-pass":
                cause, fix = "what it was expected to fail for is fixed", "remove it from `expected` in the adapter"
                words = f"{each.case.id} was expected to fail, and passes"
                found.append(_finding([each], words, cause, fix, kind="unexpected-pass"))
        return found

    def _convention(self, deviation: Deviation) -> Finding:
        """The finding of a convention that is measured and not declared, with the cases that fail because of it."""
        name, (law, level) = deviation.field, LAWS.get(deviation.field, (0, 0))
        adapter = replace(self.judge.adapter, **{name: deviation.expected})
        judge = Judge(self.judge.session, adapter)
        limits = replace(self.limits, adapter=adapter)
        listed = [*textbook(limits, self.seed), *edges(limits, self.seed)]
        results = [each for each in map(judge.result, listed) if each.status == "fail" and each.case.check is None]
        best = self._named(deviation, results, adapter) or next(
            (each for each in _explained(results[:40], (), adapter) if each.mistakes), Explanation((), (), ())
        )
        known = best.mistakes
        first = next((each for each in results if not known or each.case.id in best.cases), None)
        declares = f"{name}={deviation.measured!r}"
        cause, fix = "a convention that was not declared", f"declare {declares} if it is meant"
        return Finding(
            law=law,
            level=level,
            kind="convention",
            measured=f"{name}: {deviation.words}",
            mistake=_name(known),
            alike=best.alike,
            cause=f"{_cause(known)}, or {cause}" if known else cause,
            fix=f"{_fix(known)}; or {fix}" if known else fix,
            declares=declares,
            cases=tuple(each.case.id for each in results),
            counterexample="" if first is None else self._smallest(first, known, judge),
        )

    def _named(self, deviation: Deviation, results: Sequence[Result], adapter: Adapter) -> Explanation | None:
        """The known mistake that a convention is, with the cases that it explains; None if it has no name."""
        known = (deviation.field, deviation.measured)
        name = next((name for each, name in UNDECLARED.items() if each == known), None)
        if name is None:
            return None
        mistake = of_name(name)
        cases = [each.id for each in _observed(results, adapter) if each.explained((mistake,))]
        return Explanation((mistake,), (), tuple(cases)) if cases else None

    def _laws(self, failed: Sequence[Result], passed: Sequence[Result]) -> Iterator[Finding]:
        """The findings of cases that fail under the measured conventions."""
        rest = list(failed)
        for status in LOST:
            lost = [each for each in rest if each.answer is not None and each.answer.status == status]
            rest = [each for each in rest if each not in lost]
            for words in dict.fromkeys(each.words for each in lost):
                same = [each for each in lost if each.words == words]
                yield self._without_result(status, words, same)
        judged = [each for each in rest if each.case.check is None]  # compared with the law
        compared = [each for each in rest if each.also]
        for explanation in _explained(judged, passed, self.judge.adapter):
            group = [each for each in judged if each.case.id in explanation.cases]
            folded = [each for each in compared if self._follows(each, explanation)]
            rest = [each for each in rest if each not in folded]
            if group:
                yield self._explained(explanation, group, folded)
        by_law: dict[tuple[int, int, str], list[Result]] = {}
        for each in rest:
            if each.case.check is not None:
                name = each.case.name.split("-")[0] if each.case.level == 0 else ""
                by_law.setdefault((each.case.level, each.case.law, name), []).append(each)
        for group in by_law.values():
            yield self._special(group)

    def _without_result(self, status: str, words: str, group: Sequence[Result]) -> Finding:
        first = group[0]
        cause, fix = LOST[status]
        mistake = None
        if status == "raised" and words.startswith(("OverflowError", "FloatingPointError")):
            known = of_name("softmax-without-maximum")
            mistake, cause, fix = known.name, known.cause, known.fix
        smallest = "" if status == "timeout" else self._smallest(first)
        return _finding(group, words, cause, fix, mistake=mistake, counterexample=smallest)

    def _follows(self, result: Result, explanation: Explanation) -> bool:
        """Whether the answers that were compared with each other are those of the mistakes."""
        compared = [ObservedAnswer("", call, answer, self.judge.adapter) for call, answer in result.also]
        return bool(explanation.mistakes) and all(
            each.explained(explanation.mistakes)
            or (each.mistaken(explanation.mistakes) is None and self.judge.compared(each.call, each.answer).right)
            for each in compared
        )

    def _explained(self, explanation: Explanation, group: Sequence[Result], folded: Sequence[Result]) -> Finding:
        first = min(group, key=lambda each: (each.call.dout is not None, each.case.level, _size(each.call)))
        known = explanation.mistakes
        words = f": the output is that of attention with {' and '.join(m.description for m in known)}" if known else ""
        return _finding(
            group,
            f"{first.words}{words}",
            _cause(known),
            _fix(known),
            law=known[0].law if known else first.case.law,
            mistake=_name(known),
            alike=explanation.alike,
            cases=tuple(each.case.id for each in [*group, *folded]),
            counterexample=self._smallest(first, known),
        )

    def _special(self, group: Sequence[Result]) -> Finding:
        """The finding of cases that are judged in their own way: side effects, isolation, scale."""
        first = group[0]
        cause = f"this does not hold: {first.case.says}"
        fix = COMPARE if first.case.level else "find where this happens in the function, and remove it"
        return _finding(group, first.words, cause, fix, counterexample=self._shown(first))

    def _shown(self, result: Result) -> str:
        """A script for a case that is judged in its own way; "" if a short one cannot show it."""
        call, answer = result.call, result.answer
        if answer is None or result.case.level > 0:
            return ""
        what = result.case.name.split("-")[0]
        if what in BEHAVIOR:
            says = [f"{result.case.says[0].upper()}{result.case.says[1:]}."]

            def fails_again(call: Call) -> bool:
                found = self.judge.result(replace(result.case, call=call))
                return found.status == "fail" and (found.answer is None or found.answer.status == "ok")

            small = shrunk(call, fails_again)
            return script(small, self.judge.adapter, self.parameters, self.target, what, says)
        wrong = answer.status == "ok" and not self.judge.compared(call, answer).right
        return self._smallest(result) if wrong else ""

    def _smallest(self, result: Result, known: Sequence[Mistake] = (), judge: Judge | None = None) -> str:
        """The script of the smallest call that fails with the same mistakes, or in the same way if none are known; ""
        if the call cannot be made again. judge: for other conventions
        """
        judge, call = judge or self.judge, result.call
        assert result.answer is not None
        status = result.answer.status
        try:
            # Gradients that cannot be read may be 0 where numbers are, and then a script would not show them.
            numbers = status == "ok" or call.dout is None
            small = shrunk(call, lambda each: _fails_alike(each, judge, known, status), numbers=numbers)
            answer = judge.ask(small)
        except (Absent, Refused):
            return ""
        what = judge.compared(small, answer).what if answer.status == "ok" else _lacking(small, answer)
        law = known[0].law if known else result.case.law
        says = [f"Law {law} of attention: {SENTENCES[law]}."]
        says += [f"This is what attention with {known[0].description} gives."] if known else []
        return script(small, judge.adapter, self.parameters, self.target, what, says)


def _lacking(call: Call, answer: Answer) -> str:
    """The result that a script shows where there is none to compare."""
    if call.dout is not None:
        return "gradient of q"
    return next((what for what in ("lse", "weights") if f"the {what}" in answer.words), "out")


def _fails_alike(call: Call, judge: Judge, known: Sequence[Mistake], status: str) -> bool:
    """Whether a call fails with the same mistakes, or in the same way if none are known."""
    try:
        answer = judge.ask(call)
    except Absent:
        return False
    if answer.status != status or status != "ok":
        return answer.status == status
    if judge.compared(call, answer).right:
        return False
    return not known or ObservedAnswer("", call, answer, judge.adapter).explained(known)


def _explained(failed: Sequence[Result], passed: Sequence[Result], adapter: Adapter) -> list[Explanation]:
    small = [each for each in passed if failed and not each.case.check and _size(each.call) < 1 << 14]
    return explain(_observed(failed, adapter), _observed(small, adapter))


def _observed(results: Sequence[Result], adapter: Adapter) -> list[ObservedAnswer]:
    """Results with the bounds of right answers."""
    observed = []
    for result in results:
        call, answer = result.call, result.answer
        assert answer is not None
        bounds = expected(call, adapter).bounds._asdict()
        if call.dout is not None:
            bounds |= expected_gradients(call, adapter)[1]
        observed.append(ObservedAnswer(result.case.id, call, answer, adapter, bounds))
    return observed


def _size(call: Call) -> int:
    """The number of pairs of a call."""
    return math.prod(call.dims[axis] for axis in "BHQK")


def _name(mistakes: Sequence[Mistake]) -> str | None:
    return " + ".join(each.name for each in mistakes) or None


def _cause(mistakes: Sequence[Mistake]) -> str:
    return "; ".join(each.cause for each in mistakes) or UNKNOWN


def _fix(mistakes: Sequence[Mistake]) -> str:
    return "; ".join(each.fix for each in mistakes) or COMPARE
