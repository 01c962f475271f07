"""Known mistakes in the scale of q·k."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ..arguments import Arguments
from ..mistake import Mistake
from .changes import inputs_by

LOG2E = 1 / math.log(2)


def _usual(arguments: Arguments) -> float:
    return arguments.depth**-0.5


def scaled(name: str, description: str, cause: str, scale: Callable[[Arguments], float], law: int = 1) -> Mistake:
    """The mistake of another scale."""

    def change(arguments: Arguments) -> Arguments | None:
        value = scale(arguments)
        return None if math.isclose(value, arguments.scale, rel_tol=1e-6) else replace(arguments, scale=value)

    return Mistake(
        name=name,
        law=law,
        checks=("scale",),
        description=description,
        cause=cause,
        fix="multiply q·k by the scale of the call, 1/√D if it has none, once",
        change=change,
        numbers=lambda was, now: f"{now.scale:.6g} instead of {was.scale:.6g}",
    )


def _by_values(arguments: Arguments) -> Arguments | None:
    if _given(arguments):
        return None
    return inputs_by(lambda q, k, v: (q * math.sqrt(q.shape[-1] / max(v.shape[-1], 1)), k, v))(arguments)


SCALES = (
    scaled("scale-missing", "no scale", "the scale is missing", lambda a: 1.0),
    scaled(
        "scale-applied-twice",
        "the scale applied twice",
        "q is scaled before a call that scales again, or the scale is 1/D instead of 1/√D",
        lambda a: a.scale**2,
    ),
    scaled("scale-1/D", "scale 1/D", "the scale is 1/D instead of 1/√D", lambda a: 1 / a.depth),
    scaled("scale-inverted", "scale √D", "the scale is inverted", lambda a: math.sqrt(a.depth)),
    scaled(
        "scale-argument-ignored",
        "scale 1/√D",
        "the scale argument is ignored, and the default is used",
        _usual,
    ),
    scaled(
        "scale-argument-and-default",
        "the scale of the call times 1/√D",
        "q is scaled by 1/√D, and the scores by the scale argument as well",
        lambda a: a.scale if math.isclose(a.scale, _usual(a)) else a.scale * _usual(a),
    ),
    scaled(
        "scale-argument-divides",
        "scores divided by the scale of the call",
        "the scale argument divides the scores instead of multiplying them",
        lambda a: a.scale if math.isclose(a.scale, _usual(a)) or not a.scale else 1 / a.scale,
    ),
    scaled("scale-doubled", "twice the scale", "the scale is doubled", lambda a: 2 * a.scale),
    scaled("scale-halved", "half the scale", "the scale is halved", lambda a: a.scale / 2),
    scaled(
        "scale-by-model-width",
        "scale 1/√(H·D)",
        "the scale is computed from the width of the model, before it is split into heads",
        lambda a: a.scale if _given(a) else (a.heads * a.depth) ** -0.5,
    ),
    scaled(
        "scale-by-keys",
        "scale 1/√K",
        "the scale is computed from the number of keys, a wrong axis of k",
        lambda a: a.scale if _given(a) else max(a.keys, 1) ** -0.5,
    ),
    scaled(
        "scale-by-heads",
        "scale 1/√H",
        "the scale is computed from the number of heads, a wrong axis of q",
        lambda a: a.scale if _given(a) else a.heads**-0.5,
    ),
    Mistake(
        name="scale-by-value-depth",
        law=1,
        description="scale 1/√E",
        cause="the scale is computed from the depth of v",
        fix="multiply q·k by the scale of the call, 1/√D if it has none, once",
        change=_by_values,
    ),
    scaled(
        "scale-log2-twice",
        "a scale that contains log₂ e twice",
        "scores are multiplied by log₂ e for exp2, and the softmax does it again",
        lambda a: a.scale * LOG2E,
    ),
)


def _given(arguments: Arguments) -> bool:
    """Whether the call has another scale than the default."""
    return not math.isclose(arguments.scale, _usual(arguments))
