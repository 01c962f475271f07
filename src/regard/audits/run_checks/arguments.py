"""The checks of one argument of calls, such as scale and mask, against what layers declare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ...common.module_settings import path_pattern, setting
from ...common.text.units import counted
from ...language.added_masks import hides
from ...language.analysis import evaluate
from ...language.expr import Var, walk
from ...language.scores import alibi_slopes
from ...language.scores import softcap as softcap_score
from ...laws.mistakes.scores import has_softcap
from ...lens import Call
from ..finding import SEVERITIES, Finding
from .audited_run import AuditedCall, built_scale, matches, over_heads, roundoff, rows_to_read

CLOSE = 1e-3  # relative tolerance for equal scales: configurations round theirs
ROUGH = 0.02  # relative tolerance for a scale measured from the norms of q and k, in any dtype
NORMS = ("q_norm", "q_layernorm", "query_norm", "query_layernorm")  # of queries
TWICE = "the scale is applied twice, such as 1/D instead of 1/√D"
SEVERAL = 6  # keys, with fewer of which any bias is a straight line
SMALL = 4  # score depths below which the common mistakes are too close to each other


def groups(_: AuditedCall) -> bool:
    """Grouped-query heads: outputs with keys and values that are tiled instead of interleaved, or those of head 0
    alone.

    Cannot see keys that a model repeats before the call, so that no heads share them: those are seen by `projections`,
    which needs the model itself.
    """
    return False  # no layer declares an order


def heads(_: AuditedCall) -> bool:
    """Outputs with those of another order of heads: of the next head, or of the first head's keys for all.

    Cannot see heads that are in another order in the output alone: `output` reports those, and `projections` heads that
    are split or merged wrongly around the call.
    """
    return False  # no layer declares an order


def softmax(_: AuditedCall) -> bool:
    """Outputs with those of a softmax over another axis than the keys, or over numbers of another precision.

    Cannot see the axis where the weights were recorded instead of q and k: `weights` does.
    """
    return False  # no layer declares an axis


def softcap(audited: AuditedCall) -> Finding | bool:
    """A declared softcap that is not applied to the scores, and outputs with a softcap that is applied wrongly.

    Cannot see a softcap that nothing declares.
    """
    call, cap = audited.call, audited.declared.softcap
    if cap is None or call.given is not None or (call.score is not None and not has_softcap(call.score)):
        return False
    if call.score is not None:
        alone = {node.name for node in walk(call.score) if isinstance(node, Var)} == {"score"}
        at = np.linspace(-cap, cap, 9)
        if not alone or np.allclose(evaluate(call.score, {"score": at}), cap * np.tanh(at / cap), rtol=CLOSE):
            return True
        return audited.finding(
            "softcap",
            "warning",
            f"scores become {call.score}, and the layer has a softcap of {cap:g} (threshold: {CLOSE})",
            "the softcap is applied with another number, or without the product with it",
            f"replace each score by {cap:g} · tanh(score / {cap:g}), before the mask",
        )
    return _missing(
        audited,
        replace(call, score=softcap_score(cap)),
        name="softcap",
        what=f"a softcap of {cap:g}",
        fix=f"replace each score by {cap:g} · tanh(score / {cap:g}), before the mask",
    )


def sinks(audited: AuditedCall) -> Finding | bool:
    """Declared attention sinks that are not in the softmax, and outputs with sinks that are used wrongly.

    Cannot see sinks that no layer declares, nor sinks with numbers that are wrong everywhere.
    """
    call, known = audited.call, audited.declared.sinks
    if known is None or isinstance(known, bool) or np.size(known) != call.shape[0] or call.given is not None:
        return False
    if call.sinks is not None:
        return True
    return _missing(
        audited,
        replace(call, sinks=np.reshape(known, (-1, 1))),
        name="sinks",
        what="attention sinks",
        fix="add the sinks to the denominator of the softmax",
    )


def bias(audited: AuditedCall) -> Finding | bool:
    """A position bias that is added to the scores of all other layers of the same type, but not of this one, or that is
    of other heads of its table; and slopes of ALiBi: their sign, one for all heads, or those of other heads.

    Cannot see learned biases with wrong numbers, nor a bias that is wrong in every layer; `positions` sees tables that
    nothing reads.
    """
    call = audited.call
    if (slopes := _slopes(call)) is not None:
        return _judged_slopes(audited, slopes)
    if _of_other_heads(audited):
        return audited.finding(
            "bias",
            "fault",
            "the numbers added to the scores of a head are those of a table of the model, but of its other columns "
            f"(threshold: a relative difference of {CLOSE:g})",
            "the position bias of a head is that of other heads: a view without a permute, or one head for all",
            "look the table up as (rows, keys, heads), and permute(2, 0, 1)",
        )
    alike = [
        other
        for other in audited.of.run.calls
        if path_pattern(other.name) == path_pattern(call.name) and other.given is None
    ]
    others = [other for other in alike if other is not call]
    biased = [other for other in others if other.score is not None and not has_softcap(other.score)]
    if call.given is not None or not biased:
        return False
    if call.score is not None or len(biased) < len(others) or _carries_scores(alike):
        return True
    return audited.finding(
        "bias",
        "warning",
        f"a bias is added to the scores of the {len(biased)} other calls of layers of the same type, but not "
        "to the scores of this call (threshold: all of the others)",
        "the position bias is not passed to this layer",
        "pass the position bias of the first layer to all layers",
    )


def _of_other_heads(audited: AuditedCall) -> bool:
    """Whether a bias is of numbers of a table (distances, heads) of the model, but not of the columns of its heads."""
    call, module, found = audited.call, audited.of.module, False
    if module is None or call.given is not None or not _is_biased(call) or has_softcap(call.score):
        return False
    rows, H = rows_to_read(call), call.shape[0]
    added, allowed = call.scores(rows) - _factor(call) * call.logits(rows), call.allowed(rows)
    for weight in module.parameters():
        if weight.ndim == 2 and weight.shape[1] == H > 1 and weight.shape[0] > 1:
            table = weight.detach().float().cpu().numpy()
            near = CLOSE * np.abs(table).max()
            if all(_are_among(added[head][allowed[head]], table[:, head], near) for head in range(H)):
                return False
            found |= _are_among(added[allowed], table.ravel(), near)
    return found


def _are_among(values: np.ndarray, others: np.ndarray, near: float) -> bool:
    """Whether each of some values is one of the others."""
    others = np.sort(others)
    after = np.searchsorted(others, values).clip(1, len(others) - 1)
    return bool((np.minimum(np.abs(values - others[after - 1]), np.abs(values - others[after])) <= near).all())


def _slopes(call: Call) -> np.ndarray | None:
    """(H,): by how much each key adds more than the one before it, if that is the same for all earlier keys (ALiBi)."""
    _, Q, K = call.shape
    if (
        call.given is not None
        or call.score is None
        or has_softcap(call.score)
        or Q != K
        or not SEVERAL <= K <= CELLS // K
    ):
        return None
    added, allowed = call.scores() - _factor(call) * call.logits(), call.allowed()
    earlier = allowed & np.tri(K, dtype=bool)
    both = earlier[..., 1:] & earlier[..., :-1]
    steps = np.where(both, added[..., 1:] - added[..., :-1], np.nan)
    if not both.any((1, 2)).all():
        return None
    slopes = np.nanmedian(steps, (1, 2))
    near = CLOSE * np.abs(slopes) + ROUGH * roundoff(call) * np.abs(added[earlier]).max()
    linear = (slopes != 0).all() and (np.abs(np.nan_to_num(steps - slopes[:, None, None])) <= near[:, None, None]).all()
    return slopes if linear else None


def _judged_slopes(audited: AuditedCall, slopes: np.ndarray) -> Finding | bool:
    """Slopes that favor far keys, are one for all heads, or are those of ALiBi in another order."""
    assert audited.call.q is not None
    usual, depth = alibi_slopes(len(slopes)), audited.call.q.shape[2]
    severity, fix = "warning", "use regard.alibi_slopes(H), in this order"
    if (slopes < 0).any():
        cause, fix = "the slopes have the wrong sign: scores grow with the distance", "subtract slope · (query − key)"
        severity = "fault"
    elif np.allclose(slopes, usual, rtol=CLOSE) or len(slopes) == 1:
        return True
    elif np.ptp(slopes) <= CLOSE * slopes.max():
        cause = "the slopes of all heads are the same"
    elif np.allclose(np.sort(slopes), np.sort(usual), rtol=CLOSE):
        cause = "the slopes are those of other heads"
    elif np.allclose(slopes / slopes[0], usual / usual[0], rtol=CLOSE) and (
        slopes[0] > 1 or math.isclose(slopes[0] / usual[0], depth**-0.5, rel_tol=CLOSE)
    ):
        cause = "the slopes of ALiBi are scaled, such as by the depth of a head"
    else:
        return True
    shown, right = (", ".join(f"{slope:.4g}" for slope in part[:4]) for part in (slopes, usual))
    measured = f"each key adds more than the one before it by {shown}, by head; ALiBi has {right} (threshold: {CLOSE})"
    return audited.finding("bias", severity, measured, cause, fix)


def _carries_scores(calls: Sequence[Call]) -> bool:
    """Whether what is added to the scores of each call is the scores of the call before (residual attention), which the
    first call cannot have.
    """
    for before, call in pairwise(calls):
        if before.shape != call.shape:
            return False
        allowed = before.allowed() & call.allowed()
        scores, added = before.scores()[allowed], (call.scores() - call.logits())[allowed]
        if not np.allclose(added, scores, rtol=0, atol=0.01 * np.abs(scores).max(initial=0)):
            return False
    return True


def _missing(audited: AuditedCall, right: Call, *, name: str, what: str, fix: str) -> Finding | bool:
    """The finding of a missing argument, unless the output also matches `right`, the call that has it."""
    call = audited.call
    if matches(right):
        return True
    later = name == "sinks" and "written out" in str(call.notes.get("kind"))
    return audited.finding(
        name,
        "note" if later else "fault",
        f"the layer declares {what}, but the attention call has none"
        + (", and its output is the one without" if matches(call) else ""),
        "the model applies them after the weighted sum of the values, or not at all"
        if later
        else "the argument does not reach the attention implementation",
        fix,
    )


def scale(audited: AuditedCall) -> Finding | bool:
    """The effective scale of q·k, against the declared one, 1/√D, the other layers of the same type, and common
    mistakes.

    Whether q and k were scaled before the call is measured by their lengths, which are those of the layer's products
    times one factor, with or without rotary positions. Queries that are normalized although keys are not, or the
    reverse, are a warning. Cannot see that factor where q and k are normalized or computed
    in another way: an unusual scale is a note then. In a model of transformers, a scale of 1 or 1/D is believed if
    nothing contradicts it.
    """
    call = audited.call
    if call.q is None or "unread" in call.notes:
        return _of_steps(audited)
    if call.score is not None and {node.name for node in walk(call.score) if isinstance(node, Var)} == {"score"}:
        falls = np.diff(np.broadcast_to(evaluate(call.score, {"score": np.linspace(-4, 4, 9)}), 9)) < 0
        if falls.any():
            return audited.finding(
                "scale",
                "fault",
                f"scores are {call.score}: they fall where q·k grows (threshold: 0)",
                "the sign of q·k is lost or turned before the softmax, as by abs",
                "pass scale · q·k itself to the softmax",
            )
    assert call.k is not None
    alike = [_normalized(part) and np.ptp(part, 1).max() > 0 for part in (call.q, call.k)]
    plain = audited.sources and (audited.sources.k if alike[1] else audited.sources.q) is None  # no norm with weights
    if alike[0] != alike[1] and plain and min(call.shape[1:]) >= SEVERAL and not audited.configured:
        still, others = ("queries", "keys") if alike[1] else ("keys", "queries")
        return audited.finding(
            "scale",
            "warning",
            f"the {others} of each head have one length, and the {still} do not (threshold: {ROUGH:g})",
            f"{still} are not normalized, although {others} are: their norm is skipped, or taken over another axis",
            f"normalize {still} as {others}, over the features of a head",
        )
    before, usual = audited.scaled_before, call.q.shape[2] ** -0.5
    plain = before is None or math.isclose(before, 1, rel_tol=ROUGH)
    effective = call.scale * _factor(call) * (1 if plain else before or 1)
    near = CLOSE if plain else ROUGH
    known = _declared_factor(audited, effective)
    built, who = built_scale(audited.layer), "the layer declares"
    if built is not None and math.isclose(effective, built, rel_tol=near):
        return True
    if built is not None and known is not None and not math.isclose(known, built, rel_tol=CLOSE):
        known, who = built, "its class computes"  # the number was changed after the layer was built
    if known is None or math.isclose(effective, known, rel_tol=near):
        return _unusual(audited, effective, known is None)
    if before is None and math.isclose(call.scale, 1, rel_tol=CLOSE):
        return False  # q may have been scaled before the call
    elsewhere = math.isclose(call.scale, known, rel_tol=CLOSE) and not math.isclose(before or 1, known, rel_tol=ROUGH)
    if not plain and (elsewhere or math.isclose(effective, usual, rel_tol=ROUGH)):
        return True
    root = f" = 1/√{call.q.shape[2]}" if math.isclose(known, usual, rel_tol=CLOSE) else ""
    return audited.finding(
        "scale",
        "fault",
        f"scores are {effective:.6g} · q·k, but {who} {known:.6g}"
        f"{root}: {effective / known:.4g} times as large (threshold: a relative difference of "
        f"{CLOSE:g})",
        _cause(call, effective, known, 0.05) or "the scale argument of the call is not the scale of the layer",
        f"multiply q·k by {known:.6g}, once",
        numbers={"scale": effective, "factor": effective / known},
    )


def _of_steps(audited: AuditedCall) -> Finding | bool:
    """The same of weights that were recorded without q and k: the numbers by which these and scores are multiplied."""
    factor, sources = audited.call.notes.get("factor"), audited.sources
    if factor is None or not sources or not (sources.q and sources.k) or audited.configured or _has_factor(audited):
        return False
    effective, usual = factor * sources.q.factor * sources.k.factor, sources.shape[2] ** -0.5
    cause = _cause(audited.call, effective, usual, ROUGH)
    same = math.isclose(effective, usual, rel_tol=ROUGH)
    return same or (cause is not None and _not_usual(audited, "warning", effective, usual, "", cause))


def _factor(call: Call) -> float:
    """By what a score is multiplied together with what is added to it, as in (score + bias) / √D; 1 if by nothing."""
    if call.score is None or call.q is None or has_softcap(call.score):
        return 1.0
    rows = rows_to_read(call)
    twice = replace(call, q=2 * np.asarray(call.q)).scores(rows) - call.scores(rows)
    with np.errstate(all="ignore"):
        ratios = np.where(call.allowed(rows), twice / call.logits(rows), np.nan)
    middle = float(np.nanmedian(ratios)) if np.isfinite(ratios).any() else 1.0
    return 1.0 if math.isclose(middle, 1, rel_tol=CLOSE) else middle


def _by_distance(call: Call) -> bool:
    """Whether what is added to the scores follows from the distance alone, as in T5, where the scale is 1."""
    added, allowed = call.scores() - _factor(call) * call.logits(), call.allowed()
    both = allowed[:, 1:, 1:] & allowed[:, :-1, :-1]
    off = np.abs(added[:, 1:, 1:] - added[:, :-1, :-1])[both]
    return bool(off.max(initial=0) <= CLOSE * np.abs(added[allowed]).max(initial=0))


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


def _unusual(audited: AuditedCall, effective: float, undeclared: bool) -> Finding | bool:
    """A scale that no declaration contradicts, but that is a common mistake, differs from the layers of the same type,
    or, where nothing declares one, is not the usual one.

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
    cause = _cause(call, effective, usual, near)
    if cause in ("the scale is missing", TWICE) and audited.configured:
        cause = None
    elif undeclared and not audited.configured and effective > 0 and not _has_factor(audited):
        cause = cause or "the scale is not that of the depth of a head, but that of another size"
    if (
        D < SMALL
        or math.isclose(effective, usual, rel_tol=near)
        or not (cause or alone)
        or (cause == "the scale is missing" and any(setting(layer, name) is not None for name in NORMS))
        or (_normalized(call.q) and _normalized(call.k))
    ):
        return True
    read = alone or audited.scaled_before is not None
    # In T5 layers without a bias of their own, such as cross-attention, have a scale of 1 as well.
    biased = [other for other in calls if _is_biased(other)]
    owners = [call] if call.aligned else biased
    if (
        effective == 1
        and not alone
        and any(_is_biased(other) and _slopes(other) is None and _by_distance(other) for other in owners)
    ):
        read = False
    missing = math.isclose(effective, 1, rel_tol=near) and not biased
    words = ", which the other layers of the same type use" * alone
    words += "; whether q or k was scaled before the call is unknown" * (not read)
    severity = "note" if not read else "fault" if missing else "warning"
    cause = cause or "the scale of this layer was changed, but not that of the others"
    return _not_usual(audited, severity, effective, usual, words, cause)


