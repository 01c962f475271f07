"""A second derivation of the law: plain Python numbers and loops over pairs, read from the call and the conventions
alone.
"""

import math
from typing import NamedTuple

import numpy as np

UNIT = 2.0**-53


class DerivationsDiffer(AssertionError):
    """The two derivations of the law give different results: a defect of regard."""


class ByHand(NamedTuple):
    """out (B, H, Q, E), lse (B, H, Q), and how far each may be from another computation in float64."""

    out: np.ndarray
    lse: np.ndarray
    out_error: np.ndarray
    lse_error: np.ndarray


def by_hand(call, adapter):
    """The results of a call, pair by pair. Fully masked rows give 0, and −∞ or the sink for lse."""
    B, H, Q, E = (call.dims[name] for name in "BHQE")
    shape = (B, H, Q)
    found = ByHand(np.zeros((*shape, E)), np.zeros(shape), np.zeros((*shape, E)), np.zeros(shape))
    for place in np.ndindex(*shape):
        row = Row(call, adapter, *place)
        found.lse[place], found.lse_error[place] = row.lse()
        for column in range(E):
            found.out[(*place, column)], found.out_error[(*place, column)] = row.out(column)
    return found


def confirm(call, adapter, outcome):
    """Compare an outcome of the law with this derivation.

    Raises:
        DerivationsDiffer: they differ by more than rounding in float64.
    """
    mine = by_hand(call, adapter)
    for what in ("out", "lse"):
        here, there = getattr(mine, what), getattr(outcome, what)
        with np.errstate(all="ignore"):  # infinities and NaN
            near = abs(here - there) <= getattr(mine, f"{what}_error")
        wrong = ~(near | (here == there) | (np.isnan(here) & np.isnan(there)))
        if wrong.any():
            place = tuple(int(index[0]) for index in np.nonzero(wrong))
            raise DerivationsDiffer(f"{what}{[*place]} is {there[place]!r} by the law and {here[place]!r} pair by pair")


class Row:
    """One row of one head of one batch entry."""

    def __init__(self, call, adapter, b, h, i):
        H, G, K, D = (call.dims[name] for name in "HGKD")
        group = h % G if adapter.groups == "tile" else h // (H // G)
        self.values = call.v[b, group]
        self.depth = D
        query = [float(x) for x in call.q[b, h, i]]
        scale = call.scale if call.scale is not None else adapter.scale if adapter.scale is not None else D**-0.5
        existing = K if call.lengths is None or adapter.layout != "THD" else int(call.lengths[b])
        position = i if adapter.causal == "top-left" else i + existing - call.dims["Q"]
        self.keys = [
            j for j in range(K) if allowed(call, (b, h, i, j), position, call.causal or "causal" in adapter.always)
        ]
        self.scores, self.sizes = [], []
        for j in self.keys:
            products = [x * float(y) for x, y in zip(query, call.k[b, group, j], strict=True)]
            bias = 0.0 if call.bias is None else float(at(call.bias, (b, h, i, j)))
            distance = slope(h, H) * abs(position - j) if "alibi" in adapter.always else 0.0
            self.scores.append(changed(scale * total(products) - distance, bias, call.softcap, adapter.softcap))
            size = abs(scale) * math.fsum(abs(x) for x in products if math.isfinite(x))
            self.sizes.append(size + finite(bias) + distance)
        self.sinks = [] if call.sinks is None else [float(call.sinks[h])]
        self.top = max([s for s in (*self.scores, *self.sinks) if not math.isnan(s)], default=-math.inf)
        self.broken = self.top == math.inf or any(math.isnan(s) for s in (*self.scores, *self.sinks))
        self.powers = [self.power(s) for s in self.scores]
        self.below = math.fsum([*self.powers, *(self.power(s) for s in self.sinks)])

    def power(self, score):
        """exp(score − the largest)."""
        return 0.0 if self.broken or score == -math.inf else math.exp(score - self.top)

    @property
    def error(self):
        """The relative error of a weight."""
        size = max([*self.sizes, *map(finite, self.scores), *map(finite, self.sinks)], default=0.0)
        return UNIT * (16 + 2 * self.depth + 2 * len(self.keys) + (8 + self.depth) * size)

    def lse(self):
        """ln Σ exp(score), and its error."""
        if self.broken:
            return math.nan, 0.0
        if self.below == 0:
            return -math.inf, 0.0
        found = self.top + math.log(self.below)
        return found, self.error + 4 * UNIT * abs(found)

    def out(self, column):
        """Σ weight · value, and its error."""
        present = [place for place, score in enumerate(self.scores) if score != -math.inf]
        if not present:
            return 0.0, 0.0
        if self.broken:
            return math.nan, 0.0
        terms = []
        for place in present:
            weight, value = self.powers[place] / self.below, float(self.values[self.keys[place], column])
            if weight != 0:
                terms.append(weight * value)
        return total(terms), 4 * self.error * math.fsum(abs(term) for term in terms if math.isfinite(term))


def allowed(call, pair, position, causal):
    """Whether a pair of a row and a key is allowed; position: that of the row among the keys."""
    b, _, _, j = pair
    before, after = (None, None) if call.window is None else call.window
    return not (
        (call.mask is not None and not at(call.mask, pair))
        or (causal and j > position)
        or (before is not None and j < position - before)
        or (after is not None and j > position + after)
        or (call.lengths is not None and j >= call.lengths[b])
    )


def slope(head, heads):
    """The slope of ALiBi for a head, as the code of its paper has it."""
    power = 2 ** math.floor(math.log2(heads))
    if head < power:
        return 2.0 ** (-8 * (head + 1) / power)
    return 2.0 ** (-4 * (2 * (head - power) + 1) / power)


def changed(score, bias, cap, order):
    """The score with its softcap and its bias."""
    if order == "after-bias":
        return capped(score + bias, cap)
    return capped(score, cap) + bias


def capped(score, cap):
    """cap · tanh(score / cap)."""
    return score if cap is None else cap * math.tanh(score / cap)


def at(array, pair):
    """The entry of a pair, in an array that may have one entry for all along an axis."""
    return array[tuple(place if size > 1 else 0 for place, size in zip(pair, array.shape, strict=True))]


def total(terms):
    """The sum, correctly rounded; infinities and NaN as additions give them."""
    return math.fsum(terms) if all(map(math.isfinite, terms)) else sum(terms)


def finite(x):
    """|x|, and 0 for infinities and NaN."""
    return abs(x) if math.isfinite(x) else 0.0
