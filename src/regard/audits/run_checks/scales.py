"""The check scale: the factor of q·k, against the one that the layer declares and against common mistakes."""

from __future__ import annotations

import math

import numpy as np

from ...common.module_settings import path_pattern, setting, settings_of
from ...lens import Call
from ..finding import Finding
from .audited_run import AuditedCall, built_scale, has_norms, scaled_before

CLOSE = 1e-3  # relative tolerance for equal scales: configurations round theirs
ROUGH = 0.02  # relative tolerance for a scale measured from the norms of q and k, in any dtype
BY_LAYER = ("scale_attn_by_inverse_layer_idx", "apply_query_key_layer_scaling")  # settings
TWICE = "the scale is applied twice, such as 1/D instead of 1/√D"
SMALL = 4  # score depths below which the common mistakes are too close to each other


def scale(audited: AuditedCall) -> Finding | bool:
    """The effective scale of q·k, against the declared one and against common mistakes."""
    call = audited.call
    if call.q is None:
        return False
    before = scaled_before(call)
    plain = before is not None and math.isclose(before, 1, rel_tol=ROUGH)
    effective = call.scale if plain or before is None else call.scale * before
    known = _declared_factor(audited, effective)
    built, who = built_scale(audited.layer), "the layer declares"
    if built is not None and known is not None and not math.isclose(known, built, rel_tol=CLOSE):
        known, who = built, "its class computes"  # the number was changed after the layer was built
    if known is None:
        return _unusual(audited, effective)
    if math.isclose(call.scale, known, rel_tol=CLOSE):
        if plain or before is None:
            return _unusual(audited, call.scale)
        if not math.isclose(before, known, rel_tol=ROUGH):
            return True
    elif not plain and (before is not None or math.isclose(call.scale, 1, rel_tol=CLOSE)):
        # q was scaled before the call, or may have been
        return before is not None and math.isclose(effective, known, rel_tol=ROUGH)
    return audited.finding(
        "scale",
        "fault",
        f"scores are {effective:.6g} · q·k, but {who} {known:.6g}"
        f"{_root(known, call.q.shape[2])}: {effective / known:.4g} times as large (threshold: a relative difference of "
        f"{CLOSE:g})",
        _cause(effective, known, 0.05) or "the scale argument of the call is not the scale of the layer",
        f"multiply q·k by {known:.6g}, once",
        numbers={"scale": effective, "declared": known, "factor": effective / known},
    )


def _declared_factor(audited: AuditedCall, effective: float) -> float | None:
    """The factor of q·k that the layer declares; None where its number says nothing.

    Attributes of the same name are factors in some modules and divisors in others, and in some neither. The measured
    scale decides: a number or its inverse that equals it, else one that is the usual scale 1/√D. Any other number is a
    factor in layers with a configuration, as in transformers, and no declaration elsewhere.
    """
    call, scale = audited.call, audited.declared.scale
    assert call.q is not None
    if scale is None:
        return None
    usual, forms = call.q.shape[2] ** -0.5, (scale, 1 / scale)
    near = CLOSE if effective == call.scale else ROUGH
    if not math.isclose(scale, usual, rel_tol=CLOSE):  # the inverse of the usual scale is a mistake
        measured = next((form for form in forms if math.isclose(effective, form, rel_tol=near)), None)
        if measured is not None:
            return measured
    if any(math.isclose(form, usual, rel_tol=CLOSE) for form in forms):
        return usual
    return scale if audited.configured else None