def _not_usual(audited: AuditedCall, severity: str, effective: float, usual: float, words: str, cause: str) -> Finding:
    return audited.finding(
        "scale",
        severity,
        f"scores are {effective:.6g} · q·k; the usual scale is 1/√{usual**-2:.0f} = {usual:.6g}{words} "
        f"(threshold: a relative difference of {ROUGH:g})",
        cause,
        f"multiply q·k by {usual:.6g}, once; no fix is needed if {effective:.6g} is intended",
        numbers={"scale": effective, "factor": effective / usual},
    )


def _has_factor(audited: AuditedCall) -> bool:
    """Whether a layer has a parameter of one number, or of one for each head, which may be a learned scale."""
    given = () if audited.layer is None else audited.layer.parameters(recurse=False)
    return any(part.numel() in (1, audited.call.shape[0]) for part in given)


def _is_biased(call: Call) -> bool:
    """Whether scores are more than scale · q·k, as in T5, whose biases go with a scale of 1."""
    return call.score is not None and not (call.score.scored and not call.score.children)


def _normalized(vectors: np.ndarray) -> bool:
    """Whether all vectors of each head have the same norm."""
    lengths = np.sqrt(np.square(np.asarray(vectors, np.float64)).sum(-1))
    return bool((np.ptp(lengths, axis=-1) <= ROUGH * lengths.max(-1, initial=0)).all())


