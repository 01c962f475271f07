"""The matrices of a layer for the step-by-step view: those of one head on request, or the part that a page contains.

    q = W_q x + b_q · k = W_k x + b_k · v = W_v x + b_v · y = W_o c + b_o = Σ_h W_o,h c_h + b_o

c: the outputs of all heads of a row, one after another. A page contains, for the head and row that it shows first and
the strongest key of that row, as many elements as fit, as float32: the model's own numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..runs.call import Call
from ..runs.projections import NAMES, LayerProjections
from .embed import frame

ROOM = 30_000  # bytes of a page for the matrices of one head, before compression
OUTPUTS = 16  # elements of the layer's output in a page


def about(call: Call) -> dict[str, Any]:
    """Which matrices are known, which of them have a bias, and why others are not known if they could be."""
    found = LayerProjections() if call.projections is None else call.projections
    return {
        "known": list(found.known),
        "biased": [name for name, part in found.known.items() if part.b is not None],
        "missing": dict(found.missing),
    }


def matrices(call: Call, head: int) -> dict[str, np.ndarray]:
    """The matrices of a head that are known, with their biases, float32.

    q, k (D, d_model) · v (E, d_model) · o (d_model, E): the columns of this head · *_bias.
    """
    found: dict[str, np.ndarray] = {}
    for name, part in ({} if call.projections is None else call.projections.known).items():
        if name == "o":
            w, b = part.w.reshape(len(part.w), call.shape[0], -1)[:, head], part.b
        else:
            group = _group(call, head, len(part.w))
            w, b = part.w[group], None if part.b is None else part.b[group]
        found |= {name: w} if b is None else {name: w, f"{name}_bias": b}
    return {name: np.asarray(part, np.float32) for name, part in found.items()}


def products(call: Call, head: int, i: int, j: int) -> dict[str, np.ndarray]:
    """What the matrices multiply in row i and for key j, and what they give, float32.

    x (d_model): the input of row i · x_key (d_model): that of key j, if the keys are rows of the same layer · heads
    (H · E): the outputs of all heads · by_head (H, d_model): the product of each head with W_o · whole (d_model): their
    sum with the bias · y (d_model): the same in the model itself.
    """
    found: dict[str, np.ndarray] = {}
    if call.x is not None:
        found["x"] = call.x[i]
        if call.aligned and 0 <= j - call.start < len(call.x):
            found["x_key"] = call.x[j - call.start]
    if call.out is not None:
        heads = np.asarray(call.out[:, i], np.float64)
        found["heads"] = heads.ravel()
        known = call.projections
        if known is not None and known.o is not None and known.y is not None:
            w = np.asarray(known.o.w, np.float64).reshape(len(known.o.w), *heads.shape)
            found["by_head"] = np.einsum("he,mhe->hm", heads, w)
            found["whole"] = found["by_head"].sum(0) + (0 if known.o.b is None else known.o.b)
            found["y"] = known.y[i]
    return {name: np.asarray(part, np.float32) for name, part in found.items()}


def kept(call: Call, start: Mapping[str, int]) -> bytes | None:
    """The frame of a page for the head and row that it shows first; None if nothing is known or nothing fits."""
    head, i = start["head"], start["query"]
    p = call.weights([i], None, [head])[0, 0]
    j = int(np.where(np.isfinite(p), p, -1).argmax())
    whole, made = matrices(call, head), products(call, head, i, j)
    wide = [name for name in ("q", "k", "v") if name in whole and "x" in made]
    if not wide and "o" not in whole:
        return None
    nothing = np.arange(0)
    strongest = nothing
    if call.q is not None and call.k is not None:
        strongest = call.q[head, i] * call.k[_group(call, head, len(call.k)), j]
    elements = {
        "q": _largest(strongest),  # those first that add most to the score of key j
        "k": _largest(strongest),
        "v": _largest(nothing if call.out is None else call.out[head, i]),
        "o": _largest(made.get("y", nothing)),
    }
    room = ROOM - sum(part.nbytes for name, part in made.items() if name != "by_head")
    count = room // (4 * len(made["x"]) * len(wide)) if wide else 0
    if room < 0 or (wide and count < 1):
        return None
    arrays = dict(made)
    for name in [*wide, "o"] if "o" in whole else wide:
        some = elements[name] = np.sort(elements[name][: count if name != "o" else OUTPUTS])
        arrays[name] = whole[name][some]
        if f"{name}_bias" in whole:
            arrays[f"{name}_bias"] = whole[f"{name}_bias"][some]
    if "by_head" in arrays:
        arrays["own"] = arrays["by_head"][head]
        arrays["by_head"] = arrays["by_head"][:, elements["o"]]
    listed = {name: elements[name].tolist() for name in NAMES if name in arrays}
    return frame({"head": head, "row": i, "key": j, "elements": listed}, **arrays)


def _group(call: Call, head: int, count: int) -> int:
    """The key/value head, of `count`, that a head reads."""
    return head // (call.shape[0] // count)


def _largest(values: np.ndarray) -> np.ndarray:
    """The elements, the largest first."""
    size = np.abs(np.asarray(values, np.float64))
    return np.argsort(-np.where(np.isnan(size), np.inf, size), kind="stable")
