"""Level 3, gradients: of queries, keys, values, biases and sinks, through the output and through lse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...laws.call import shape_of
from .case import Case, Draw, Limits, Maker

SMALL = {"B": 1, "H": 2, "Q": 3, "K": 4, "D": 4}  # for finite differences


def gradients(limits: Limits, seed: int) -> Iterator[Case]:
    """The cases of level 3."""
    if limits.adapter.gradients == "none":
        return
    maker = Maker(limits, seed, 3)
    yield _case(maker, "plain", 1)
    yield _case(maker, "square", 1, {"Q": 6, "K": 6})
    yield _case(maker, "one-row", 1, {"Q": 1, "K": 1})
    yield _case(maker, "scale", 1, scale=0.7)
    yield _case(maker, "other-value-depth", 1, {"D": 8, "E": 3}, optional=True)
    yield _case(maker, "large-scores", 1, {"size": 12.0})
    yield _case(maker, "causal", 3, {"Q": 6, "K": 6}, causal=True)
    if limits.rectangular:
        yield _case(maker, "causal-fewer-rows", 3, {"Q": 3, "K": 7}, causal=True)
        if limits.adapter.empty_row == "zero" and limits.adapter.causal == "bottom-right":
            yield _case(maker, "causal-more-rows", 5, {"Q": 6, "K": 4}, causal=True)
    if limits.grouped and limits.heads is None:
        yield _case(maker, "groups-of-two", 1, {"H": 4, "G": 2})
        yield _case(maker, "one-key-head", 1, {"H": 4, "G": 1})
    yield _case(maker, "window", 4, {"Q": 9, "K": 9}, window=limits.window(2))
    yield _case(maker, "softcap", 1, softcap=2.0)
    yield _case(maker, "lengths", 2, lengths=np.array([7, 3] if limits.batch else [3]))
    H = limits.sizes()["H"]
    yield _case(maker, "sinks", 8, sinks=np.linspace(-1, 2, H).astype(np.float32))
    for name, law in (("mask", 2), ("bias", 1), ("empty-row", 5)):
        if name == "empty-row" and limits.adapter.empty_row != "zero":
            continue  # the other conventions have gradients of their own
        draw = maker.draw(f"gradient-{name}", SMALL)
        if name == "bias":
            yield _case(maker, name, law, draw=draw, bias=draw.bias())
        else:
            mask = draw.mask()
            if name == "empty-row":
                mask[:, :, -1] = False
            yield _case(maker, name, law, draw=draw, mask=mask)
    for dtype in limits.adapter.dtypes:
        if dtype != limits.dtype:
            yield _case(maker, f"plain-{dtype}", 10, {"dtype": dtype})
            yield _case(maker, f"causal-{dtype}", 10, {"dtype": dtype, "Q": 6, "K": 6}, causal=True)
    if limits.returns_lse:
        yield _case(maker, "lse", 7, through_lse=True, optional=True)
        yield _case(maker, "lse-causal", 7, {"Q": 6, "K": 6}, through_lse=True, causal=True, optional=True)


def leaking_gradients(limits: Limits, seed: int) -> Iterator[Case]:
    """Gradients of a call with NaN in masked keys and values; a case of level 4."""
    if limits.adapter.gradients == "none":
        return
    maker, name = Maker(limits, seed, 4), "nan-behind-mask"
    draw = maker.draw(f"gradient-{name}", SMALL)
    mask = draw.mask()
    mask[..., -2:], mask[..., 0] = False, True
    arrays = draw.arrays()
    for axis in "kv":
        arrays[axis][:, :, -2:] = np.nan
    yield _case(maker, name, 6, draw=draw, arrays=arrays, mask=mask)


def _case(
    maker: Maker,
    name: str,
    law: int,
    sizes: Mapping[str, Any] | None = None,
    *,
    draw: Draw | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
    through_lse: bool = False,
    **fields: Any,
) -> Case:
    """A case with gradients of the results."""
    name = f"gradient-{name}"
    draw = draw or maker.draw(name, sizes)
    arrays = arrays or draw.arrays()
    dout, dlse = (draw.rng.standard_normal(shape_of(what, draw.sizes)).astype(np.float32) for what in ("out", "lse"))
    says = "gradients are those of Σ out · dout" + (" + Σ lse · dlse" if through_lse else "")
    return maker.case(
        name,
        law,
        says,
        draw=draw,
        **arrays,
        **fields,
        dout=dout.astype(arrays["q"].dtype),
        dlse=dlse if through_lse else None,
    )
