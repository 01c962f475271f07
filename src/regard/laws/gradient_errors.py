"""How far rounding moves the gradients of a call."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from .backward import flow, over_shape, summed_to
from .rounding import Rounding, Units, finite


class GradientErrors:
    """The errors of the gradients of one call.

    errors: those of its forward pass · out: the largest error of the output, which δ is computed from
    """

    def __init__(self, errors: Rounding, out: np.ndarray):
        self.errors, self.out, self.units = errors, out, errors.units
        self.attended = errors.attended
        self.dout = finite(errors.call.dout) if errors.call.dout is not None else np.zeros(out.shape)
        self.flow = flow(
            errors.arguments,
            errors.outcome._replace(**{name: finite(getattr(errors.outcome, name)) for name in ("out", "weights")}),
            errors.call,
            errors.products,
            self.dout,
            errors.v,
        )

    @cached_property
    def beyond(self) -> bool:
        """Whether an intermediate number exceeds the dtype, so that nothing is known of the gradients."""
        sizes = (abs(self.dout) @ abs(self.errors.v).swapaxes(-1, -2), self.flow.delta, self.flow.rest)
        largest = max((float(abs(each).max(initial=0)) for each in sizes), default=0.0)
        return bool(self.errors.beyond.any()) or largest > 0.99 * self.units.most

    @cached_property
    def weights(self) -> np.ndarray:
        """The errors of the weights (sinks after the keys): those of the forward pass, or of weights that are computed
        again from the scores and lse in the dtype of sums, and then do not add up to 1.
        """
        errors, units = self.errors, self.units
        wide = Units(units.sums, units.sums, units.least, units.most)
        summed = Rounding(errors.arguments, errors.outcome, errors.call, wide)
        again = np.expm1(np.minimum(summed.exponents + summed.lse_errors[..., None], 50))
        return errors.weight_errors + errors.weights * again

    @cached_property
    def dweights(self) -> np.ndarray:
        """The errors of dout·v."""
        sizes = abs(self.dout) @ abs(self.errors.v).swapaxes(-1, -2)
        E = self.dout.shape[-1]
        return self.units.of_product(E) * sizes + E * self.units.least

    @cached_property
    def rest(self) -> np.ndarray:
        """The errors of dlse − δ (B, H, Q, 1), with δ = Σ dout · out or δ = Σ weights · dweights."""
        units, E, K = self.units, self.dout.shape[-1], self.errors.k.shape[2]
        out = finite(self.errors.outcome.out)
        from_out = (abs(self.dout) * (self.out + units.of_product(E) * abs(out))).sum(-1, keepdims=True)
        w, dw, moved = self.errors.weights[..., :K], abs(self.flow.dweights), self.weights[..., :K]
        terms = moved * dw + (w + moved) * self.dweights + units.of_sum(self.errors.count) * w * dw
        from_weights = np.where(self.attended, terms, 0).sum(-1, keepdims=True)
        dlse = 0 if self.errors.call.dlse is None else abs(finite(self.errors.call.dlse))[..., None]
        return np.maximum(from_out, from_weights) + units.one * (abs(self.flow.delta)[..., None] + dlse)

    def through(self, weights: np.ndarray, moved: np.ndarray, dweights: np.ndarray, error: np.ndarray) -> np.ndarray:
        """The errors of weights · (dweights + rest), given those of the weights and of dweights + rest."""
        rest = self.flow.rest[..., None]
        size = abs(dweights) + abs(rest)
        error = error + self.units.one * size
        return moved * abs(dweights + rest) + (weights + moved) * error + self.units.one * weights * size

    @cached_property
    def scores(self) -> dict[str, np.ndarray]:
        """The errors of the gradients of the score after each of its changes, by the names of `Flow.through`."""
        K, one = self.errors.k.shape[2], self.units.one
        w, moved = self.errors.weights[..., :K], self.weights[..., :K]
        error = self.through(w, moved, self.flow.dweights, self.dweights + self.rest) + self.units.least
        error = np.where(self.attended, error, 0)
        found = {}
        for place in range(len(self.errors.steps) - 1, 0, -1):
            name, score, of_score = self.errors.steps[place]
            found[name] = error
            if name == "softcap":
                assert self.errors.call.softcap is not None
                share, off = score / self.errors.call.softcap, of_score / abs(self.errors.call.softcap)
                slope = 1 - share**2
                of_slope = np.minimum(1, 2 * abs(share) * off + off**2 + 3 * one)
                gradient = abs(self.flow.through[name])
                error = error * (slope + of_slope) + gradient * of_slope + one * gradient * slope
                error = np.where(self.attended, error, 0)
        found["product"] = error
        return found

    def of(self, role: str) -> np.ndarray:
        """The errors of the gradient of one argument, before it is rounded to its dtype."""
        errors, units, scale = self.errors, self.units, abs(self.errors.arguments.scale)
        K = errors.k.shape[2]
        if role in ("q", "k"):
            moved, sizes = scale * self.scores["product"], scale * abs(self.flow.through["product"])
            least = units.least * scale * self.attended
            if role == "q":
                k = abs(errors.k)
                return moved @ k + units.of_sum(errors.count) * (sizes @ k) + least @ k
            q = abs(errors.q)
            total = [each.swapaxes(-1, -2) @ q for each in (moved, sizes, least)]
            return self.over_rows(total, errors.key_heads, errors.call.k.shape[1])
        if role == "v":
            each = (self.weights[..., :K], errors.weights[..., :K], units.least * self.attended)
            total = [part.swapaxes(-1, -2) @ abs(self.dout) for part in each]
            return self.over_rows(total, errors.value_heads, errors.call.v.shape[1])
        if role == "bias":
            assert errors.call.bias is not None
            shape = errors.call.bias.shape
            terms = np.sqrt(self.attended.size / max(np.prod(shape), 1))
            sizes = over_shape(abs(self.flow.through["bias"]), shape)
            return over_shape(self.scores["bias"], shape) + (units.one + units.sums * terms) * sizes
        B, _, Q, _ = self.attended.shape
        w, moved = errors.weights[..., K:], self.weights[..., K:]
        error = self.through(w, moved, np.zeros(1), self.rest)
        sizes = w * abs(self.flow.rest[..., None])
        return (error + units.of_sum(B * Q) * sizes).sum((0, 2))[:, 0]

    def over_rows(self, total: list[np.ndarray], heads: np.ndarray, count: int) -> np.ndarray:
        """The sum over rows and heads of errors, and that of their additions, from both and the smallest numbers."""
        terms = self.attended.shape[2] * len(heads) / max(count, 1)
        moved, sizes, least = (summed_to(part, heads, count) for part in total)
        return moved + self.units.of_sum(terms) * sizes + least
