"""What a page asks about a run: one function for each question, plain arrays and JSON as the answers."""

from __future__ import annotations

import base64
import math
from typing import Any

from .axis import Axis
from .call import Call
from .labels import visible
from .run import Run

__all__ = ["about"]


def about(run: Run) -> dict[str, Any]:
    """The JSON from which a page of the run starts: everything but the weights."""
    return {
        "model": visible(run.model), "text": visible(run.text[:200]), "facts": dict(run.facts),
        "axes": {visible(name): _axis(axis) for name, axis in run.axes.items()},
        "calls": [_call(call) for call in run.calls],
        "steps": [{"position": step.position, "candidates": [[visible(word), p] for word, p in step.candidates]} for step in run.steps],
    }  # fmt: skip


def _axis(axis: Axis) -> dict[str, Any]:
    return {
        "tokens": [visible(word) for word in axis.tokens],
        "gap": [word.startswith(" ") or any(axis.special[max(0, i - 1) : i + 1]) for i, word in enumerate(axis.tokens)],
        "special": list(axis.special), "segments": [[part.start, part.stop, visible(part.name)] for part in axis.segments],
        "grid": axis.grid, "picture": None if axis.picture is None else f"data:image/png;base64,{base64.b64encode(axis.picture).decode()}",
    }  # fmt: skip


def _call(call: Call) -> dict[str, Any]:
    H, Q, K = call.shape
    figures = {name: [float(f"{value:.5g}") if math.isfinite(value) else None for value in values] for name, values in call.figures.items()}
    return {
        "name": visible(call.name), "layer": call.layer, "heads": H, "groups": call.groups, "queries": visible(call.queries),
        "keys": visible(call.keys), "Q": Q, "K": K, "start": call.start, "engine": call.engine, "only_weights": call.given is not None,
        "formula": {"mask": None if call.mask is None else str(call.mask), "score": None if call.score is None else str(call.score),
                    "scale": call.scale, "sinks": call.sinks is not None},
        "figures": figures, "badges": {}, "kept": {name: getattr(call, name) is not None for name in ("v", "x", "out")},
        "notes": dict(call.notes),
    }  # fmt: skip
