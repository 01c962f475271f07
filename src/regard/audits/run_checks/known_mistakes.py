"""Known mistakes: what an attention that does not do as it was told may be doing instead, each with its cause and its
mend. They change the rules of a call, whoever recorded it, and need no q, k and v.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...language.expr import Expr, Op, Read, fold, key, query, walk
from ...language.masks import causal
from .weighing import Weigh, normalised

__all__ = ["Mistake", "Rules", "capped", "mistakes", "scaled"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Rules:
    """What one attention call of one batch entry was told: weigh(score(scale · q·k), mask) · v.

    start: the position of row 0 on the key axis · sinks (H, S) · heads, queries, keys, depth: sizes of q and k ·
    key_heads, value_heads: which of the heads that were given stand as the first, second, … of keys and of values
    """

    mask: Expr | None
    score: Expr | None
    scale: float
    start: int
    sinks: np.ndarray | None
    heads: int
    queries: int
    keys: int
    depth: int
    key_heads: np.ndarray
    value_heads: np.ndarray
    weigh: Weigh = normalised

    @property
    def groups(self) -> int:
        """How many heads of keys there are."""
        return len(self.key_heads)


@dataclass(frozen=True, eq=False)
class Mistake:
    """One way to go wrong. checks: what finds it · does: the words after "the output is that of …" · rules: those that
    seem to have been carried out.
    """

    checks: tuple[str, ...]
    does: str
    cause: str
    mend: str
    rules: Rules

    def after(self, other: Mistake) -> Mistake:
        """Both at once: this one was made from `other.rules`."""
        return replace(
            self,
            checks=other.checks + self.checks,
            does=f"{other.does} and {self.does}",
            cause=f"{other.cause}; {self.cause}",
            mend=f"{other.mend}; {self.mend}",
        )


def mistakes(rules: Rules) -> Iterator[Mistake]:
    """The usual mistakes, the simplest first; only those that would make a difference to this call."""
    yield from _dropped(rules)
    yield from _scales(rules)
    yield from _masks(rules)
    yield from _heads(rules)
    yield from _softmax(rules)


def capped(score: Expr | None) -> bool:
    """Whether a score rule bends the scores with tanh, as softcaps do."""
    return score is not None and any(isinstance(node, Op) and node.name == "tanh" for node in walk(score))


def _dropped(rules: Rules) -> Iterator[Mistake]:
    if rules.score is not None:
        name = "softcap" if capped(rules.score) else "bias"
        yield Mistake(
            (name,),
            f"scores without the {name}",
            f"the implementation takes no {name}, or drops the argument",
            f"use an implementation that takes it, or apply the {name} to the scores before the mask",
            replace(rules, score=None),
        )
    if rules.sinks is not None:
        yield Mistake(
            ("sinks",),
            "a softmax without its sinks",
            "the implementation drops the sinks",
            "add the sinks to the denominator: out · exp(lse − logaddexp(lse, sink))",
            replace(rules, sinks=None),
        )


def _scales(rules: Rules) -> Iterator[Mistake]:
    s, D = rules.scale, rules.depth
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
            yield scaled(rules, value, does, cause)


def scaled(rules: Rules, value: float, does: str, cause: str) -> Mistake:
    """The call with another scale."""
    return Mistake(
        ("scale",),
        f"{does}: {value:.6g} where {rules.scale:.6g} was asked",
        cause,
        f"multiply q·k by {rules.scale:.6g}, once",
        replace(rules, scale=value),
    )


def _masks(rules: Rules) -> Iterator[Mistake]:
    K, Q = rules.keys, rules.queries
    if rules.mask is None:
        yield Mistake(
            ("mask",),
            "a causal mask where none was asked",
            "the implementation is causal by default",
            "say is_causal=False",
            replace(rules, mask=causal()),
        )
        return
    one = "a bound is off by one: < where ≤ belongs, or a diagonal counted from 1"
    fit = "compare the first rows with what the mask allows, and move the bound"
    yield Mistake(
        ("mask",),
        "no mask at all",
        "the mask is dropped, or is_causal is overridden",
        "pass the mask on to the kernel",
        replace(rules, mask=None),
    )
    for start, words in ((0, "top left: row 0 at key 0"), (K - Q, "bottom right: the last row at the last key")):
        for kind, rule in (("the mask", rules.mask), ("a causal mask", causal())):
            if start != rules.start:
                yield Mistake(
                    ("alignment",),
                    f"{kind} aligned {words}",
                    f"{Q} rows over {K} keys have two ends, and the implementation begins at the other one",
                    f"row 0 stands at position {rules.start}: shift the mask by it",
                    replace(rules, start=start, mask=rule),
                )
    yield Mistake(
        ("mask",),
        "a causal mask alone",
        "is_causal overrides the mask that was given",
        "merge causality into the mask, and pass one of them",
        replace(rules, mask=causal()),
    )
    yield Mistake(
        ("mask",),
        "a mask without causality",
        "is_causal was not passed on",
        "merge causality into the mask",
        replace(rules, mask=rules.mask | ~causal()),
    )
    yield Mistake(
        ("mask",),
        "a mask of which only the hidden keys are kept",
        "padding is masked, and nothing else",
        "merge padding and the rest of the mask with &",
        replace(rules, weigh=_weigh(lambda allowed: np.broadcast_to(allowed.any(-2, keepdims=True), allowed.shape))),
    )
    for does, rule in _off_by_one(rules.mask, K):
        yield Mistake(("mask",), f"a mask off by one: {does}", one, fit, replace(rules, mask=rule))
    yield Mistake(
        ("mask",), "a causal mask without the row itself", one, fit, replace(rules, mask=rules.mask & (key < query))
    )
    yield Mistake(
        ("mask",),
        "the inverted mask",
        "true means 'hidden' to the caller and 'may attend' to the kernel, or the other way",
        "invert it: ~mask",
        replace(rules, mask=~rules.mask),
    )
    yield Mistake(
        ("mask",),
        "a mask added as numbers 0 and 1",
        "booleans are added to the scores",
        "turn them into 0 and −infinity, or use where(mask, scores, −infinity)",
        replace(rules, weigh=_added),
    )
    yield Mistake(
        ("mask",),
        "scores that the mask sets to 0",
        "scores are multiplied by the mask before the softmax",
        "use where(mask, scores, −infinity)",
        replace(rules, weigh=_multiplied),
    )
    yield Mistake(
        ("mask",),
        "a mask that comes after the softmax",
        "weights are set to 0 when they are already normalised",
        "mask the scores before the softmax",
        replace(rules, weigh=_late),
    )


def _heads(rules: Rules) -> Iterator[Mistake]:
    H, G = rules.heads, rules.groups
    if 1 < G < H:
        tiled = np.arange(H) % G
        cause, mend = (
            "keys and values are repeated as blocks (repeat, tile, expand) where each should be repeated in place",
            "use repeat_interleave: head h reads key head h // (H / G)",
        )
        yield Mistake(
            ("groups",),
            f"query head h over key head h mod {G} where h // {H // G} was asked",
            cause,
            mend,
            replace(rules, key_heads=rules.key_heads[tiled], value_heads=rules.value_heads[tiled]),
        )
    if G > 1:
        for what, heads in (("k", "key_heads"), ("v", "value_heads")):
            yield Mistake(
                ("heads",),
                f"{what} of the next head",
                "heads are counted from another start",
                "count heads from 0",
                replace(rules, **{heads: np.roll(getattr(rules, heads), -1)}),
            )


def _softmax(rules: Rules) -> Iterator[Mistake]:
    # Seen only in texts so short that all rows are read.
    yield Mistake(
        ("softmax",),
        "a softmax over the queries",
        "the softmax runs along the wrong axis",
        "softmax over the last axis, the keys",
        replace(rules, weigh=_over_queries),
    )


def _weigh(change: Callable[[np.ndarray], np.ndarray]) -> Weigh:
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
