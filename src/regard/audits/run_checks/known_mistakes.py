"""The catalog of known mistakes in attention code, each with its likely cause and a fix. A mistake changes the
arguments of a call; it needs neither q, k and v nor a recording.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...language.expr import Expr, Op, Read, fold, key, query, walk
from ...language.masks import causal
from .masked_softmax import ToWeights, masked_softmax

__all__ = ["Arguments", "Mistake", "has_softcap", "mistakes", "scaled"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Arguments:
    """The arguments of one attention call of one batch entry: to_weights(score(scale · q·k), mask) · v.

    start: the position of row 0 on the key axis · sinks (H, S) · heads, queries, keys, depth: sizes of q and k ·
    key_heads, value_heads: for each key or value head of the call, the number of the given head that is used
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
    to_weights: ToWeights = masked_softmax

    @property
    def groups(self) -> int:
        """The number of key heads."""
        return len(self.key_heads)


@dataclass(frozen=True, eq=False)
class Mistake:
    """A known mistake. checks: names of the checks that report it · description: completes "the output is that of
    attention with …" · arguments: those that produce the output
    """

    checks: tuple[str, ...]
    description: str
    cause: str
    fix: str
    arguments: Arguments

    def after(self, other: Mistake) -> Mistake:
        """Both mistakes together; this one was made from `other.arguments`."""
        return replace(
            self,
            checks=other.checks + self.checks,
            description=f"{other.description} and {self.description}",
            cause=f"{other.cause}; {self.cause}",
            fix=f"{other.fix}; {self.fix}",
        )


def mistakes(arguments: Arguments) -> Iterator[Mistake]:
    """The known mistakes, simplest first; only those that change the arguments of this call."""
    yield from _without_argument(arguments)
    yield from _scales(arguments)
    yield from _masks(arguments)
    yield from _heads(arguments)
    yield from _softmax(arguments)


def has_softcap(score: Expr | None) -> bool:
    """Whether a score contains tanh, as a softcap does."""
    return score is not None and any(isinstance(node, Op) and node.name == "tanh" for node in walk(score))


def _without_argument(arguments: Arguments) -> Iterator[Mistake]:
    if arguments.score is not None:
        name = "softcap" if has_softcap(arguments.score) else "bias"
        yield Mistake(
            (name,),
            f"scores without the {name}",
            f"the implementation does not support a {name}, or drops the argument",
            f"use an implementation that supports it, or apply the {name} to the scores before the mask",
            replace(arguments, score=None),
        )
    if arguments.sinks is not None:
        yield Mistake(
            ("sinks",),
            "a softmax without its sinks",
            "the implementation drops the sinks",
            "add the sinks to the denominator: out · exp(lse − logaddexp(lse, sink))",
            replace(arguments, sinks=None),
        )


def _scales(arguments: Arguments) -> Iterator[Mistake]:
    s, D = arguments.scale, arguments.depth
    known = [
        (1.0, "no scale", "the scale is missing"),
        (
            s * s,
            "the scale applied twice",
            "q is scaled before a call that scales again, or the scale is 1/D instead of 1/√D",
        ),
        (1 / D, "scale 1/D", "the scale is 1/D instead of 1/√D"),
        (math.sqrt(D), "scale √D", "the scale is inverted"),
        (D**-0.5, "scale 1/√D", "the scale argument is ignored, and the default is used"),
        (2 * s, "twice the scale", "the scale is doubled"),
        (s / 2, "half the scale", "the scale is halved"),
    ]
    for value, description, cause in known:
        if not math.isclose(value, s, rel_tol=1e-6):
            yield scaled(arguments, value, description, cause)


def scaled(arguments: Arguments, value: float, description: str, cause: str) -> Mistake:
    """The mistake of another scale."""
    return Mistake(
        ("scale",),
        f"{description}: {value:.6g} instead of {arguments.scale:.6g}",
        cause,
        f"multiply q·k by {arguments.scale:.6g}, once",
        replace(arguments, scale=value),
    )


