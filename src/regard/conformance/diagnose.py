"""Turns failed cases into findings: the convention or known mistake that explains them, and a small counterexample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..common.errors import Refused
from ..laws.call import Answer, Call
from ..laws.catalog import of_name
from ..laws.expected import expected, expected_gradients
from ..laws.explain import Explanation, explain
from ..laws.observed import ObservedAnswer
from .cases.case import Case, Limits, Result
from .cases.edges import edges
from .cases.textbook import textbook
from .conventions.fields import Adapter
from .conventions.measure import Deviation
from .conventions.translate import Absent
from .conventions.validation import Parameter
from .counterexample import BEHAVIOR, script
from .judge import Judge
from .report import Finding
from .shrink import shrunk

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


def findings_of(
    results: Sequence[Result],
    deviations: Sequence[Deviation],
    judge: Judge,
    limits: Limits,
    *,
    target: str,
    parameters: Sequence[Parameter],
    seed: int,
) -> list[Finding]:
    """The findings: conventions first, then laws in order, then expected failures that did not fail."""
    context = _Context(judge, limits, target, parameters, seed)
    found = [context.convention(each) for each in deviations]
    failed = [each for each in results if each.status == "fail"]
    broken = context.laws(failed, [each for each in results if each.status == "pass"])
    found += sorted(broken, key=lambda each: (each.level > 0, each.mistake is None, each.level, each.law))
    for each in results:
        if each.status == "unexpected-pass":
            cause, fix = "what it was expected to fail for is fixed", "remove it from `expected` in the adapter"
            words = f"{each.case.id} was expected to fail, and passes"
            found.append(_finding([each], words, cause, fix, kind="unexpected-pass"))
    return found


def _finding(group: Sequence[Result], measured: str, cause: str, fix: str, **more: Any) -> Finding:
    """What cases that fail alike have in common, with more fields of a finding, or others."""
    law, level = min(each.case.law for each in group), min(each.case.level for each in group)
    cases = tuple(each.case.id for each in group)
    usual: dict[str, Any] = {"law": law, "level": level, "kind": "law", "mistake": None, "cases": cases}
    return Finding(measured=measured, cause=cause, fix=fix, **usual | more)


@dataclass(frozen=True)
class _Context:
    """What all findings of one run share."""

    judge: Judge
    limits: Limits
    target: str
    parameters: Sequence[Parameter]
    seed: int

    def convention(self, deviation: Deviation) -> Finding:
        """The finding of a convention that is measured and not declared, with the cases that fail because of it."""
        name, (law, level) = deviation.field, LAWS.get(deviation.field, (0, 0))
        adapter = replace(self.judge.adapter, **{name: deviation.expected})
        judge = Judge(self.judge.session, adapter)
        limits = replace(self.limits, adapter=adapter)
        listed = [*textbook(limits, self.seed), *edges(limits, self.seed)]
        results = [each for each in map(judge.result, listed) if each.status == "fail" and each.case.check is None]
        best = self._named(deviation, results, adapter) or next(
            (each for each in _explained(results[:40], (), adapter) if each.mistakes), None
        )
        first = next((each for each in results if best is None or each.case.id in best.cases), None)
        declares = f"{name}={deviation.measured!r}"
        cause, fix = "a convention that was not declared", f"declare {declares} if it is meant"
        return Finding(
            law=law,
            level=level,
            kind="convention",
            measured=f"{name}: {deviation.words}",
            mistake=None if best is None else _name(best),
            alike=() if best is None else best.alike,
            cause=cause if best is None else f"{_cause(best)}, or {cause}",
            fix=fix if best is None else f"{_fix(best)}; or {fix}",
            declares=declares,
            cases=tuple(each.case.id for each in results),
            counterexample="" if first is None else self._smallest(first, best, judge, _status(first)),
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

    def laws(self, failed: Sequence[Result], passed: Sequence[Result]) -> Iterator[Finding]:
        """The findings of cases that fail under the measured conventions."""
        rest = list(failed)
        for status in LOST:
            lost = [each for each in rest if each.answer is not None and each.answer.status == status]
            rest = [each for each in rest if each not in lost]
            for words in dict.fromkeys(each.words for each in lost):
                same = [each for each in lost if each.words == words]
                yield self._without_result(status, words, same)
        judged = [each for each in rest if _is_compared(each)]
        compared = [each for each in rest if each.also]
        for explanation in _explained(judged, passed, self.judge.adapter):
            group = [each for each in judged if each.case.id in explanation.cases]
            folded = [each for each in compared if self._follows(each, explanation)]
            rest = [each for each in rest if each not in folded]
            if group:
                yield self._explained(explanation, group, folded)
        by_law: dict[tuple[int, int, str], list[Result]] = {}
        for each in rest:
            if not _is_compared(each):
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
        shown = status != "timeout" and first.call is not None
        smallest = self._smallest(first, None, self.judge, status) if shown else ""
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
        first = min(group, key=lambda each: (_is_gradient(each), each.case.level, _size(each.call)))
        known = explanation.mistakes
        words = f": the output is that of attention with {' and '.join(m.description for m in known)}" if known else ""
        return _finding(
            group,
            f"{first.words}{words}",
            _cause(explanation),
            _fix(explanation),
            law=known[0].law if known else first.case.law,
            mistake=_name(explanation) if known else None,
            alike=explanation.alike,
            cases=tuple(each.case.id for each in [*group, *folded]),
            counterexample=self._smallest(first, explanation, self.judge),
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
        if call is None or answer is None or result.case.level > 0:
            return ""
        what = result.case.name.split("-")[0]
        if what in BEHAVIOR:
            says = [f"{result.case.says[0].upper()}{result.case.says[1:]}."]
            small = shrunk(call, lambda each: self._fails_again(result.case, each))
            return script(small, self.judge.adapter, self.parameters, self.target, what, says)
        wrong = answer.status == "ok" and not self.judge.compared(call, answer).right
        return self._smallest(result, None, self.judge) if wrong else ""

    def _fails_again(self, case: Case, call: Call) -> bool:
        """Whether a case that is judged in its own way fails with another call, for the same reason."""
        found = self.judge.result(replace(case, call=call))
        return found.status == "fail" and (found.answer is None or found.answer.status == "ok")

    def _smallest(self, result: Result, explanation: Explanation | None, judge: Judge, status: str = "ok") -> str:
        """The script of the smallest call that fails in the same way; "" if the call cannot be made again."""
        call = result.call
        assert call is not None
        try:
            # Gradients that cannot be read may be 0 where numbers are, and then a script would not show them.
            numbers = status == "ok" or call.dout is None
            small = shrunk(call, _fails_alike(judge, explanation, status), numbers=numbers)
            answer = judge.ask(small)
        except (Absent, Refused):
            return ""
        what = judge.compared(small, answer).what if answer.status == "ok" else _lacking(small, answer)
        known = explanation.mistakes if explanation else ()
        law = known[0].law if known else result.case.law
        says = [f"Law {law} of attention: {SENTENCES[law]}."]
        says += [f"This is what attention with {known[0].description} gives."] if known else []
        return script(small, judge.adapter, self.parameters, self.target, what, says)


def _lacking(call: Call, answer: Answer) -> str:
    """The result that a script shows where there is none to compare."""
    if call.dout is not None or call.dlse is not None:
        return "gradient of q"
    return next((what for what in ("lse", "weights") if f"the {what}" in answer.words), "out")


def _fails_alike(judge: Judge, explanation: Explanation | None, status: str) -> Callable[[Call], bool]:
    """Whether a call fails with the same mistakes, or in the same way if none are known."""

    def fails(call: Call) -> bool:
        if judge.missing(call) is not None:
            return False
        try:
            answer = judge.ask(call)
        except Absent:
            return False
        if answer.status != status:
            return False
        if status != "ok":
            return True
        if judge.compared(call, answer).right:
            return False
        if explanation is None or not explanation.mistakes:
            return True
        return ObservedAnswer("", call, answer, judge.adapter).explained(explanation.mistakes)

    return fails


def _status(result: Result) -> str:
    return "ok" if result.answer is None else result.answer.status


def _explained(failed: Sequence[Result], passed: Sequence[Result], adapter: Adapter) -> list[Explanation]:
    small = [each for each in passed if _is_compared(each) and _size(each.call) < 1 << 14]
    return explain(_observed(failed, adapter), _observed(small, adapter))


def _observed(results: Sequence[Result], adapter: Adapter) -> list[ObservedAnswer]:
    """Results with the bounds of right answers."""
    observed = []
    for result in results:
        call, answer = result.call, result.answer
        assert call is not None and answer is not None
        bounds = expected(call, adapter).bounds._asdict()
        if call.dout is not None:
            bounds |= expected_gradients(call, adapter)[1]
        observed.append(ObservedAnswer(result.case.id, call, answer, adapter, bounds))
    return observed


def _is_compared(result: Result) -> bool:
    """Whether the answer to the call of the case was compared with the law: forward, or with gradients."""
    return result.call is not None and result.case.check is None


def _is_gradient(result: Result) -> bool:
    return result.call is not None and result.call.dout is not None


def _size(call: Call | None) -> int:
    """The number of pairs of a call."""
    return 0 if call is None else call.q.shape[0] * call.q.shape[1] * call.q.shape[2] * call.k.shape[2]


def _name(explanation: Explanation) -> str:
    return " + ".join(each.name for each in explanation.mistakes)


def _cause(explanation: Explanation) -> str:
    return "; ".join(each.cause for each in explanation.mistakes) or UNKNOWN


def _fix(explanation: Explanation) -> str:
    return "; ".join(each.fix for each in explanation.mistakes) or COMPARE
