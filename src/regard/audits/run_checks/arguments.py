"""The checks groups, softcap, sinks and bias: what a layer declares against the arguments of its attention call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ...common.module_settings import path_pattern
from ...language.scores import softcap as softcap_score
from ...laws.mistakes.scores import has_softcap
from ...lens import Call
from ..finding import Finding
from .audited_run import AuditedCall
from .observed_call import matches


def groups(audited: AuditedCall) -> Finding | bool:
    """Grouped-query attention: keys and values repeated before the call are interleaved, or tiled by mistake."""
    call, G, H = audited.call, audited.declared.groups, audited.call.shape[0]
    if G is None or not 1 < G < H or H % G or call.k is None or call.groups != H:
        return False
    if getattr(audited.layer, "num_key_value_groups", 0 if audited.of.module is None else H // G) != H // G:
        return False  # heads may be repeated for another reason, such as one for each expert
    at, order = np.arange(H), {}
    for name, part in (("keys", call.k), ("values", call.v)):
        if part is not None and len(part) == H:
            tiled, interleaved = _repeats(part, at % G), _repeats(part, at // (H // G) * (H // G))
            order[name] = "interleaved" if interleaved else "tiled" if tiled else "neither"
    wrong = [name for name, each in order.items() if each == "tiled"]
    if not wrong:
        return "interleaved" in order.values()
    which = " and ".join(wrong)
    return audited.finding(
        "groups",
        "fault",
        f"the {which} of heads h and h + {G} are bit-identical, those of heads 0 and 1 are not; "
        f"the layer declares {G} key/value heads for {H} query heads",
        f"{which} are repeated as blocks (repeat, tile, expand) instead of head by head (repeat_interleave)",
        f"use repeat_interleave for {which}: query head h uses key/value head h // (H / G)",
        numbers={"groups": G, "heads": H, "arrays": wrong},
    )


def _repeats(part, heads: np.ndarray) -> bool:
    """Whether every head is bit-identical to the head with the given number."""
    return all(np.array_equal(part[head], part[other]) for head, other in enumerate(heads) if head != other)


def softcap(audited: AuditedCall) -> Finding | bool:
    """A declared softcap that is not applied to the scores."""
    call, cap = audited.call, audited.declared.softcap
    if cap is None or call.given is not None or (call.score is not None and not has_softcap(call.score)):
        return False
    if call.score is not None:
        return True
    return _missing(
        audited,
        replace(call, score=softcap_score(cap)),
        name="softcap",
        what=f"a softcap of {cap:g}",
        fix=f"replace each score by {cap:g} · tanh(score / {cap:g}), before the mask",
    )


def sinks(audited: AuditedCall) -> Finding | bool:
    """Declared attention sinks that are not in the softmax."""
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
    """A position bias that is added to the scores of all other layers of the same type, but not of this one."""
    call = audited.call
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
