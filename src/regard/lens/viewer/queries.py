"""What a page knows of a run and requests about it, as arrays or JSON: figures, one row from x to the output, the
matrices of a layer, and the Python that reproduces the run.

    q = W_q x + b_q · k = W_k x + b_k · v = W_v x + b_v · y = W_o c + b_o = Σ_h W_o,h c_h + b_o

c: the outputs of all heads of a row, one after another.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...common.text.characters import clipped
from ..runs.axis import Axis
from ..runs.call import Call
from ..runs.detectors import ROWS
from ..runs.labels import visible, words
from ..runs.projections import NAMES as MATRICES
from ..runs.projections import LayerProjections
from ..runs.run import Run
from .embed import along_axes, frame

KEYS = 64  # the most keys of a row that are shown
BEFORE, AFTER = 7, 1  # always shown around the row's own position
DIGITS = 6
# The arguments of `look` that can be written as literals.
NAMES = ("text", "target", "picture", "generate", "layers", "entry", "values", "limit")
LONGEST = 2000  # the most characters of the expression
UNKNOWN = 'rg.Run.open("run")  # save it first: run.save("run")'


def about(run: Run) -> dict[str, Any]:
    """The JSON of a page: everything except the weights, with untrusted text made visible and NaN replaced by null."""
    return {
        "model": words(run.model),
        "text": words(clipped(run.text, 200)),
        "axes": {words(name): _axis(axis) for name, axis in run.axes.items()},
        **calls_of(run),
        "steps": [
            {"position": step.position, "candidates": [[visible(word), plain(p)] for word, p in step.candidates]}
            for step in run.steps
        ],
    }


def calls_of(run: Run) -> dict[str, Any]:
    """The part of `about` that depends on the rules of the calls."""
    return {"facts": plain(run.facts), "calls": [_call(run, call) for call in run.calls], "python": origin(run)}


def tracks(call: Call, head: int) -> dict[str, np.ndarray]:
    """The available figures along the axes of a head's map, float32: of its rows (Q,), and what each key receives,
    from how many rows it may, and the length of its value, (K,).
    """
    return {name: values[head].astype(np.float32) for name, values in along_axes(call).items()}


def plain(value: Any) -> Any:
    """The value as JSON for the page: text made visible, null for NaN and infinities."""
    if isinstance(value, str):
        return words(value)
    if isinstance(value, Mapping):
        return {words(str(name)): plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Sequence | set | frozenset):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else words(str(value))


def _axis(axis: Axis) -> dict[str, Any]:
    known = {word: visible(word) for word in set(axis.tokens)}
    lacking = {i: visible(characters) for i, characters in axis.unknown}
    image = None if axis.picture is None else f"data:image/png;base64,{base64.b64encode(axis.picture).decode()}"
    edge = [False, *axis.special]  # special tokens are separated from their neighbors
    cells = {"grid": axis.grid, "tiles": axis.layout, "places": list(axis.patches), "image": image}
    return {
        "tokens": [lacking.get(i) or known[word] for i, word in enumerate(axis.tokens)],
        "unknown": {i: known[axis.tokens[i]] for i in lacking},
        "gap": [word.startswith(" ") or edge[i] or edge[i + 1] for i, word in enumerate(axis.tokens)],
        "special": list(axis.special),
        "segments": [[part.start, part.stop, words(part.name)] for part in axis.segments],
        "grid": None if axis.image else axis.grid,
        "patches": None if axis.grid is None else cells,
    }


def _five_digits(values: np.ndarray) -> list[float | None]:
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


def _call(run: Run, call: Call) -> dict[str, Any]:
    H, Q, K = call.shape
    marked = any(run.axes[call.keys].special)  # without special tokens their share says nothing
    return {
        "name": words(call.name),
        "layer": call.layer,
        "heads": H,
        "groups": call.groups,
        "queries": words(call.queries),
        "keys": words(call.keys),
        "Q": Q,
        "K": K,
        "start": call.start,
        "engine": words(call.engine),
        "only_weights": call.given is not None,
        "formula": {
            "mask": None if call.mask is None else words(str(call.mask)),
            "score": None if call.score is None else words(str(call.score)),
            "scale": plain(call.scale),
            "sinks": call.sinks is not None,
        },
        "figures": {
            name: _five_digits(values)
            for name, values in call.figures.items()
            if marked or name not in ("special", "moved_special")
        },
        # Of how many rows the figure of a measure is the mean, by head.
        "rows": {name: np.isfinite(values).sum(-1).tolist() for name, values in call.rows.items() if name not in ROWS},
        "kept": {name: getattr(call, name) is not None for name in ("v", "x", "out")},
        "matrices": plain(known_matrices(call)),
        "notes": plain(call.notes),
    }


def walk(call: Call, head: int, i: int) -> dict[str, Any]:
    """The computation of row i of a head, as JSON: numbers with six digits, "NaN", "inf" and "-inf"; null for arrays
    that were not stored.

        x → q, k    scaled = scale · q·k → scores (the score rule) → p = exp(scores − lse) where allowed → sum = Σ p v

    x (d_model) · q (D) · keys: at most 64, the strongest and the nearest, in ascending order · k (keys, D) · scaled,
    scores, allowed, p (keys) · lse · sinks · v (keys, E) · sum (E), over all keys · out (E): the output of the model.
    """
    H = call.shape[0]
    p = call.weights([i], None, [head])[0, 0]
    keys = shown(p, call.start + i)
    found: dict[str, Any] = dict.fromkeys(("x", "q", "k", "scaled", "scores", "sinks", "v", "sum", "out"))
    found |= {
        "keys": keys.tolist(),
        "allowed": call.allowed([i], keys, [head])[0, 0].tolist(),
        "p": numbers(p[keys]),
        "lse": numbers(call.lse[head, i]),
    }
    stored = (("x", call.x, i), ("q", call.q, (head, i)), ("out", call.out, (head, i)), ("sinks", call.sinks, head))
    found |= {name: numbers(array[at]) for name, array, at in stored if array is not None}
    if call.k is not None:
        k = call.k[head // (H // call.groups)]
        found |= {
            "k": numbers(k[keys]),
            "scaled": numbers(call.logits([i], keys, [head])[0, 0]),
            "scores": numbers(call.scores([i], keys, [head])[0, 0]),
        }
    if call.v is not None:
        v = call.v[head // (H // len(call.v))]
        found |= {"v": numbers(v[keys]), "sum": numbers(mixed(call, head, i, p, v))}
    return found


def shown(p: np.ndarray, position: int) -> np.ndarray:
    """The keys that are shown: those around the row's own position, keys with NaN as weight, and the strongest."""
    if len(p) <= KEYS:
        return np.arange(len(p))
    near = np.arange(max(0, position - BEFORE), max(0, min(len(p), position + AFTER + 1)))
    rank = np.where(np.isnan(p), np.inf, p)
    rank[near] = np.inf
    return np.sort(np.argsort(-rank, kind="stable")[:KEYS])