def _masks(arguments: Arguments) -> Iterator[Mistake]:
    K, Q = arguments.keys, arguments.queries
    if arguments.mask is None:
        yield Mistake(
            ("mask",),
            "a causal mask, although the call has no mask",
            "the implementation is causal by default",
            "pass is_causal=False",
            replace(arguments, mask=causal()),
        )
        return
    one = "a bound is off by one: < instead of ≤, or a diagonal counted from 1"
    move = "compare the first rows with the mask, and move the bound"
    yield Mistake(
        ("mask",),
        "no mask at all",
        "the mask is dropped, or is_causal is overridden",
        "pass the mask to the kernel",
        replace(arguments, mask=None),
    )
    for start, words in ((0, "top left: row 0 at key 0"), (K - Q, "bottom right: the last row at the last key")):
        for kind, rule in (("the mask", arguments.mask), ("a causal mask", causal())):
            if start != arguments.start:
                yield Mistake(
                    ("alignment",),
                    f"{kind} aligned {words}",
                    f"a mask of {Q} rows over {K} keys can be aligned top left or bottom right, and the implementation "
                    "uses the wrong one",
                    f"row 0 has position {arguments.start}: shift the mask by that",
                    replace(arguments, start=start, mask=rule),
                )
    yield Mistake(
        ("mask",),
        "a causal mask alone",
        "is_causal overrides the mask that was passed",
        "combine the causal mask and the other mask with &, and pass the result only",
        replace(arguments, mask=causal()),
    )
    yield Mistake(
        ("mask",),
        "a mask that is not causal",
        "is_causal is not passed to the kernel",
        "combine the causal mask and the other mask with &",
        replace(arguments, mask=arguments.mask | ~causal()),
    )
    yield Mistake(
        ("mask",),
        "only those keys masked that are masked for every row",
        "the padding mask is applied, and nothing else",
        "combine the padding mask and the rest of the mask with &",
        replace(
            arguments,
            to_weights=_masked_by(lambda allowed: np.broadcast_to(allowed.any(-2, keepdims=True), allowed.shape)),
        ),
    )
    for description, rule in _off_by_one(arguments.mask, K):
        yield Mistake(("mask",), f"a mask off by one: {description}", one, move, replace(arguments, mask=rule))
    yield Mistake(
        ("mask",),
        "a causal mask that hides each row's own key",
        one,
        move,
        replace(arguments, mask=arguments.mask & (key < query)),
    )
    yield Mistake(
        ("mask",),
        "the inverted mask",
        "True means 'masked' to the caller and 'may attend' to the kernel, or vice versa",
        "invert it: ~mask",
        replace(arguments, mask=~arguments.mask),
    )
    yield Mistake(
        ("mask",),
        "a mask added as numbers 0 and 1",
        "a boolean mask is added to the scores",
        "convert it to 0 and −infinity, or use where(mask, scores, −infinity)",
        replace(arguments, to_weights=_added),
    )
    yield Mistake(
        ("mask",),
        "scores multiplied by the mask",
        "scores are multiplied by the mask before the softmax",
        "use where(mask, scores, −infinity)",
        replace(arguments, to_weights=_multiplied),
    )
    yield Mistake(
        ("mask",),
        "a mask that is applied after the softmax",
        "weights are set to 0 after they are normalized",
        "mask the scores before the softmax",
        replace(arguments, to_weights=_masked_after),
    )


def _heads(arguments: Arguments) -> Iterator[Mistake]:
    H, G = arguments.heads, arguments.groups
    if 1 < G < H:
        tiled = np.arange(H) % G
        yield Mistake(
            ("groups",),
            f"key/value head h mod {G} instead of h // {H // G} for query head h",
            "keys and values are repeated as blocks (repeat, tile, expand) instead of head by head (repeat_interleave)",
            "use repeat_interleave: query head h uses key/value head h // (H / G)",
            replace(arguments, key_heads=arguments.key_heads[tiled], value_heads=arguments.value_heads[tiled]),
        )
    if G > 1:
        for what, heads in (("k", "key_heads"), ("v", "value_heads")):
            yield Mistake(
                ("heads",),
                f"{what} of the next head",
                "heads are not counted from 0",
                "count heads from 0",
                replace(arguments, **{heads: np.roll(getattr(arguments, heads), -1)}),
            )


def _softmax(arguments: Arguments) -> Iterator[Mistake]:
    # Detected only if the text is so short that all rows are read.
    yield Mistake(
        ("softmax",),
        "a softmax over the queries",
        "the softmax is taken over the wrong axis",
        "take the softmax over the last axis, the keys",
        replace(arguments, to_weights=_over_queries),
    )


def _masked_by(change: Callable[[np.ndarray], np.ndarray]) -> ToWeights:
    return lambda scores, allowed, sinks: masked_softmax(scores, change(allowed), sinks)


def _off_by_one(mask: Expr, K: int) -> Iterator[tuple[str, Expr]]:
    """The mask with a bound moved by one key. Before the first key and after the last one, the value is read from the
    adjacent row.
    """
    before = ((key > 0) & _replaced(mask, "key", key - 1)) | ((key <= 0) & _replaced(mask, "query", query + 1))
    after = ((key < K - 1) & _replaced(mask, "key", key + 1)) | ((key >= K - 1) & _replaced(mask, "query", query - 1))
    yield "one key more on the right", mask | before
    yield "one key more on the left", mask | after
    yield "one key less on the right", mask & after
    yield "one key less on the left", mask & before
    yield "all moved one key to the right", before
    yield "all moved one key to the left", after


def _replaced(rule: Expr, name: str, value: Expr) -> Expr:
    """The expression with a variable replaced by another expression."""
    return fold(
        rule,
        lambda node: node,
        lambda node: value if node.name == name else node,
        lambda node, *index: Read(node.table, *index),
        lambda node, *args: Op(node.name, *args),
    )


def _added(scores, allowed, sinks):
    return masked_softmax(scores + allowed, np.ones_like(allowed), sinks)


def _multiplied(scores, allowed, sinks):
    return masked_softmax(scores * allowed, np.ones_like(allowed), sinks)


def _masked_after(scores, allowed, sinks):
    return masked_softmax(scores, np.ones_like(allowed), sinks) * allowed


def _over_queries(scores, allowed, sinks):
    return masked_softmax(scores.swapaxes(1, 2), allowed.swapaxes(1, 2), None).swapaxes(1, 2)
