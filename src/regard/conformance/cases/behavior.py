"""Levels 0, 4 and 5: runs, isolation, scale. What a function does besides its numbers, and numbers of several calls."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...common.dtypes import FLOATS
from ...laws.bound import compare
from ...laws.call import Call
from ...laws.expected import expected
from ..conventions.layouts import resized
from ..counterexample import cut, sharing
from ..judge import Judge, answered
from .calls import leaking_gradients
from .case import Case, Draw, Limits, Maker, Result


def basics(limits: Limits, seed: int) -> Iterator[Case]:
    """Level 0: the function returns what it declares, changes nothing else, and gives the same result twice."""
    maker = Maker(limits, seed, 0)
    says = "a call returns numbers, in the shape of the queries and the depth of the values"
    yield maker.case(0, says, "runs", check=_runs)
    says = "a call with as many rows as keys returns numbers"
    yield maker.case(0, says, "square", {"Q": 6, "K": 6}, check=_runs)
    yield maker.case(0, "the output has the dtype of the inputs, or a wider one", "dtype", check=_dtype)
    yield maker.case(0, "the inputs are not changed", "inputs", check=_quiet("changed its input"))
    yield from _inputs(maker)
    says = "nothing outside of the call is changed: random state, files, processes"
    yield maker.case(0, says, "state", check=_quiet(""))
    yield maker.case(0, "the same call gives the same bits twice", "twice", check=_twice)


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
        yield maker.case(0, says, f"inputs-{role}", check=check, **{role: array})
    numbers: dict[str, Any] = {"scale": 0.7, "softcap": 2.0, "causal": True, "window": maker.limits.window(2)}
    for role, value in numbers.items():
        says = f"the inputs are not changed in a call with {role}"
        yield maker.case(0, says, f"inputs-{role}", check=check, optional=True, **{role: value})


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
        seen = [each for each in answer.events if event and event in each]
        if not event:  # those that other cases do not judge, and more than temporary files
            ours = ("changed its input", tempfile.gettempdir())
            seen = [each for each in answer.events if not any(words in each for words in ours)]
        return answered(case, answer, not seen, "; ".join(seen))

    return check


def _twice(case: Case, judge: Judge) -> Result:
    first, second = judge.answer(case), judge.answer(case)
    same = all(_equal(getattr(first, name), getattr(second, name)) for name in ("out", "lse", "weights"))
    return answered(case, second, same, "" if same else "two calls with equal arguments returned different numbers")


def _equal(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other, True)


Place = tuple[slice | np.ndarray, ...]  # where the results of a part are in those of the whole


def isolation(limits: Limits, seed: int) -> Iterator[Case]:
    """Level 4: what is masked cannot leak, and a row depends on nothing but itself; to rounding, or in every bit."""
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
                yield maker.case(6, says, name, draw=draw, **arrays, **fields)


def _alone(maker: Maker) -> Iterator[Case]:
    limits = maker.limits
    case = partial(maker.case, 11, "a row depends on nothing but its own query and the keys that it attends to")
    last = slice(-1, None)
    parts = [("row", "Q", slice(2, 3)), ("chunk-of-rows", "Q", slice(1, 4)), ("head", "G", last)]
    if limits.batch:
        parts.append(("batch-entry", "B", last))
    for name, axis, part in parts:
        check = partial(_part, axis, part)
        yield case(f"{name}-alone", {"Q": 6, "K": 6, "D": 8}, check=check)
        yield case(f"{name}-alone-of-40", {"Q": 40, "K": 70, "D": 32}, check=check)
    if limits.takes("causal"):
        for Q in (6, 40):
            sizes = {"Q": Q, "K": Q, "D": 16}
            words = "the last row of a causal call is the same without the rows before it"
            if limits.adapter.causal == "bottom-right" and limits.rectangular:
                yield maker.case(11, words, f"decode-{Q}", sizes, check=partial(_part, "Q", last), causal=True)
            words = "the first rows of a causal call do not depend on later keys"
            draw = maker.draw(f"decode-{Q}", sizes)
            half = partial(_part, "QK", slice(0, draw.sizes["K"] // 2))
            yield maker.case(11, words, f"prefix-{Q}", draw=draw, check=half, causal=True)
    square = {"Q": 6, "K": 6}
    yield case("neighbours", square, check=_neighbours)
    if limits.takes("mask"):
        words = "masked keys may be there or not"
        yield maker.case(11, words, "masked-keys-cut-off", square, check=partial(_cut_off, limits))


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
    right, ratio, at = compare(part, whole, 2 * expected(calls[0], judge.adapter).bounds.out[places[0]])
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


MANY = 8192  # rows of the case that measures memory: its matrix of weights has 256 MiB in float32
RATE = 0.3


def scale(limits: Limits, seed: int) -> Iterator[Case]:
    """Level 5: memory that grows with the rows, many rows and keys, every argument at sizes that take other paths,
    and dropout.
    """
    maker = Maker(limits, seed, 5)
    one = {"B": 1, "H": 1, "D": 16}
    says = "memory grows with the rows, not with their square"
    yield maker.case(0, says, "memory", one | {"Q": MANY, "K": MANY}, check=_memory)
    if limits.rectangular:
        yield maker.case(1, "many rows are as accurate as few", "rows-100000", one | {"Q": 100_000, "K": 100})
        yield maker.case(10, "many keys are as accurate as few", "keys-1000000", one | {"Q": 2, "K": 1_000_000})
    says = "an argument has the same meaning at every size"
    for Q in (257, 1100):
        sizes = {"B": 1, "H": 2, "Q": Q, "K": Q, "D": 32}
        for role, fields in (
            ("plain", {}),
            ("causal", {"causal": True}),
            ("window", {"window": limits.window(100)}),
            ("scale", {"scale": 0.05}),
            ("softcap", {"softcap": 3.0}),
            ("sinks", {"sinks": np.ones(limits.sizes(**sizes)["H"], np.float32)}),
        ):
            yield maker.case(13, says, f"{role}-of-{Q}-rows", sizes, **fields)
        if limits.takes("mask") and "QK" in limits.adapter.mask_shapes:
            yield maker.case(13, says, f"mask-of-{Q}-rows", sizes, mask=lambda draw: draw.mask("QK"))
    if limits.takes("dropout"):
        yield _dropout(maker)


def _memory(case: Case, judge: Judge) -> Result:
    answer = judge.answer(case)
    matrix = case.call.dims["Q"] * case.call.dims["K"] * case.call.dtype.itemsize
    words = f"memory grew by {answer.peak / 2**20:.0f} MiB; the matrix of weights has {matrix / 2**20:.0f} MiB"
    return answered(case, answer, answer.peak < matrix // 2, words)


def _dropout(maker: Maker) -> Case:
    """One-hot values, so that the output is the matrix of weights; the gradient of the output is the unit matrix, so
    that the gradient of the values is that matrix transposed.
    """
    n = 64
    draw = maker.draw("dropout", {"Q": n, "K": n, "D": n})
    B, H = draw.sizes["B"], draw.sizes["H"]
    draw.sizes["G"] = H
    arrays = draw.arrays()
    arrays["v"] = np.broadcast_to(np.eye(n, dtype=arrays["v"].dtype), (B, H, n, n)).copy()
    arrays["q"] = np.zeros_like(arrays["q"])
    dout = None if maker.limits.adapter.gradients == "none" else arrays["v"]
    says = "dropout turns a share of the weights into 0 and divides the others by 1 − rate, forward and backward alike"
    return maker.case(9, says, "dropout", draw=draw, check=_drops, **arrays, dropout=RATE, seed=7, dout=dout)


def _drops(case: Case, judge: Judge) -> Result:
    answer = judge.answer(case)
    assert answer.out is not None
    n = case.call.dims["K"]
    kept = answer.out != 0
    share = 1 - kept.mean()
    spread = 5 * np.sqrt(RATE * (1 - RATE) / kept.size)
    words = ""
    if abs(share - RATE) > spread:
        words = f"{share:.3f} of the weights were dropped instead of {RATE}"
    elif not np.allclose(answer.out[kept], 1 / n / (1 - RATE), rtol=0.02):
        words = f"the other weights are not divided by 1 − {RATE}"
    elif "v" in answer.gradients:
        back = answer.gradients["v"].swapaxes(-1, -2)
        if back.shape == answer.out.shape and not np.array_equal(back != 0, kept):
            words = "the backward pass drops other weights than the forward pass"
    return answered(case, answer, not words, words)
