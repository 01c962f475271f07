"""Level 3, gradients: of queries, keys, values, biases and sinks, through the output and through lse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..judge import Judge, unanswered
from .case import Case, Draw, Limits, Result, resized

SAYS = "gradients are those of Σ out · dout"


def gradients(limits: Limits, seed: int) -> Iterator[Case]:
    """The cases of level 3."""
    if limits.adapter.gradients == "none":
        return
    yield _case(limits, seed, "plain", 1)
    yield _case(limits, seed, "square", 1, {"Q": 6, "K": 6})
    yield _case(limits, seed, "one-row", 1, {"Q": 1, "K": 1})
    yield _case(limits, seed, "scale", 1, scale=0.7)
    yield _case(limits, seed, "other-value-depth", 1, {"D": 8, "E": 3}, optional=True)
    yield _case(limits, seed, "large-scores", 1, {"size": 12.0})
    yield _case(limits, seed, "causal", 3, {"Q": 6, "K": 6}, causal=True)
    if limits.rectangular:
        yield _case(limits, seed, "causal-fewer-rows", 3, {"Q": 3, "K": 7}, causal=True)
        if limits.adapter.empty_row == "zero" and limits.adapter.causal == "bottom-right":
            yield _case(limits, seed, "causal-more-rows", 5, {"Q": 6, "K": 4}, causal=True)
    if limits.grouped and limits.heads is None:
        yield _case(limits, seed, "groups-of-two", 1, {"H": 4, "G": 2})
        yield _case(limits, seed, "one-key-head", 1, {"H": 4, "G": 1})
    after = 2 if limits.adapter.window == "both-sides" else 0
    yield _case(limits, seed, "window", 4, {"Q": 9, "K": 9}, window=(2, after))
    yield _case(limits, seed, "softcap", 1, softcap=2.0)
    yield _case(limits, seed, "lengths", 2, lengths=np.array([7, 3] if limits.batch else [3]))
    H = limits.sizes()["H"]
    yield _case(limits, seed, "sinks", 8, sinks=np.linspace(-1, 2, H).astype(np.float32))
    zero = ("empty-row",) if limits.adapter.empty_row == "zero" else ()  # the others have gradients of their own
    for name in ("mask", "bias", *zero):
        draw, sizes = Draw(seed, f"gradient-{name}"), limits.sizes(B=1, H=2, Q=3, K=4, D=4)  # for finite differences
        shapes = limits.adapter.mask_shapes
        dims = resized(
            next((each for each in shapes if "Q" in each), (*shapes, "BHQK")[0]), *(sizes[a] for a in "BHQK")
        )
        call_fields: dict[str, Any] = {"mask": draw.mask(*dims)} if name != "bias" else {"bias": draw.bias(*dims)}
        if name == "empty-row":
            call_fields["mask"][:, :, -1] = False
        arrays = draw.arrays(**sizes)
        law = {"empty-row": 5, "mask": 2, "bias": 1}[name]
        yield _finished(limits, draw, name, law, sizes, arrays | call_fields)
    for dtype in limits.adapter.dtypes:
        if dtype != limits.dtype:
            yield _case(limits, seed, f"plain-{dtype}", 10, {"dtype": dtype})
            yield _case(limits, seed, f"causal-{dtype}", 10, {"dtype": dtype, "Q": 6, "K": 6}, causal=True)
    if limits.takes("return_lse") or "lse" in str(limits.adapter.returns):
        yield _case(limits, seed, "lse", 7, dlse=True, optional=True)
        yield _case(limits, seed, "lse-causal", 7, {"Q": 6, "K": 6}, dlse=True, causal=True, optional=True)


def leaking_gradients(limits: Limits, seed: int) -> Iterator[Case]:
    """Gradients of a call with NaN in masked keys and values; a case of level 4."""
    if limits.adapter.gradients == "none":
        return
    name = "nan-behind-mask"
    draw, sizes = Draw(seed, f"gradient-{name}"), limits.sizes(B=1, H=2, Q=3, K=4, D=4)
    shapes = limits.adapter.mask_shapes
    mask = draw.mask(
        *resized(next((each for each in shapes if "Q" in each), (*shapes, "BHQK")[0]), *(sizes[a] for a in "BHQK"))
    )
    mask[..., -2:], mask[..., 0] = False, True
    arrays = draw.arrays(**sizes)
    for axis in "kv":
        arrays[axis][:, :, -2:] = np.nan
    yield replace(_finished(limits, draw, name, 6, sizes, arrays | {"mask": mask}), level=4)


def _case(limits: Limits, seed: int, name: str, law: int, sizes=None, optional=False, **fields) -> Case:
    draw, known = Draw(seed, f"gradient-{name}"), limits.sizes(**(sizes or {}))
    return _finished(limits, draw, name, law, known, draw.arrays(**known) | fields, optional=optional)


def _finished(limits: Limits, draw: Draw, name: str, law: int, sizes: dict, fields: dict, *, optional=False) -> Case:
    """The case, with gradients of the results."""
    B, H, Q, E = (sizes[axis] for axis in "BHQE")
    kind = fields["q"].dtype
    dout = draw.rng.standard_normal((B, H, Q, E)).astype(np.float32).astype(kind)
    dlse = draw.rng.standard_normal((B, H, Q)).astype(np.float32) if fields.pop("dlse", False) else None
    call = draw.call(**sizes, **fields, dout=dout, dlse=dlse)
    says = SAYS if dlse is None else "gradients are those of Σ out · dout + Σ lse · dlse"
    return Case(name=f"gradient-{name}", law=law, level=3, says=says, call=call, optional=optional, check=_agrees)


def _agrees(case: Case, judge: Judge) -> Result:
    answer = judge.ask(case.call)
    if answer.status != "ok":
        return unanswered(case, case.call, answer)
    comparison = judge.compared_gradients(case.call, answer)
    return Result(
        case=case,
        status="pass" if comparison.right else "fail",
        ratio=comparison.ratio,
        words="" if comparison.right else str(comparison),
        call=case.call,
        answer=answer,
        seconds=answer.seconds,
    )
