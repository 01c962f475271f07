"""Legitimate computations of attention in one dtype, which differ in rounding only: what the bounds have to allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from regard.common.dtypes import FLOATS
from regard.laws.arguments import Arguments, heads_of, summed_over_shape
from regard.laws.call import Call
from regard.laws.forward import Outcome

__all__ = ["VARIANTS", "Results", "Variant", "results"]

Array = np.ndarray
LOG2E = 1.4426950408889634


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to compute attention.

    permuted: the keys in another order · parts: of the keys, merged by their lse · block: the number of keys that are
    added at a time, with a running maximum; 0 for all · scale: multiplied into "q", "k", "both" (its root into each)
    or the "product" · base_2: powers of 2 · divides: each weight "before" the sum over values, or the output at the
    "end" · sums: "vector" (as NumPy does), "sequential", "pairwise" or "wide" (in float64, rounded once) · eager: every
    operation is rounded to the dtype of the call · rounds_weights: weights and gradients of scores are rounded to it
    before they are multiplied by a matrix · again: the backward pass computes the weights from lse, not from those of
    the forward pass · delta: Σ dout · "out", or Σ "weights" · dweights
    """

    name: str
    permuted: bool = False
    parts: int = 1
    block: int = 0
    scale: str = "product"
    base_2: bool = False
    divides: str = "before"
    sums: str = "vector"
    eager: bool = False
    rounds_weights: bool = False
    again: bool = False
    delta: str = "weights"

    def legitimate(self, keys: int) -> bool:
        """Whether it is one for this number of keys: a single running sum of thousands of numbers is not."""
        return keys <= 512 or (self.sums != "sequential" and self.block != 1)


VARIANTS = (
    Variant(name="textbook"),
    Variant(name="scale in q", scale="q"),
    Variant(name="scale in k", scale="k"),
    Variant(name="scale in both", scale="both"),
    Variant(name="powers of 2", scale="q", base_2=True, divides="end"),
    Variant(name="powers of 2, scaled after", base_2=True),
    Variant(name="divided at the end", divides="end"),
    Variant(name="sequential", sums="sequential"),
    Variant(name="sequential, at the end", sums="sequential", divides="end"),
    Variant(name="pairwise", sums="pairwise", scale="q"),
    Variant(name="sums in float64", sums="wide"),
    Variant(name="permuted", permuted=True, divides="end"),
    Variant(name="blocks of 1", block=1, divides="end"),
    Variant(name="blocks of 16", block=16, divides="end", again=True, delta="out"),
    Variant(name="blocks of 128, base 2", block=128, base_2=True, scale="q", divides="end", again=True, delta="out"),
    Variant(name="2 parts", parts=2, again=True, delta="out"),
    Variant(name="7 parts, blocks of 16", parts=7, block=16, divides="end", again=True, delta="out"),
    Variant(name="64 parts, permuted", parts=64, permuted=True, divides="end", again=True),
    Variant(name="rounded weights", rounds_weights=True),
    Variant(name="rounded weights, blocks", rounds_weights=True, block=64, divides="end", again=True, delta="out"),
    Variant(name="rounded weights, scale in q", rounds_weights=True, scale="q", base_2=True, divides="end"),
    Variant(name="eager", eager=True),
    Variant(name="eager, scale in q", eager=True, scale="q"),
    Variant(name="eager, scale in both", eager=True, scale="both"),
    Variant(name="eager, at the end", eager=True, scale="k", divides="end"),
    Variant(name="eager, delta from out", eager=True, delta="out"),
)


@dataclass(frozen=True)
class Results:
    """What a variant returns, in float64: out, lse, weights, and gradients by role."""

    out: Array
    lse: Array
    weights: Array
    gradients: dict[str, Array]


def results(variant: Variant, arguments: Arguments, outcome: Outcome, call: Call) -> Results:
    """The results of a call by a variant; the outcome says which pairs are allowed."""
    with np.errstate(all="ignore"):
        return Computation(variant, arguments, outcome.allowed, call).results()