def mixed(call: Call, head: int, i: int, p: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Σ p v over the keys that the row attends to: masked values cannot contribute, not even NaN."""
    attended = (p != 0) | call.allowed([i], None, [head])[0, 0]
    with np.errstate(all="ignore"):
        return p[attended] @ np.asarray(v, np.float64)[attended]


def numbers(values) -> Any:
    """Numbers as JSON; NaN and infinities by name."""
    if isinstance(values, np.ndarray) and values.ndim:
        return [numbers(part) for part in values]
    value = float(values)
    if np.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return "NaN" if np.isnan(value) else "inf" if value > 0 else "-inf"


def origin(run: Run) -> str:
    """An ASCII expression: opens the folder of the run if it is known, otherwise calls `look` with its arguments.

    A run of arrays or of a module cannot be reproduced this way: the expression then says to save it first.

    >>> import numpy as np
    >>> from regard.lens.look import of_arrays
    >>> origin(of_arrays(*np.zeros((2, 1, 4, 8))))
    'rg.Run.open("run")  # save it first: run.save("run")'
    """
    folder, made = run.facts.get("folder"), run.facts.get("made")
    if isinstance(folder, str):
        return f"rg.Run.open({folder!a})"
    if not isinstance(made, Mapping):
        return UNKNOWN
    given = {**({"text": run.text} if run.text else {}), **made}
    arguments = [ascii(given.get("what")), *(f"{name}={given[name]!a}" for name in NAMES if name in given)]
    found = f"rg.look({', '.join(arguments)})"
    return found if len(found) <= LONGEST else UNKNOWN


ROOM = 30_000  # bytes of a page for the matrices of one head, before compression
OUTPUTS = 16  # elements of the layer's output in a page


def known_matrices(call: Call) -> dict[str, Any]:
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
    listed = {name: elements[name].tolist() for name in MATRICES if name in arrays}
    return frame({"head": head, "row": i, "key": j, "elements": listed}, **arrays)


def _group(call: Call, head: int, count: int) -> int:
    """The key/value head, of `count`, that a head reads."""
    return head // (call.shape[0] // count)


def _largest(values: np.ndarray) -> np.ndarray:
    """The elements, the largest first."""
    size = np.abs(np.asarray(values, np.float64))
    return np.argsort(-np.where(np.isnan(size), np.inf, size), kind="stable")
