"""What a call has to return under some conventions, with the bound on rounding: the judge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from .backward import backward
from .bound import Bounds, bound, compare, gradient_bounds
from .call import Answer, Call, Conventions
from .forward import dense, forward, meaning


@dataclass(frozen=True, eq=False)
class Comparison:
    """How an answer compares with what was expected.

    right: whether every number is within its bound · ratio: the largest |error| / bound · what: the result that it was
    found in ("out", "lse", "weights") · at: the index there · got, wanted: the numbers at that place
    """

    right: bool
    ratio: float = 0.0
    what: str = "out"
    at: tuple[int, ...] = ()
    got: float = 0.0
    wanted: float = 0.0

    def __str__(self) -> str:
        place = ", ".join(map(str, self.at))
        return f"{self.what}[{place}] is {self.got:.6g} and must be {self.wanted:.6g}: {self.ratio:.3g} times the bound"


@dataclass(frozen=True, eq=False)
class Expected:
    """out (B, H, Q, E), lse (B, H, Q) and weights (B, H, Q, K) with the bounds of each; promised, promised_lse: the
    rows (B, H, Q) about which the conventions say something
    """

    out: np.ndarray
    lse: np.ndarray
    weights: np.ndarray
    bounds: Bounds
    promised: np.ndarray
    promised_lse: np.ndarray

    def judge(self, answer: Answer) -> Comparison:
        """The worst place of an answer."""
        given = []
        for what in ("out", "lse", "weights"):
            got, wanted = getattr(answer, what), getattr(self, what)
            if got is not None:
                rows = self.promised_lse if what == "lse" else self.promised
                keep = rows if what == "lse" else np.broadcast_to(rows[..., None], wanted.shape)
                given.append(
                    (what, got if keep.all() else np.where(keep, got, wanted), wanted, getattr(self.bounds, what))
                )
        return _worst(given)


def _worst(given: Iterable[tuple[str, np.ndarray, np.ndarray, np.ndarray]]) -> Comparison:
    """The worst place of results, from their names, what came, what was wanted, and the bounds."""
    places = [Comparison(True)]
    for what, got, wanted, bounds in given:
        right, ratio, at = compare(got, wanted, bounds)
        numbers = (float(got[at]), float(wanted[at])) if got.size else (0.0, 0.0)
        places.append(Comparison(right, ratio, what, at, *numbers))
    return max(places, key=lambda each: (not each.right, each.ratio))


def expected(call: Call, conventions: Conventions) -> Expected:
    """The expected results of a call."""
    arguments = meaning(call, conventions)
    outcome = forward(arguments, call.q, call.k, call.v)
    bounds = bound(arguments, outcome, call)
    empty = ~(outcome.allowed & (outcome.scores != -np.inf)).any(-1)
    out, lse, weights, promised, promised_lse = outcome.out, outcome.lse, outcome.weights, ~empty, ~empty
    if conventions.lse == "natural-unscaled":
        kept = dense(outcome.scores != -np.inf, outcome.scores.shape, "kept", arguments.start)
        products = replace(arguments, scale=1.0, scores={}, masks={**arguments.masks, "kept": kept})
        of_products = forward(products, call.q, call.k, call.v)
        lse, bounds = of_products.lse, bounds._replace(lse=bound(products, of_products, call).lse)
    if empty.any():
        if conventions.empty_row == "zero":
            promised = np.ones_like(empty)
        elif conventions.empty_row != "any":
            # An entry without keys has no mean; a sum over none is 0 or NaN.
            promised = np.broadcast_to(np.any(_held(call, conventions), -1, keepdims=True)[..., None], empty.shape)
        known = conventions.empty_lse != "any" or call.sinks is not None
        promised_lse = np.ones_like(empty) if known else promised_lse
        out, weights = _empty_rows(out, weights, empty, call, arguments.value_heads, conventions)
        if conventions.empty_lse == "inf" and call.sinks is None:
            lse = np.where(empty, np.inf, lse)
    return Expected(out, lse, weights, bounds, promised, promised_lse)


def compared_gradients(call: Call, conventions: Conventions, answer: Answer) -> Comparison:
    """The worst place of the gradients of an answer."""
    wanted, bounds = expected_gradients(call, conventions)
    return _worst(
        (f"gradient of {role}", got, wanted[role], bounds[role])
        for role, got in answer.gradients.items()
        if role in wanted
    )


def expected_gradients(call: Call, conventions: Conventions) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The gradients of a call by role, and their bounds."""
    assert call.dout is not None
    arguments = meaning(call, conventions)
    outcome = forward(arguments, call.q, call.k, call.v)
    wanted = backward(arguments, call.q, call.k, call.v, call.dout, call.dlse)
    return wanted, gradient_bounds(arguments, outcome, call, wanted)


def _held(call: Call, conventions: Conventions) -> np.ndarray:
    """Which keys the batch entries hold, (B, K): all, hidden or not; a packed layout holds none beyond the lengths."""
    B, _, K, _ = call.k.shape
    packed = conventions.packed and call.lengths is not None
    return np.arange(K) < (np.asarray(call.lengths)[:, None] if packed else np.full((B, 1), K))


def _empty_rows(
    out, weights, empty, call: Call, heads: np.ndarray, conventions: Conventions
) -> tuple[np.ndarray, np.ndarray]:
    """Output and weights with the fully masked rows of the convention."""
    here = empty[..., None]
    if conventions.empty_row == "nan":
        return np.where(here, np.nan, out), np.where(here, np.nan, weights)
    if conventions.empty_row == "mean":
        held = _held(call, conventions)[:, None, None]
        alike = held / np.maximum(held.sum(-1, keepdims=True), 1)
        v = np.repeat(call.v.astype(np.float64)[:, heads], out.shape[1] // max(len(heads), 1), 1)
        return np.where(here, alike @ np.where(held.swapaxes(-1, -2), v, 0), out), np.where(here, alike, weights)
    return out, weights
