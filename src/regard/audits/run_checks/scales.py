"""Scales: what q·k is really multiplied by, against what the layer declares and against the forms that mistakes
take.
"""

from __future__ import annotations

import math

import numpy as np

from ...common.module_settings import setting, settings_of
from ...lens import Call, Run
from ..finding import Finding
from .layer_settings import declared, has_norms, layer_of, scaled_before
from .wording import place, shape_of

__all__ = ["scale"]

CLOSE = 1e-3  # scales this near each other are the same: configurations round theirs
ROUGH = 0.02  # norms of q before and after tell its scale this well, whatever the dtype
SMALL = 4  # depths below which the forms of mistakes are too near one another


def scale(run: Run, number: int, call: Call, module) -> Finding | bool:
    """The scale that q·k really gets, against the declared one, and against the forms that mistakes take."""
    if call.q is None:
        return False
    known, before = declared(call, module).scale, scaled_before(call, module)
    plain = before is not None and math.isclose(before, 1, rel_tol=ROUGH)
    if known is None:
        return _unusual(run, number, call, module, call.scale if plain or before is None else call.scale * before)
    if math.isclose(call.scale, known, rel_tol=CLOSE):
        if plain or before is None:
            return _unusual(run, number, call, module, call.scale)
        if not math.isclose(before, known, rel_tol=ROUGH):
            return True
        acts = call.scale * before
    elif not plain and (before is not None or math.isclose(call.scale, 1, rel_tol=CLOSE)):
        # q was scaled before, or may have been.
        return before is not None and math.isclose(call.scale * before, known, rel_tol=ROUGH)
    else:
        acts = call.scale
    return Finding(
        check="scale",
        severity="fault",
        where=place(run, number),
        measured=f"scores are {acts:.6g} · q·k, and the layer declares "
        f"{known:.6g}{_root(known, call.q.shape[2])}: {acts / known:.4g} times it "
        f"(threshold: {CLOSE:g} of it)",
        cause=_why(acts, known),
        mend=f"multiply q·k by {known:.6g}, once",
        call=number,
        numbers={"scale": acts, "declared": known, "factor": acts / known},
    )


def _unusual(run: Run, number: int, call: Call, module, acts: float) -> Finding | bool:
    """A scale that nothing contradicts, but that looks like a mistake, or is not that of the other layers like this
    one.

    Models of transformers mean 1 and 1/D where they have them; elsewhere they are the commonest mistakes, unless q and
    k are normed.
    """
    assert call.q is not None and call.k is not None
    D, kind, layer = call.q.shape[2], shape_of(call.name), layer_of(call, module)
    near = CLOSE if acts == call.scale else ROUGH
    usual, meant = D**-0.5, declared(call, module).configured
    others = [
        other.scale
        for other in run.calls
        if other.q is not None and other.q.shape[2] == D and shape_of(other.name) == kind
    ]
    alone = (
        acts == call.scale and sum(math.isclose(other, usual, rel_tol=CLOSE) for other in others) * 2 >= len(others) > 1
    )
    forms = [
        (2 * usual, "the scale is doubled"),
        (usual / 2, "the scale is halved"),
        (math.sqrt(D), "the scale is inverted"),
    ]
    forms += (
        [] if meant else [(1.0, "the scale was left out"), (1 / D, "the root of D was forgotten, or q is scaled twice")]
    )
    cause = next((words for value, words in forms if math.isclose(acts, value, rel_tol=near)), None)
    if (
        D < SMALL
        or math.isclose(acts, usual, rel_tol=near)
        or not (cause or alone)
        or _configured(layer, acts)
        or has_norms(layer)
        or (_normed(call.q) and _normed(call.k))
    ):
        return True
    read = module is not None and (alone or scaled_before(call, module) is not None)
    return Finding(
        check="scale",
        severity="warning" if read else "note",
        where=place(run, number),
        measured=f"scores are {acts:.6g} · q·k; the usual scale is 1/√{D} = {usual:.6g}"
        + (", which the other layers like this one use" if alone else "")
        + ("" if read else "; whether q or k was scaled before the call cannot be read")
        + f" (threshold: {near:g} of it)",
        cause=cause or "the scale of this layer alone was changed",
        mend=f"multiply q·k by {usual:.6g}, once; if {acts:.6g} is meant, nothing is wrong",
        call=number,
        numbers={"scale": acts, "usual": usual, "factor": acts / usual},
    )


def _configured(layer, acts: float) -> bool:
    """Whether a number of the layer's configuration that has to do with scales is this one, or 1 over its root."""
    known = [
        float(value)
        for name, value in settings_of(setting(layer, "config")).items()
        if isinstance(value, int | float) and value > 0 and any(word in name for word in ("scal", "multiplier", "mup"))
    ]
    return any(math.isclose(acts, number, rel_tol=CLOSE) for value in known for number in (value, value**-0.5))


def _normed(vectors: np.ndarray) -> bool:
    """Whether all vectors of each head have one length."""
    lengths = np.sqrt(np.square(np.asarray(vectors, np.float64)).sum(-1))
    return bool((np.ptp(lengths, axis=-1) <= ROUGH * lengths.max(-1, initial=0)).all())


def _root(value: float, D: int) -> str:
    return f" = 1/√{D}" if math.isclose(value, D**-0.5, rel_tol=CLOSE) else ""


def _why(acts: float, declared: float) -> str:
    known = {
        1 / declared: "the scale was left out",
        declared: "the scale is applied twice",
        2.0: "the scale is doubled",
        0.5: "the scale is halved",
        declared**-2: "the scale is inverted",
    }
    return next(
        (words for factor, words in known.items() if math.isclose(acts / declared, factor, rel_tol=0.05)),
        "another scale is passed to the call than the layer's own",
    )
