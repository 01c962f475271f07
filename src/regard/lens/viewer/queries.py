"""The data that a page requests about a run: one function per request, which returns arrays or JSON."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...common.text.characters import clipped
from ..runs.axis import Axis
from ..runs.call import Call
from ..runs.codes import encode
from ..runs.labels import visible, words
from ..runs.row_figures import ROWS
from ..runs.run import Run
from ..runs.tiles import Weights
from .matrices import about as matrices
from .row_walk import walk

__all__ = ["about", "calls_of", "column", "pair", "plain", "row", "rows", "tracks", "walk"]

TRACKS = ("entropy", "spread", "special", "maximum", "attended", "moved")


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
    return {"facts": plain(run.facts), "calls": [_call(run, call) for call in run.calls]}


def row(call: Weights, head: int, i: int) -> tuple[np.ndarray, np.ndarray]:
    """What a row attends to: coarse and fine codes, (K,) uint8 each."""
    return _codes(call, rows=[i], heads=[head])


def rows(call: Weights, i: int) -> tuple[np.ndarray, np.ndarray]:
    """What a row attends to in every head: coarse and fine codes, (H K,) uint8 each, one head after the other."""
    return _codes(call, rows=[i])


def column(call: Weights, head: int, j: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows attend to a key: coarse and fine codes, (Q,) uint8 each."""
    return _codes(call, keys=[j], heads=[head])


def pair(run: Run, queries: str, keys: str, i: int, j: int) -> list[dict[str, Any]]:
    """The weight of one pair in every call between these axes: the call's number, weights (H,) and allowed (H,)."""
    found = []
    for number, call in enumerate(run.calls):
        if (call.queries, call.keys) == (queries, keys):
            weights, allowed = call.weights([i], [j])[:, 0, 0], call.allowed([i], [j])[:, 0, 0]
            found.append({"call": number, "weights": weights, "allowed": allowed})
    return found


def tracks(call: Call, head: int) -> dict[str, np.ndarray]:
    """The available figures along the axes of a head's map, float32: of its rows (Q,), and what each key receives,
    from how many rows it may, and the length of its value, (K,).

    ordinary: the weight of a row on keys that are not special tokens, Σ p − special.
    """
    found = {name: call.rows[name][head].astype(np.float32) for name in TRACKS if name in call.rows}
    if "special" in call.rows:
        found["ordinary"] = (_total(call, head) - call.rows["special"][head]).astype(np.float32)
    if call.received is None:
        return found
    of_keys = ("received", "readers") if call.lengths is None else ("received", "readers", "lengths")
    return found | {name: getattr(call, name)[head].astype(np.float32) for name in of_keys}


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


def _codes(call: Weights, **part) -> tuple[np.ndarray, np.ndarray]:
    coarse, fine = encode(call.weights(**part), call.allowed(**part))
    return coarse.ravel(), fine.ravel()


def _total(call: Call, head: int) -> np.ndarray:
    """Σ p of each row, (Q,): 1 minus the weight of the sinks; 0 in fully masked rows."""
    if call.given is not None:
        return np.asarray(call.given[head], np.float64).sum(-1)
    lse = np.asarray(call.lse[head], np.float64)
    sinks = np.zeros(0) if call.sinks is None else np.asarray(call.sinks[head], np.float64)
    with np.errstate(invalid="ignore"):  # −∞ − (−∞) in fully masked rows
        taken = np.exp(sinks - lse[:, None]).sum(-1)
    return np.where(np.isneginf(lse), 0.0, 1.0 - taken)


def _axis(axis: Axis) -> dict[str, Any]:
    known = {word: visible(word) for word in set(axis.tokens)}
    lacking = {i: visible(characters) for i, characters in axis.unknown}
    edge = [False, *axis.special]  # special tokens are separated from their neighbors
    return {
        "tokens": [lacking.get(i) or known[word] for i, word in enumerate(axis.tokens)],
        "unknown": {i: known[axis.tokens[i]] for i in lacking},
        "gap": [word.startswith(" ") or edge[i] or edge[i + 1] for i, word in enumerate(axis.tokens)],
        "special": list(axis.special),
        "segments": [[part.start, part.stop, words(part.name)] for part in axis.segments],
        "grid": axis.grid,
        "image": None if axis.picture is None else f"data:image/png;base64,{base64.b64encode(axis.picture).decode()}",
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
        "matrices": plain(matrices(call)),
        "notes": plain(call.notes),
    }
