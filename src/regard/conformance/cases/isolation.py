"""Level 4, isolation: what is masked cannot leak, and a row depends on nothing but itself; to rounding, or in every
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...laws.bound import compare
from ...laws.call import Answer, Call
from ..judge import Judge, unanswered
from .case import Case, Draw, Limits, Result, resized
from .gradients import leaking_gradients

Place = tuple[slice, ...]
Made = tuple[tuple[Call, Answer], tuple[Call, Answer]]  # the part and the whole
Cut = Callable[[Call], tuple[Call, Place]]  # a part of a call, and where its results are in the whole


def isolation(limits: Limits, seed: int) -> Iterator[Case]:
    """The cases of level 4."""
    yield from _leaks(limits, seed)
    yield from leaking_gradients(limits, seed)
    yield from _alone(limits, seed)


def _leaks(limits: Limits, seed: int) -> Iterator[Case]:
    says = "keys and values that a row may not attend to have no effect on it, not even NaN or infinities"
    for bad in (np.nan, np.inf):
        for where in ("k", "v", "kv"):
            for kind in ("mask", "causal", "lengths"):
                name = f"{'nan' if np.isnan(bad) else 'infinity'}-in-{where}-behind-{kind}"
                draw = Draw(seed, name)
                sizes = limits.sizes(Q=6, K=6) if kind == "causal" else limits.sizes()
                call = draw.call(**sizes)
                B, _, _, K = (sizes[axis] for axis in "BHQK")
                arrays = {axis: getattr(call, axis).copy() for axis in where}
                for array in arrays.values():
                    array[:, :, K // 2 :] = bad
                if kind == "mask":
                    shapes = limits.adapter.mask_shapes
                    shape = next((each for each in shapes if "Q" in each), (*shapes, "BHQK")[0])
                    mask = draw.mask(*resized(shape, *(sizes[axis] for axis in "BHQK")))
                    mask[..., K // 2 :], mask[..., 0] = False, True
                    given: dict[str, Any] = {"mask": mask}
                elif kind == "causal":
                    given = {"causal": True}
                else:
                    given = {"lengths": np.full(B, K // 2)}
                yield Case(name=name, law=6, level=4, says=says, call=call.changed(**arrays, **given))


def _alone(limits: Limits, seed: int) -> Iterator[Case]:
    says = "a row depends on nothing but its own query and the keys that it attends to"
    cuts: list[tuple[str, Cut, dict]] = [
        ("row", _rows(2, 3), {}),
        ("chunk-of-rows", _rows(1, 4), {}),
        ("head", _heads, {}),
    ]
    if limits.batch:
        cuts.append(("batch-entry", _entry, {}))
    for name, cut, fields in cuts:
        for Q, K, D in ((6, 6, 8), (40, 70, 32)):
            label = f"{name}-alone" if Q == 6 else f"{name}-alone-of-{Q}"
            call = Draw(seed, label).call(**limits.sizes(Q=Q, K=K, D=D), **fields)
            yield Case(name=label, law=11, level=4, says=says, call=call, check=partial(_part, cut))
    if limits.takes("causal"):
        for Q in (6, 40):
            call = Draw(seed, f"decode-{Q}").call(**limits.sizes(Q=Q, K=Q, D=16), causal=True)
            words = "the last row of a causal call is the same without the rows before it"
            if limits.adapter.causal == "bottom-right" and limits.rectangular:
                yield Case(
                    name=f"decode-{Q}", law=11, level=4, says=words, call=call, check=partial(_part, _rows(-1, None))
                )
            words = "the first rows of a causal call do not depend on later keys"
            yield Case(name=f"prefix-{Q}", law=11, level=4, says=words, call=call, check=partial(_part, _prefix))
    call = Draw(seed, "neighbours").call(**limits.sizes(Q=6, K=6))
    yield Case(name="neighbours", law=11, level=4, says=says, call=call, check=_neighbours)
    if limits.takes("mask"):
        words = "masked keys may be there or not"
        draw, sizes = Draw(seed, "masked-keys-cut-off"), limits.sizes(Q=6, K=6)
        call = draw.call(**sizes)
        yield Case(name="masked-keys-cut-off", law=11, level=4, says=words, call=call, check=partial(_cut_off, limits))


def _rows(first: int, last: int | None) -> Cut:
    def cut(call: Call) -> tuple[Call, Place]:
        return call.changed(q=call.q[:, :, first:last]), (slice(None), slice(None), slice(first, last))

    return cut


def _prefix(call: Call) -> tuple[Call, Place]:
    half = call.q.shape[2] // 2
    parts = {name: getattr(call, name)[:, :, :half] for name in "qkv"}
    return call.changed(**parts), (slice(None), slice(None), slice(0, half))


def _heads(call: Call) -> tuple[Call, Place]:
    H, G = call.q.shape[1], call.k.shape[1]
    shared = H // max(G, 1)
    return (
        call.changed(q=call.q[:, -shared:], k=call.k[:, -1:], v=call.v[:, -1:]),
        (slice(None), slice(H - shared, H)),
    )


def _entry(call: Call) -> tuple[Call, Place]:
    parts = {name: getattr(call, name)[-1:] for name in "qkv"}
    B = call.q.shape[0]
    return call.changed(**parts), (slice(B - 1, B),)


def _part(cut: Cut, case: Case, judge: Judge) -> Result:
    """Whether a part of a call gives what it gives in the whole."""
    call, place = cut(case.call)
    whole, part = judge.ask(case.call), judge.ask(call)
    for made, answer in ((case.call, whole), (call, part)):
        if answer.status != "ok":
            return unanswered(replace(case, optional=True), made, answer)
    return _compared(case, judge, ((call, part), (case.call, whole)), ((), place))


def _neighbours(case: Case, judge: Judge) -> Result:
    """Whether other queries beside it change a row."""
    q = case.call.q.copy()
    q[:, :, 1:] = -3 * q[:, :, 1:]
    other = case.call.changed(q=q)
    first, second = judge.ask(case.call), judge.ask(other)
    for made, answer in ((case.call, first), (other, second)):
        if answer.status != "ok":
            return unanswered(case, made, answer)
    place = (slice(None), slice(None), slice(0, 1))
    return _compared(case, judge, ((other, second), (case.call, first)), (place, place))


def _cut_off(limits: Limits, case: Case, judge: Judge) -> Result:
    """Whether masked keys at the end give what their absence gives."""
    B, H, Q, K = (case.call.dims[axis] for axis in "BHQK")
    shapes = limits.adapter.mask_shapes
    mask = np.ones(resized((*shapes, "BHQK")[0], B, H, Q, K), bool)
    mask[..., K // 2 :] = False
    masked = case.call.changed(mask=mask)
    short = case.call.changed(k=case.call.k[:, :, : K // 2], v=case.call.v[:, :, : K // 2])
    first, second = judge.ask(masked), judge.ask(short)
    for made, answer in ((masked, first), (short, second)):
        if answer.status != "ok":
            return unanswered(replace(case, optional=True), made, answer)
    return _compared(case, judge, ((short, second), (masked, first)), ((), ()))


def _compared(case: Case, judge: Judge, made: Made, places: tuple[Place, Place]) -> Result:
    """Two answers for the same rows: equal in every bit, or with a difference that rounding of both explains."""
    (call, alone), (_, together) = made
    assert alone.out is not None and together.out is not None
    part, whole = alone.out[places[0]], together.out[places[1]]
    right, ratio, at = compare(part, whole, 2 * judge.expected(call).bounds.out[places[0]])
    words = "" if right or not part.size else f"alone it is {part[at]:.6g}, and in company {whole[at]:.6g}"
    return Result(
        case=case,
        status="pass" if right else "fail",
        ratio=ratio,
        words=words,
        call=call,
        answer=alone,
        grade="bits" if np.array_equal(part, whole, equal_nan=True) else "rounding",
        also=made,
    )
