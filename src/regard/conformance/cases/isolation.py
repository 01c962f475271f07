"""Level 4, isolation: what is masked cannot leak, and a row depends on nothing but itself; to rounding, or in every
bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...laws.bound import compare
from ...laws.call import Call
from ..conventions.layouts import resized
from ..judge import Judge
from ..shrink import cut, sharing
from .case import Case, Limits, Maker, Result
from .gradients import leaking_gradients

Place = tuple[slice | np.ndarray, ...]  # where the results of a part are in those of the whole


def isolation(limits: Limits, seed: int) -> Iterator[Case]:
    """The cases of level 4."""
    maker = Maker(limits, seed, 4)
    yield from _leaks(maker)
    yield from leaking_gradients(limits, seed)
    yield from _alone(maker)


def _leaks(maker: Maker) -> Iterator[Case]:
    says = "keys and values that a row may not attend to have no effect on it, not even NaN or infinities"
    for bad in (np.nan, np.inf):
        for where in ("k", "v", "kv"):
            for kind in ("mask", "causal", "lengths"):
                name = f"{'nan' if np.isnan(bad) else 'infinity'}-in-{where}-behind-{kind}"
                draw = maker.draw(name, {"Q": 6, "K": 6} if kind == "causal" else None)
                arrays, half = draw.arrays(), draw.sizes["K"] // 2
                for axis in where:
                    arrays[axis][:, :, half:] = bad
                fields: dict[str, Any] = {"causal": True}
                if kind == "mask":
                    mask = draw.mask()
                    mask[..., half:], mask[..., 0] = False, True
                    fields = {"mask": mask}
                elif kind == "lengths":
                    fields = {"lengths": np.full(draw.sizes["B"], half)}
                yield maker.case(name, 6, says, draw=draw, **arrays, **fields)


def _alone(maker: Maker) -> Iterator[Case]:
    limits = maker.limits
    says = "a row depends on nothing but its own query and the keys that it attends to"
    last = slice(-1, None)
    parts = [("row", "Q", slice(2, 3)), ("chunk-of-rows", "Q", slice(1, 4)), ("head", "G", last)]
    if limits.batch:
        parts.append(("batch-entry", "B", last))
    for name, axis, part in parts:
        check = partial(_part, axis, part)
        yield maker.case(f"{name}-alone", 11, says, {"Q": 6, "K": 6, "D": 8}, check=check)
        yield maker.case(f"{name}-alone-of-40", 11, says, {"Q": 40, "K": 70, "D": 32}, check=check)
    if limits.takes("causal"):
        for Q in (6, 40):
            sizes = {"Q": Q, "K": Q, "D": 16}
            words = "the last row of a causal call is the same without the rows before it"
            if limits.adapter.causal == "bottom-right" and limits.rectangular:
                yield maker.case(f"decode-{Q}", 11, words, sizes, check=partial(_part, "Q", last), causal=True)
            words = "the first rows of a causal call do not depend on later keys"
            draw = maker.draw(f"decode-{Q}", sizes)
            half = partial(_part, "QK", slice(0, draw.sizes["K"] // 2))
            yield maker.case(f"prefix-{Q}", 11, words, draw=draw, check=half, causal=True)
    square = {"Q": 6, "K": 6}
    yield maker.case("neighbours", 11, says, square, check=_neighbours)
    if limits.takes("mask"):
        words = "masked keys may be there or not"
        yield maker.case("masked-keys-cut-off", 11, words, square, check=partial(_cut_off, limits))


def _part(axes: str, part: slice, case: Case, judge: Judge) -> Result:
    """Whether a part of a call along some axes gives what it gives in the whole."""
    call = case.call
    for axis in axes:
        call = cut(call, axis, part)
    place = (slice(None),) * "BGQ".index(axes[0]) + (sharing(case.call, part) if axes == "G" else part,)
    return _compared(replace(case, optional=True), judge, (call, case.call), ((), place))


def _neighbours(case: Case, judge: Judge) -> Result:
    """Whether other queries beside it change a row."""
    q = case.call.q.copy()
    q[:, :, 1:] = -3 * q[:, :, 1:]
    place = (slice(None), slice(None), slice(0, 1))
    return _compared(case, judge, (case.call.changed(q=q), case.call), (place, place))


def _cut_off(limits: Limits, case: Case, judge: Judge) -> Result:
    """Whether masked keys at the end give what their absence gives."""
    call, half = case.call, case.call.dims["K"] // 2
    mask = np.ones(resized((*limits.adapter.mask_shapes, "BHQK")[0], call.dims), bool)
    mask[..., half:] = False
    calls = cut(call, "K", slice(0, half)), call.changed(mask=mask)
    return _compared(replace(case, optional=True), judge, calls, ((), ()))


def _compared(case: Case, judge: Judge, calls: tuple[Call, Call], places: tuple[Place, Place]) -> Result:
    """A part and the whole at the same rows: equal in every bit, or with a difference that rounding of both explains.
    A case that is optional may refuse one of them.
    """
    together = judge.answer(case, calls[1])
    alone = judge.answer(case, calls[0])
    assert alone.out is not None and together.out is not None
    part, whole = alone.out[places[0]], together.out[places[1]]
    right, ratio, at = compare(part, whole, 2 * judge.expected(calls[0]).bounds.out[places[0]])
    words = "" if right or not part.size else f"alone it is {part[at]:.6g}, and in company {whole[at]:.6g}"
    return Result(
        case=case,
        status="pass" if right else "fail",
        ratio=ratio,
        words=words,
        call=calls[0],
        answer=alone,
        grade="bits" if np.array_equal(part, whole, equal_nan=True) else "rounding",
        also=((calls[0], alone), (calls[1], together)),
    )
