"""Level 0, runs: the function returns what it declares, changes nothing else, and gives the same result twice."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...common.dtypes import FLOATS
from ..judge import Judge, answered
from .case import Case, Draw, Limits, Maker, Result


def basics(limits: Limits, seed: int) -> Iterator[Case]:
    """The cases of level 0."""
    maker = Maker(limits, seed, 0)
    says = "a call returns numbers, in the shape of the queries and the depth of the values"
    yield maker.case("runs", 0, says, check=_runs)
    says = "a call with as many rows as keys returns numbers"
    yield maker.case("square", 0, says, {"Q": 6, "K": 6}, check=_runs)
    yield maker.case("dtype", 0, "the output has the dtype of the inputs, or a wider one", check=_dtype)
    yield maker.case("inputs", 0, "the inputs are not changed", check=_quiet("changed its input"))
    yield from _inputs(maker)
    says = "nothing outside of the call is changed: random state, files, processes, network"
    yield maker.case("state", 0, says, check=_quiet(""))
    yield maker.case("twice", 0, "the same call gives the same bits twice", check=_twice)


def _inputs(maker: Maker) -> Iterator[Case]:
    """The other arrays of a call are not changed either."""
    check = _quiet("changed its input")
    arrays: dict[str, Any] = {
        "mask": Draw.mask,
        "bias": Draw.bias,
        "sinks": Draw.sinks,
        "lengths": lambda draw: np.full(draw.sizes["B"], 3),
    }
    for role, array in arrays.items():
        says = f"the array passed as {role} is not changed"
        yield maker.case(f"inputs-{role}", 0, says, check=check, **{role: array})
    numbers: dict[str, Any] = {"scale": 0.7, "softcap": 2.0, "causal": True, "window": maker.limits.window(2)}
    for role, value in numbers.items():
        says = f"the inputs are not changed in a call with {role}"
        yield maker.case(f"inputs-{role}", 0, says, check=check, optional=True, **{role: value})


def _runs(case: Case, judge: Judge) -> Result:
    answer = judge.answer(case)
    known = answer.out is not None and bool(np.isfinite(answer.out).all())
    return answered(case, answer, known, "" if known else "the output of ordinary numbers contains NaN or infinities")


def _dtype(case: Case, judge: Judge) -> Result:
    answer = judge.answer(case)
    dtype = case.call.dtype.name
    kind = FLOATS.get(answer.dtype)
    right = kind is not None and kind.digits >= FLOATS[dtype].digits
    words = f"the output is {answer.dtype or 'of an unknown dtype'} for {dtype} inputs"
    return answered(case, answer, right, words if answer.dtype != dtype else "")


def _quiet(event: str):
    """A check that no side effect whose words contain `event` was seen; "" for those that no other case names."""

    def check(case: Case, judge: Judge) -> Result:
        judge.ask(case.call)  # a function that compiles for a new shape writes caches and starts processes, once
        answer = judge.answer(case)
        seen = [each for each in answer.events if (event in each if event else _is_lasting(each))]
        return answered(case, answer, not seen, "; ".join(seen))

    return check


def _is_lasting(event: str) -> bool:
    """Whether a side effect is one that other cases do not judge, and more than a temporary file."""
    return "changed its input" not in event and tempfile.gettempdir() not in event


def _twice(case: Case, judge: Judge) -> Result:
    first, second = judge.answer(case), judge.answer(case)
    same = all(_equal(getattr(first, name), getattr(second, name)) for name in ("out", "lse", "weights"))
    return answered(case, second, same, "" if same else "two calls with equal arguments returned different numbers")


def _equal(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other, True)
