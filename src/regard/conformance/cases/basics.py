"""Level 0, runs: the function returns what it declares, changes nothing else, and gives the same result twice."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...common.dtypes import FLOATS
from ...laws.call import Answer
from ..judge import Judge, unanswered
from .case import Case, Draw, Limits, Result, resized


def basics(limits: Limits, seed: int) -> Iterator[Case]:
    """The cases of level 0."""

    def case(name: str, says: str, check, **sizes) -> Case:
        call = Draw(seed, name).call(**limits.sizes(**sizes))
        return Case(name=name, law=0, level=0, says=says, call=call, check=check)

    yield case("runs", "a call returns numbers, in the shape of the queries and the depth of the values", _runs)
    yield case("square", "a call with as many rows as keys returns numbers", _runs, Q=6, K=6)
    yield case("dtype", "the output has the dtype of the inputs, or a wider one", _dtype)
    yield case("inputs", "the inputs are not changed", _quiet("changed its input"))
    yield from _inputs(limits, seed)
    yield case("state", "nothing outside of the call is changed: random state, files, processes, network", _quiet(""))
    yield case("twice", "the same call gives the same bits twice", _twice)


def _inputs(limits: Limits, seed: int) -> Iterator[Case]:
    """The other arrays of a call are not changed either."""
    shape = next((each for each in limits.adapter.mask_shapes if "Q" in each), (*limits.adapter.mask_shapes, "BHQK")[0])
    for role in ("mask", "bias", "sinks", "lengths"):
        draw, sizes = Draw(seed, f"inputs-{role}"), limits.sizes()
        dims = resized(shape, *(sizes[axis] for axis in "BHQK"))
        array = {
            "mask": draw.mask(*dims),
            "bias": draw.bias(*dims),
            "sinks": draw.bias(sizes["H"]),
            "lengths": np.full(sizes["B"], 3),
        }[role]
        says = f"the array passed as {role} is not changed"
        call = draw.call(**sizes, **{role: array})
        yield Case(name=f"inputs-{role}", law=0, level=0, says=says, call=call, check=_quiet("changed its input"))
    after = 2 if limits.adapter.window == "both-sides" else 0
    numbers = {"scale": 0.7, "softcap": 2.0, "causal": True, "window": (2, after)}
    for role, value in numbers.items():
        name, says = f"inputs-{role}", f"the inputs are not changed in a call with {role}"
        call, check = Draw(seed, name).call(**limits.sizes(), **{role: value}), _quiet("changed its input")
        yield Case(name=name, law=0, level=0, says=says, call=call, check=check, optional=True)


def _runs(case: Case, judge: Judge) -> Result:
    answer = judge.ask(case.call)
    if answer.status != "ok":
        return unanswered(case, case.call, answer)
    known = answer.out is not None and bool(np.isfinite(answer.out).all())
    words = "" if known else "the output of ordinary numbers contains NaN or infinities"
    return Result(case=case, status="pass" if known else "fail", words=words, call=case.call, answer=answer)


def _dtype(case: Case, judge: Judge) -> Result:
    answer = judge.ask(case.call)
    if answer.status != "ok":
        return unanswered(case, case.call, answer)
    given = FLOATS[case.call.dtype.name]
    found = FLOATS.get(answer.dtype)
    right = found is not None and found.digits >= given.digits
    wider = right and answer.dtype != given.name
    words = f"the output is {answer.dtype or 'of an unknown dtype'} for {given.name} inputs"
    return Result(
        case=case,
        status="pass" if right else "fail",
        words=words if wider or not right else "",
        call=case.call,
        answer=answer,
    )


def _quiet(event: str):
    """A check that no side effect whose words contain `event` was seen; "" for those that no other case names."""

    def check(case: Case, judge: Judge) -> Result:
        judge.ask(case.call)  # a function that compiles for a new shape writes caches and starts processes, once
        answer = judge.ask(case.call)
        if answer.status != "ok":
            return unanswered(case, case.call, answer)
        seen = [each for each in answer.events if (event in each if event else _is_lasting(each))]
        return Result(
            case=case, status="fail" if seen else "pass", words="; ".join(seen), call=case.call, answer=answer
        )

    return check


def _is_lasting(event: str) -> bool:
    """Whether a side effect is one that other cases do not judge, and more than a temporary file."""
    return "changed its input" not in event and tempfile.gettempdir() not in event


def _twice(case: Case, judge: Judge) -> Result:
    first, second = (judge.ask(replace(case.call)) for _ in range(2))
    for answer in (first, second):
        if answer.status != "ok":
            return unanswered(case, case.call, answer)
    same = _equal(first, second)
    words = "" if same else "two calls with equal arguments returned different numbers"
    return Result(case=case, status="pass" if same else "fail", words=words, call=case.call, answer=second)


def _equal(first: Answer, second: Answer) -> bool:
    return all(
        (one is None and other is None) or (one is not None and other is not None and np.array_equal(one, other, True))
        for one, other in ((first.out, second.out), (first.lse, second.lse), (first.weights, second.weights))
    )