def _unusual(audited: AuditedCall, effective: float) -> Finding | bool:
    """A scale that no declaration contradicts, but that is a common mistake, or differs from the layers of the same
    type.

    In transformers models scales of 1 and 1/D are intended; elsewhere they are the most common mistakes, unless q and k
    are normalized.
    """
    call, layer, calls = audited.call, audited.layer, audited.of.run.calls
    assert call.q is not None and call.k is not None
    D, pattern = call.q.shape[2], path_pattern(call.name)
    near = CLOSE if effective == call.scale else ROUGH
    usual = D**-0.5
    others = [
        other.scale
        for other in calls
        if other.q is not None and other.q.shape[2] == D and path_pattern(other.name) == pattern
    ]
    with_usual = sum(math.isclose(other, usual, rel_tol=CLOSE) for other in others)
    alone = effective == call.scale and with_usual * 2 >= len(others) > 1
    cause = _cause(effective, usual, near)
    if cause in ("the scale is missing", TWICE) and audited.configured:
        cause = None
    if (
        D < SMALL
        or math.isclose(effective, usual, rel_tol=near)
        or not (cause or alone)
        or _is_configured(layer, effective)
        or _by_layer(layer, effective, usual)
        or has_norms(layer)
        or (_normalized(call.q) and _normalized(call.k))
    ):
        return True
    read = alone or scaled_before(call) is not None
    # In T5 layers without a bias of their own, such as cross-attention, have a scale of 1 as well.
    missing = math.isclose(effective, 1, rel_tol=near) and not any(map(_is_biased, calls))
    return audited.finding(
        "scale",
        "note" if not read else "fault" if missing else "warning",
        f"scores are {effective:.6g} · q·k; the usual scale is 1/√{D} = {usual:.6g}"
        + (", which the other layers of the same type use" if alone else "")
        + ("" if read else "; whether q or k was scaled before the call is unknown")
        + f" (threshold: a relative difference of {near:g})",
        cause or "the scale of this layer was changed, but not that of the others",
        f"multiply q·k by {usual:.6g}, once; no fix is needed if {effective:.6g} is intended",
        numbers={"scale": effective, "usual": usual, "factor": effective / usual},
    )


def _is_biased(call: Call) -> bool:
    """Whether scores are more than scale · q·k, as in T5, whose biases go with a scale of 1."""
    return call.score is not None and not (call.score.scored and not call.score.children)


def _is_configured(layer, effective: float) -> bool:
    """Whether the scale is a scale or multiplier of the configuration of the layer, or 1 over its square root."""
    known = [
        float(value)
        for name, value in settings_of(setting(layer, "config")).items()
        if isinstance(value, int | float) and value > 0 and any(word in name for word in ("scal", "multiplier", "mup"))
    ]
    return any(math.isclose(effective, number, rel_tol=CLOSE) for value in known for number in (value, value**-0.5))


def _by_layer(layer, effective: float, usual: float) -> bool:
    """Whether the layer or its configuration requests a scale divided by the number of the layer, counted from 1."""
    at = setting(layer, "layer_idx")
    owners = (layer, setting(layer, "config"))
    asks = any(setting(owner, name) is True for owner in owners for name in BY_LAYER)
    scaled = setting(layer, "scale_attn_weights") is not False
    return asks and isinstance(at, int) and math.isclose(effective, (usual if scaled else 1) / (at + 1), rel_tol=CLOSE)


def _normalized(vectors: np.ndarray) -> bool:
    """Whether all vectors of each head have the same norm."""
    lengths = np.sqrt(np.square(np.asarray(vectors, np.float64)).sum(-1))
    return bool((np.ptp(lengths, axis=-1) <= ROUGH * lengths.max(-1, initial=0)).all())


def _root(value: float, D: int) -> str:
    return f" = 1/√{D}" if math.isclose(value, D**-0.5, rel_tol=CLOSE) else ""


def _cause(effective: float, right: float, near: float) -> str | None:
    """The usual mistake that makes this scale of the right one."""
    known = {
        1 / right: "the scale is missing",
        right: TWICE,
        2.0: "the scale is doubled",
        0.5: "the scale is halved",
        right**-2: "the scale is inverted",
    }
    return next(
        (words for factor, words in known.items() if math.isclose(effective / right, factor, rel_tol=near)), None
    )
