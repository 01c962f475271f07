"""Axes: how an array that does not broadcast to (B, H, Q, K) becomes one that does, as code for an error message."""

from __future__ import annotations

import numpy as np

from ..added_masks import how_to_pass


def how_to_fit(array: np.ndarray, name: str, shape: tuple[int, int, int, int]) -> str:
    """The fix for a mask or a score of the wrong axes: what people pass most often has a name or an index.

    >>> how_to_fit(np.ones((2, 7), bool), "mask", (2, 4, 5, 7))
    'pass mask=rg.padding(mask)'
    >>> how_to_fit(np.ones((2, 5, 7)), "score", (2, 4, 5, 7))
    'pass score=score[:, None]'
    """
    code = _reshaped(array.shape, name, shape)
    condition, integer = array.dtype.kind == "b", array.dtype.kind in "iu"
    if name == "mask" and array.shape == (shape[0],) and integer:
        return "pass mask=rg.lengths(mask) if it is the number of real keys of each batch entry"
    if name == "mask" and array.shape == (shape[0], shape[3]):
        if condition or (integer and ((array == 0) | (array == 1)).all()):
            return "pass mask=rg.padding(mask)" + ("" if condition else ', if 1 means "may attend"')
        code = "mask[:, None, None]"
    if code is None:
        return f"index it yourself: table(array)[query, key] in a {name} expression"
    if name == "mask" and not condition:
        return how_to_pass(array, code, added="score=", condition="mask=")
    return f"pass {name}={code}"


def _reshaped(given: tuple[int, ...], name: str, shape: tuple[int, int, int, int]) -> str | None:
    """The array with its axes in place, as code; None where they are ambiguous."""
    B, H, Q, K = shape
    places = {
        (B, K): "[:, None, None]",
        (B, Q, K): "[:, None]",
        (B, 1, K): "[:, None]",
        (B * H, Q, K): f".reshape({B}, {H}, {Q}, {K})",
        (B, Q): "[:, None, :, None]",
        (H, K): "[:, None]",
        (H, Q): "[..., None]",
        (Q,): "[:, None]",
    }
    if given in places:
        return name + places[given]
    turned = (*given[:-2], *given[:-3:-1])
    fits = len(turned) <= 4 and all(a in (1, b) for a, b in zip(turned[::-1], shape[::-1], strict=False))
    if given[-2:] == (K, Q) and (fits or turned in places):
        return f"{name}.swapaxes(-1, -2){'' if fits else places[turned]}"
    return None