class Computation:
    """One call, computed by a variant in the dtype of sums of the call."""

    def __init__(self, variant: Variant, arguments: Arguments, allowed: Array, call: Call):
        self.how, self.arguments, self.call = variant, arguments, call
        self.dtype, self.work = call.dtype, FLOATS[FLOATS[call.dtype.name].sums].numpy
        H, K = call.q.shape[1], call.k.shape[2]
        self.key_heads, self.value_heads = heads_of(arguments.key_heads, H), heads_of(arguments.value_heads, H)
        self.order = np.random.default_rng(K).permutation(K) if variant.permuted else np.arange(K)
        self.q = call.q.astype(self.work)
        self.k = call.k.astype(self.work)[:, self.key_heads][:, :, self.order]
        self.v = call.v.astype(self.work)[:, self.value_heads][:, :, self.order]
        self.allowed = allowed[..., self.order]
        self.back = np.argsort(self.order)
        base = LOG2E if variant.base_2 else 1.0
        self.unit = self.work.type(base)
        self.power: Callable[[Array], Array] = np.exp2 if variant.base_2 else np.exp
        self.log: Callable[[Array], Array] = np.log2 if variant.base_2 else np.log

    def stored(self, array: Array) -> Array:
        """Rounded to the dtype of the call."""
        return array.astype(self.dtype).astype(self.work)

    def rounded(self, array: Array) -> Array:
        """After an operation."""
        return self.stored(array) if self.how.eager else array.astype(self.work, copy=False)

    def factor(self, array: Array) -> Array:
        """A factor of a matrix product."""
        return self.stored(array) if self.how.rounds_weights else array

    def product(self, a: Array, b: Array) -> Array:
        """a @ b with the sums of the variant."""
        if self.how.sums == "vector" or (self.how.sums == "wide" and self.work == np.float64):
            return self.rounded(a @ b)
        if self.how.sums == "wide":
            return self.rounded(a.astype(np.float64) @ b.astype(np.float64))
        terms = [a[..., :, d : d + 1] * b[..., d : d + 1, :] for d in range(a.shape[-1])]
        return added(terms, self.how.sums == "pairwise", (*a.shape[:-1], b.shape[-1]), self.work)

    def total(self, array: Array, axis: int = -1) -> Array:
        """The sum along an axis, which stays."""
        if self.how.sums == "wide":
            return self.rounded(array.astype(np.float64).sum(axis, keepdims=True))
        if self.how.sums == "sequential" and array.shape[axis]:
            return np.take(np.cumsum(array, axis), [-1], axis)
        return self.rounded(array.sum(axis, keepdims=True))

    @cached_property
    def steps(self) -> list[tuple[str, Array]]:
        """The score after each of its changes, in nats; a product of base 2 that nothing changes is in that base."""
        scale, place = self.arguments.scale, self.how.scale
        fold = self.how.base_2 and not self.arguments.scores
        scale = self.work.type(scale * (LOG2E if fold else 1))
        q, k = self.q, self.k
        if place == "q":
            q = self.rounded(q * scale)
        elif place == "k":
            k = self.rounded(k * scale)
        elif place == "both":
            root = self.work.type(abs(scale) ** 0.5)
            q, k = self.rounded(q * (root * np.sign(scale))), self.rounded(k * root)
        score = self.product(q, k.swapaxes(-1, -2))
        found = [("product", self.rounded(score * scale) if place == "product" else score)]
        for name in self.arguments.scores:
            score = found[-1][1]
            if name == "softcap":
                cap = self.work.type(self.call.softcap)
                score = self.rounded(cap * self.rounded(np.tanh(self.rounded(score / cap))))
            else:
                score = self.rounded(score + self.bias)
            found.append((name, score))
        return found

    @cached_property
    def bias(self) -> Array:
        """The bias with the keys in order."""
        bias = self.rounded(np.asarray(self.call.bias).astype(self.work))
        return bias[..., self.order] if bias.shape[-1] > 1 else bias

    @cached_property
    def scores(self) -> Array:
        """Times log₂ e, if powers are of 2; −∞ where not allowed."""
        score = self.steps[-1][1]
        if self.how.base_2 and self.arguments.scores:
            score = self.rounded(score * self.unit)
        return np.where(self.allowed, score, -np.inf).astype(self.work)

    @cached_property
    def sinks(self) -> Array | None:
        """The sinks (H, 1, S), times log₂ e, if powers are of 2."""
        if self.arguments.sinks is None:
            return None
        return self.rounded(self.arguments.sinks.astype(self.work)[:, None] * self.unit)

    def part(self, keys: slice, sinks: Array | None) -> tuple[Array, Array]:
        """out and lse (in the base of powers) of some keys, block by block."""
        scores, v, size = self.scores[..., keys], self.v[:, :, keys], self.how.block
        size = size or max(scores.shape[-1], 1)
        shape = scores.shape[:-1]
        top = np.full((*shape, 1), -np.inf, self.work)
        below, acc = np.zeros((*shape, 1), self.work), np.zeros((*shape, v.shape[-1]), self.work)
        if sinks is not None:
            top = np.broadcast_to(sinks.max(-1, keepdims=True), top.shape)
            below = self.rounded(below + self.total(self.rounded(self.power(self.rounded(sinks - top)))))
        for first in range(0, scores.shape[-1], size):
            some = scores[..., first : first + size]
            new = np.maximum(top, some.max(-1, keepdims=True))
            shift = np.where(np.isneginf(new), 0, new).astype(self.work)
            fade = self.rounded(self.power(self.rounded(top - shift)))
            powers = self.rounded(self.power(self.rounded(some - shift)))
            values = v[:, :, first : first + size]
            below = self.rounded(self.rounded(below * fade) + self.total(powers))
            if self.how.divides == "before" and size >= scores.shape[-1]:
                weights = self.rounded(powers / np.where(below == 0, 1, below))
                return self.product(self.factor(weights), values), self.lse(new, below)
            acc = self.rounded(self.rounded(acc * fade) + self.product(self.factor(powers), values))
            top = new
        return self.rounded(acc / np.where(below == 0, 1, below)), self.lse(top, below)

    def lse(self, top: Array, below: Array) -> Array:
        """top + log(below); −∞ for an empty sum."""
        return self.rounded(np.where(np.isneginf(top), -np.inf, top + self.log(below)).astype(self.work))

    @cached_property
    def forward(self) -> tuple[Array, Array]:
        """out and lse (B, H, Q, 1), not yet stored; lse in the base of powers."""
        K = self.k.shape[2]
        cuts = np.linspace(0, K, min(self.how.parts, max(K, 1)) + 1).astype(int)
        parts = [
            self.part(slice(low, high), self.sinks if place == 0 else None)
            for place, (low, high) in enumerate(pairwise(cuts))
        ]
        together = len(parts) if self.how.parts > 8 else 2  # how many are merged at once
        while len(parts) > 1:
            parts = [self.merged(parts[:together]), *parts[together:]]
        return parts[0]

    def merged(self, parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
        """Parts of the keys, merged by their lse."""
        outs, lses = (np.stack(each) for each in zip(*parts))
        top = lses.max(0)
        shares = self.power(lses - np.where(np.isneginf(top), 0, top).astype(self.work))
        below = shares.sum(0)
        return (outs * shares).sum(0) / np.where(below == 0, 1, below), self.lse(top, below)

    @cached_property
    def weights(self) -> Array:
        """The weights, normalised by lse or by their sum."""
        lse = self.forward[1]
        top = self.scores.max(-1, initial=-np.inf, keepdims=True)
        if self.sinks is not None:
            top = np.maximum(top, self.sinks.max(-1, keepdims=True))
        top = np.where(np.isneginf(top), 0, top).astype(self.work)
        if self.how.again:
            return self.power(self.scores - np.where(np.isneginf(lse), 0, lse).astype(self.work))
        powers = self.rounded(self.power(self.rounded(self.scores - top)))
        below = self.total(powers)
        if self.sinks is not None:
            below = self.rounded(below + self.total(self.rounded(self.power(self.rounded(self.sinks - top)))))
        return self.rounded(powers / np.where(below == 0, 1, below))

    def results(self) -> Results:
        """All results, stored as the dtype of the call; lse in that of sums, unless eager."""
        out, lse = self.forward
        lse = self.rounded(lse / self.unit)[..., 0]
        gradients = {} if self.call.dout is None else self.gradients()
        weights = self.stored(self.weights)[..., self.back]
        return Results(
            self.stored(out).astype(np.float64),
            lse.astype(np.float64),
            weights.astype(np.float64),
            {role: each.astype(np.float64) for role, each in gradients.items()},
        )

    def gradients(self) -> dict[str, Array]:
        """The gradients by role, stored as the dtype of the call."""
        dout, w, scale = (
            np.asarray(self.call.dout).astype(self.work),
            self.weights,
            self.work.type(self.arguments.scale),
        )
        dweights = self.product(dout, self.v.swapaxes(-1, -2))
        if self.how.delta == "out":
            delta = self.total(self.rounded(dout * self.stored(self.forward[0])))
        else:
            delta = self.total(self.rounded(w * dweights))
        rest = -delta
        if self.call.dlse is not None:
            rest = self.rounded(self.call.dlse.astype(self.work)[..., None] - delta)
        through = {}
        gradient = np.where(self.allowed, self.rounded(w * self.rounded(dweights + rest)), 0).astype(self.work)
        for name, score in reversed(self.steps[1:]):
            through[name] = gradient
            if name == "softcap":
                share = self.rounded(score / self.work.type(self.call.softcap))
                gradient = self.rounded(gradient * self.rounded(1 - self.rounded(share * share)))
        dproduct = self.factor(self.rounded(gradient * scale) if self.how.scale == "product" else gradient)
        after = self.work.type(1) if self.how.scale == "product" else scale
        dq = self.product(dproduct, self.k) * after
        dk = self.product(dproduct.swapaxes(-1, -2), self.q) * after
        dv = self.product(self.factor(w).swapaxes(-1, -2), dout)
        found = {
            "q": dq,
            "k": self.over_heads(dk, self.key_heads, self.call.k.shape[1]),
            "v": self.over_heads(dv, self.value_heads, self.call.v.shape[1]),
        }
        if self.call.bias is not None:
            found["bias"] = summed_over_shape(through["bias"][..., self.back], self.call.bias.shape)
        if self.sinks is not None:
            lse = self.forward[1]
            share = self.rounded(self.power(self.rounded(self.sinks - lse)))
            found["sinks"] = self.rounded(share * rest).sum((0, 2))[:, 0]
        return {role: self.stored(each) for role, each in found.items()}

    def over_heads(self, of_heads: Array, heads: Array, count: int) -> Array:
        """The sum over the query heads of each of `count` key heads, the keys in their order again."""
        of_heads = self.rounded(of_heads)[:, :, self.back]
        found = np.zeros((of_heads.shape[0], count, *of_heads.shape[2:]), self.work)
        for place, head in enumerate(heads):
            found[:, head] += of_heads[:, place]
        return found


def added(terms: list[Array], pairwise: bool, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """The sum of some arrays, one after the other or in pairs."""
    while pairwise and len(terms) > 1:
        terms = [sum(terms[place : place + 2][1:], terms[place]) for place in range(0, len(terms), 2)]
    return sum(terms[1:], terms[0]) if terms else np.zeros(shape, dtype)
