"""Suspects: what an attention that does not do as it was told may be doing instead, each with its cause and its
mend.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...language.expr import Expr, Op, Read, fold, key, query, walk
from ...language.masks import causal
from ...lens import Call
from .expected_output import Weigh, normalised

__all__ = ["Suspect", "capped", "suspects"]


@dataclass(frozen=True, eq=False)
class Suspect:
    """One way to go wrong. checks: what finds it · does: the words after "the output is that of …" · told: the call as
    it seems to have been carried out, with weigh in place of the softmax.
    """

    checks: tuple[str, ...]
    does: str
    cause: str
    mend: str
    told: Call
    weigh: Weigh = normalised

    def after(self, other: Suspect) -> Suspect:
        """Both at once: this one was made from `other.told`, and nothing else was changed there."""
        return replace(
            self,
            checks=other.checks + self.checks,
            does=f"{other.does} and {self.does}",
            cause=f"{other.cause}; {self.cause}",
            mend=f"{other.mend}; {self.mend}",
        )


def suspects(call: Call) -> Iterator[Suspect]:
    """The usual mistakes, the simplest first; only those that would make a difference to this call."""
    yield from _dropped(call)
    yield from _scales(call)
    yield from _masks(call)
    yield from _heads(call)
    yield from _softmax(call)


def capped(score: Expr | None) -> bool:
    """Whether a score rule bends the scores with tanh, as softcaps do."""
    return score is not None and any(isinstance(node, Op) and node.name == "tanh" for node in walk(score))


def _dropped(call: Call) -> Iterator[Suspect]:
    if call.score is not None:
        name = "softcap" if capped(call.score) else "bias"
        yield Suspect(
            (name,),
            f"scores without the {name}",
            f"the implementation takes no {name}, or drops the argument",
            f"use an implementation that takes it, or apply the {name} to the scores before the mask",
            replace(call, score=None),
        )
    if call.sinks is not None:
        yield Suspect(
            ("sinks",),
            "a softmax without its sinks",
            "the implementation drops the sinks",
            "add the sinks to the denominator: out · exp(lse − logaddexp(lse, sink))",
            replace(call, sinks=None),
        )


def _scales(call: Call) -> Iterator[Suspect]:
    s, D = call.scale, call.q.shape[2] if call.q is not None else 1
    known = [
        (1.0, "no scale", "the scale was left out"),
        (
            s * s,
            "the scale applied twice",
            "q is scaled before a call that scales again, or the root of D was forgotten",
        ),
        (1 / D, "scale 1/D", "the root of D was forgotten"),
        (math.sqrt(D), "scale √D", "the scale is inverted"),
        (D**-0.5, "scale 1/√D", "the call's own scale is ignored, and the default taken"),
        (2 * s, "twice the scale", "the scale is doubled"),
        (s / 2, "half the scale", "the scale is halved"),
    ]
    for value, does, cause in known:
        if not math.isclose(value, s, rel_tol=1e-6):
            yield scaled(call, value, does, cause)


def scaled(call: Call, value: float, does: str, cause: str) -> Suspect:
    """The call with another scale."""
    return Suspect(
        ("scale",),
        f"{does}: {value:.6g} where {call.scale:.6g} was asked",
        cause,
        f"multiply q·k by {call.scale:.6g}, once",
        replace(call, scale=value),
    )


def _masks(call: Call) -> Iterator[Suspect]:
    K, Q = call.shape[2], call.shape[1]
    if call.mask is None:
        yield Suspect(
            ("mask",),
            "a causal mask where none was asked",
            "the implementation is causal by default",
            "say is_causal=False",
            replace(call, mask=causal()),
        )
        return
    one = "a bound is off by one: < where ≤ belongs, or a diagonal counted from 1"
    fit = "compare the first rows with what the mask allows, and move the bound"
    yield Suspect(
        ("mask",),
        "no mask at all",
        "the mask is dropped, or is_causal is overridden",
        "pass the mask on to the kernel",
        replace(call, mask=None),
    )
    for start, words in ((0, "top left: row 0 at key 0"), (K - Q, "bottom right: the last row at the last key")):
        for kind, rule in (("the mask", call.mask), ("a causal mask", causal())):
            if start != call.start:
                yield Suspect(
                    ("alignment",),
                    f"{kind} aligned {words}",
                    f"{Q} rows over {K} keys have two ends, and the implementation begins at the other one",
                    f"row 0 stands at position {call.start}: shift the mask by it",
                    replace(call, start=start, mask=rule),
                )
    yield Suspect(
        ("mask",),
        "a causal mask alone",
        "is_causal overrides the mask that was given",
        "merge causality into the mask, and pass one of them",
        replace(call, mask=causal()),
    )
    yield Suspect(
        ("mask",),
        "a mask without causality",
        "is_causal was not passed on",
        "merge causality into the mask",
        replace(call, mask=call.mask | ~causal()),
    )
    yield Suspect(
        ("mask",),
        "a mask of which only the hidden keys are kept",
        "padding is masked, and nothing else",
        "merge padding and the rest of the mask with &",
        call,
        _weigh(lambda allowed: np.broadcast_to(allowed.any(-2, keepdims=True), allowed.shape)),
    )
    for does, rule in _off_by_one(call.mask, K):
        yield Suspect(("mask",), f"a mask off by one: {does}", one, fit, replace(call, mask=rule))
    yield Suspect(
        ("mask",), "a causal mask without the row itself", one, fit, replace(call, mask=call.mask & (key < query))
    )
    yield Suspect(
        ("mask",),
        "the inverted mask",
        "true means 'hidden' to the caller and 'may attend' to the kernel, or the other way",
        "invert it: ~mask",
        replace(call, mask=~call.mask),
    )
    yield Suspect(
        ("mask",),
        "a mask added as numbers 0 and 1",
        "booleans are added to the scores",
        "turn them into 0 and −infinity, or use where(mask, scores, −infinity)",
        call,
        _added,
    )
    yield Suspect(
        ("mask",),
        "scores that the mask sets to 0",
        "scores are multiplied by the mask before the softmax",
        "use where(mask, scores, −infinity)",
        call,
        _multiplied,
    )
    yield Suspect(
        ("mask",),
        "a mask that comes after the softmax",
        "weights are set to 0 when they are already normalised",
        "mask the scores before the softmax",
        call,
        _late,
    )


def _heads(call: Call) -> Iterator[Suspect]:
    H, G = call.shape[0], call.groups
    if 1 < G < H and call.k is not None and call.v is not None:
        tiled = np.arange(H) % G
        cause, mend = (
            "keys and values are repeated as blocks (repeat, tile, expand) where each should be repeated in place",
            "use repeat_interleave: head h reads key head h // (H / G)",
        )
        yield Suspect(
            ("groups",),
            f"query head h over key head h mod {G} where h // {H // G} was asked",
            cause,
            mend,
            replace(call, k=call.k[tiled], v=call.v[tiled]),
        )
    if G > 1 and call.k is not None and call.v is not None:
        for what in ("k", "v"):
            yield Suspect(
                ("heads",),
                f"{what} of the next head",
                "heads are counted from another start",
                "count heads from 0",
                replace(call, **{what: np.roll(getattr(call, what), -1, 0)}),
            )


def _softmax(call: Call) -> Iterator[Suspect]:
    # Seen only in texts so short that all rows are read.
    yield Suspect(
        ("softmax",),
        "a softmax over the queries",
        "the softmax runs along the wrong axis",
        "softmax over the last axis, the keys",
        call,
        _over_queries,
    )


def _weigh(change) -> Weigh:
    return lambda scores, allowed, sinks: normalised(scores, change(allowed), sinks)


def _off_by_one(mask: Expr, K: int) -> Iterator[tuple[str, Expr]]:
    """The mask with a bound moved by one key. Before the first key and after the last a neighbouring row tells what
    would be there.
    """
    before = ((key > 0) & _put(mask, "key", key - 1)) | ((key <= 0) & _put(mask, "query", query + 1))
    after = ((key < K - 1) & _put(mask, "key", key + 1)) | ((key >= K - 1) & _put(mask, "query", query - 1))
    yield "one key more on the right", mask | before
    yield "one key more on the left", mask | after
    yield "one key less on the right", mask & after
    yield "one key less on the left", mask & before
    yield "all moved one key to the right", before
    yield "all moved one key to the left", after


def _put(rule: Expr, name: str, value: Expr) -> Expr:
    """The rule with another expression in place of a variable."""
    return fold(
        rule,
        lambda node: node,
        lambda node: value if node.name == name else node,
        lambda node, *index: Read(node.table, *index),
        lambda node, *args: Op(node.name, *args),
    )


def _added(scores, allowed, sinks):
    return normalised(scores + allowed, np.ones_like(allowed), sinks)


def _multiplied(scores, allowed, sinks):
    return normalised(scores * allowed, np.ones_like(allowed), sinks)


def _late(scores, allowed, sinks):
    return normalised(scores, np.ones_like(allowed), sinks) * allowed


def _over_queries(scores, allowed, sinks):
    return normalised(scores.swapaxes(1, 2), allowed.swapaxes(1, 2), None).swapaxes(1, 2)