def _cause(call: Call, effective: float, right: float, near: float) -> str | None:
    """The usual mistake that makes this scale of the right one; none makes it 0 or negative."""
    if effective <= 0:
        return None
    depth = right**-2
    widths = {
        "the input of the layer": depth if call.x is None else call.x.shape[-1],
        "the width of all heads": call.shape[0] * depth,
        "the width of all keys": call.groups * depth,
        "the values": depth if call.v is None else call.v.shape[2],
    }
    known = {
        (depth / wide) ** 0.5: f"the scale is that of {name} ({wide:.0f})"
        for name, wide in widths.items()
        if wide != depth
    } | {
        1 / right: "the scale is missing",
        right: TWICE,
        2.0: "the scale is doubled",
        0.5: "the scale is halved",
        right**-2: "the scale is inverted",
        math.log(2): "the scale is that of powers of e, but the softmax is one of powers of 2",
    }
    nearest = min(known, key=lambda factor: round(abs(math.log(effective / right / factor)), 6))
    return known[nearest] if math.isclose(effective, right * nearest, rel_tol=near) else None


CELLS = 1 << 22  # of a mask that is read


def mask(audited: AuditedCall) -> Finding | bool:
    """Which keys the heads attend to, head by head, against the causality and the window that the layer declares.

    Numbers added to scores count as a mask if they leave a key no weight (−10⁴ and less, down to −10³⁰). Cannot see a
    window that the text does not exceed, nor a mask of a layer of which nothing says that it is causal, except where
    later keys are hidden in images, earlier ones alone anywhere, or none although layers alike hide some,
    which are warnings; other masks than known mistakes are a note, because prefixes, images and packed documents may
    have them.
    """
    call, known = audited.call, audited.declared
    _, Q, K = call.shape
    if call.given is None and call.mask is None and call.score is not None:
        rows = rows_to_read(call)
        if {*np.unique(np.round(call.scores(rows) - call.logits(rows), 3))} == {0, 1}:
            return audited.finding(
                "mask",
                "fault",
                "the number added to the score is 0 or 1 (within 0.0005) for each pair, and no key is masked",
                "a boolean mask is added to the scores",
                "convert it to 0 and −infinity, or use where(mask, scores, −infinity)",
            )
    seen = _seen(audited)
    if seen is not None and not audited.of.subject.masks and len(unseen := np.flatnonzero(~seen.any(0))):
        return audited.finding(
            "mask",
            "warning",
            f"no row attends to {counted(len(unseen), 'key')}, first {unseen[0]}, though no mask was given "
            "(threshold: 0)",
            "a mask hides keys from every row, their own included",
            "let every row attend to its own key, unless these keys are meant to be unused",
        )
    later = seen is not None and not known.causal and _hides_later(audited, seen)
    if (
        isinstance(later, Finding)
        or not (known.causal or known.window)
        or 0 in (Q, K)
        or over_heads(call)
        or "repeated" in call.notes
    ):
        return later
    by_head = call.mask is not None and any(isinstance(node, Var) and node.name == "head" for node in walk(call.mask))
    apart = by_head or call.given is not None
    heads = range(call.shape[0] if apart else 1)
    rows = np.arange(max(0, Q - max(2, CELLS // (K * len(heads)))), Q)
    answers = [_compared(audited, (head,) if apart else (), rows, _visible(call, rows, head)) for head in heads]
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    return min(findings, key=lambda each: SEVERITIES.index(each.severity)) if findings else all(answers)


def _hides_later(audited: AuditedCall, seen: np.ndarray) -> Finding | bool:
    """A mask that hides earlier keys alone, or no key although other layers hide later ones; a causal mask, or one that
    shows fewer later keys than earlier ones, in a layer that says that it is not causal, or in a model of images, none
    of whose modules says that it is causal: its patches have no direction.
    """
    subject, words = audited.of.subject, repr(audited.of.module).lower()
    image = subject.inputs[subject.sequence]
    ahead = np.arange(seen.shape[1])[None, :] - np.arange(len(seen))[:, None]  # key − query
    alike = [other for other in audited.of.calls if path_pattern(other.call.name) == path_pattern(audited.call.name)]
    masks = [mask for other in alike if (mask := _seen(other)) is not None and mask.shape == seen.shape]
    hiding = len(seen) > 2 and any(mask[ahead < 0].mean() > mask[ahead > 0].mean() for mask in masks)
    backwards = len(seen) > 2 and bool((seen == (ahead >= 0)).all())
    if not audited.configured and (backwards or (hiding and seen.all())):
        return audited.finding(
            "mask",
            "warning",
            "no row attends to earlier keys, and each to all later ones (threshold: 0)"
            if backwards
            else "each row attends to every key, and calls of the same kind hide later ones (threshold: 0)",
            "the mask is transposed, or inverted" if backwards else "the mask does not reach this call",
            "restrict each row to key ≤ query, in every layer and head; no fix is needed if this is intended",
        )
    declared = not audited.configured and any(setting(audited.layer, name) is False for name in ("causal", "is_causal"))
    if not declared and (image.ndim != 4 or "causal" in words):
        return False
    reach, back = int(ahead[seen].max(initial=0)), -int(ahead[seen].min(initial=0))
    every = back if declared else len(seen) - 1
    if reach >= every or not (seen == (ahead <= reach) & (ahead >= -every)).all():
        return True
    return audited.finding(
        "mask",
        "warning",
        f"each row attends to {counted(back, 'earlier key')}, but to later ones only up to {reach} ahead (threshold: "
        "in a layer that is declared not to be causal, and in images, rows attend to later keys as to earlier ones)",
        "a causal mask in an encoder, or a window that is open on one side",
        "leave out the mask, or let windows reach equally far on both sides; no fix is needed if images are generated "
        "patch by patch",
    )


def _seen(audited: AuditedCall) -> np.ndarray | None:
    """(Q, K): whether a row attends to a key of its sequence in any head; None where another input may be a mask."""
    call, subject = audited.call, audited.of.subject
    H, Q, K = call.shape
    if (
        audited.of.sources is None
        or {*subject.inputs} - {subject.sequence, *(mask.name for mask in subject.masks)}
        or subject.fixed
        or not call.aligned
        or Q != K
        or H * Q * K > CELLS
        or over_heads(call)
    ):
        return None
    return np.logical_or.reduce(call.allowed() if call.given is None else call.weights() != 0)


def _visible(call: Call, rows: np.ndarray, head: int) -> np.ndarray:
    """(rows, K): which keys a head attends to. Later keys also count as masked if large negative numbers are added to
    their scores and leave all of them a weight of 0.
    """
    if call.given is not None:
        return np.asarray(call.weights(rows, None, [head])[0] != 0)
    visible = np.asarray(call.allowed(rows, None, [head])[0])
    if call.score is None or call.q is None:
        return visible
    later = visible & (np.arange(call.shape[2])[None, :] > (call.start + rows)[:, None])
    added = replace(call, q=np.zeros_like(call.q)).scores(rows, None, [head])[0]
    weights = call.weights(rows, None, [head])[0]
    masked = hides(added[later], 0) & (weights[later].astype(np.float32) == 0)
    return visible & ~later if masked.all() else visible


def _compared(audited: AuditedCall, heads: tuple[int, ...], rows: np.ndarray, visible: np.ndarray) -> Finding | bool:
    """Compares the keys that these rows attend to with the declared causal mask and window: a finding for a known
    mistake or for later keys; otherwise whether the mask is exactly the declared one.
    """
    call, window = audited.call, audited.declared.window
    ahead = np.arange(call.shape[2])[None, :] - (call.start + rows)[:, None]  # key − query
    if not audited.declared.causal and visible[ahead > 0].any():
        return False  # a window on both sides, whose size layers count in several ways
    used = visible.any(0)  # keys masked for every row are padding, or outside the windows of all rows
    off = "the diagonal is off by one"
    late = (ahead < 0) | ((ahead == 0) & (rows == rows[0])[:, None])
    known = [
        ("each row also attends to the next key", off, ahead <= 1),
        ("no row attends to its own key", off, ahead < 0),
        ("no row except the first attends to its own key", off, late),
        (
            "each row attends to every key, including later ones",
            "the mask is dropped, or was never created",
            late | True,
        ),
        ("each row attends to its own key and later ones", "the mask is transposed, or inverted", ahead >= 0),
    ]
    right = ahead <= 0
    if window is not None:
        right = right & (-ahead < window)
        off = "the window is off by one"
        known += [
            (f"each row attends to {window + 1} keys", off, (ahead <= 0) & (-ahead <= window)),
            (f"each row attends to {window - 1} keys", off, (ahead <= 0) & (-ahead < window - 1)),
            ("each row attends to every earlier key", "the sliding window is missing", ahead <= 0),
        ]
    if (visible == (right & used)).all() or (audited.loose and _is_window(audited, visible, ahead)):
        return True
    match = next(((words, cause) for words, cause, band in known if (visible == (band & used)).all()), None)
    expected = "causal" + (f" with a window of {counted(window, 'key')}" if window is not None else "")
    if match is None:  # prefixes, images and packed documents may rightly have other masks
        future = visible & (ahead > 0)
        row = int(rows[np.argwhere(future)[0, 0]]) if future.any() else 0
        return bool(future.any()) and audited.finding(
            "mask",
            "note",
            f"the call is declared {expected}, but in {int(future.sum())} of {future.size} (row, key) pairs a "
            f"row attends to a later key, up to {int(ahead[future].max())} ahead (threshold: 0)",
            "a prefix or an image with bidirectional attention, or a wrong mask",
            "unless later keys are intended, restrict each row to key ≤ query",
            heads=heads,
            row=row,
        )
    words, cause = match
    off = visible != (right & used)
    row = int(rows[np.argwhere(off)[0, 0]])
    return audited.finding(
        "mask",
        "fault",
        f"the call is declared {expected}, but the mask differs in {int(off.sum())} of {off.size} (row, key) pairs "
        f"(threshold: 0): {words}",
        cause,
        "restrict each row to key ≤ query" + (f" and query − key < {window}" if window is not None else ""),
        heads=heads,
        row=row,
    )


def _is_window(audited: AuditedCall, visible: np.ndarray, ahead: np.ndarray) -> bool:
    """Whether a causal mask is that of a window that may be counted without the own token, or of a layer without one
    beside layers with one.
    """
    window, pattern = audited.declared.window or 0, path_pattern(audited.call.name)
    alike = [other.call.allowed(heads=0)[0] for other in audited.of.calls if path_pattern(other.call.name) == pattern]
    hides = any((mask.sum(-1) < np.arange(1, len(mask) + 1)).any() for mask in alike if mask.shape[0] == mask.shape[1])
    every = (visible == (ahead <= 0)).all()
    return bool(every and hides) or bool((visible == (ahead <= 0) & (-ahead <= window)).all())


def alignment(audited: AuditedCall) -> Finding | bool:
    """Fewer rows than keys, and a causal mask aligned top left although the rows are the last positions.

    Cannot see masks that are not causal, nor, outside of a cache, which positions the rows have.
    """
    call = audited.call
    _, Q, K = call.shape
    if call.k is None or not 0 < Q < K or Q * K > CELLS or audited.declared.causal is False:
        return False
    visible = call.allowed(None, None, [0])[0]
    if not (visible == (np.arange(K)[None, :] <= np.arange(Q)[:, None])).all() or not np.any(np.asarray(call.k)[:, Q:]):
        return True  # the unused part of a static cache contains zeros
    return audited.finding(
        "alignment",
        "fault",
        f"{Q} rows over {K} keys, and row i attends to keys 0 to i: no row attends to the last {K - Q} keys, "
        "which are not empty (threshold: 0)",
        "the causal mask (is_causal, or tril) is aligned top left, but the rows are the last positions",
        f"row 0 has position {K - Q}: shift the diagonal by that",
    )
