"""Trial: whether the law with some mistakes gives what a function answered, within what tolerance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...common.dtypes import FLOATS
from ...language.analysis import in_range
from ..call import Answer, Call
from ..conventions.fields import Adapter
from ..law.arguments import Arguments, product
from ..law.backward import along, backward, derived
from ..law.forward import Outcome, forward, meaning, on_heads
from .mistake import Mistake
from .probes import Probe


def tolerance(arguments: Arguments, outcome: Outcome, call: Call) -> tuple[np.ndarray, np.ndarray]:
    """(bound of out, bound of lse): c · (u · κ + u) · Σ w |v| + u |out|, κ = max Σ |scale · q_d k_d|."""
    unit = FLOATS[str(call.dtype)].roundoff
    q, k, v = (np.nan_to_num(np.asarray(part, np.float64), posinf=0, neginf=0) for part in (call.q, call.k, call.v))
    with np.errstate(all="ignore"):
        q, k, v = arguments.inputs(q, k, v)
        k, v = on_heads(arguments, q, k, v)
        size = abs(arguments.scale) * (np.abs(q) @ np.abs(k).swapaxes(-1, -2)).max(-1, initial=0)
        if arguments.product is not product:
            size = np.fmax(size, np.abs(np.where(outcome.allowed, outcome.scores, 0)).max(-1, initial=0))
        size = 8 * unit * (1 + size)
        weights = np.abs(np.nan_to_num(outcome.weights, posinf=0, neginf=0))
        spread = arguments.finish(size[..., None] * (weights @ np.abs(v)))
        shape = outcome.lse.shape
        out = spread + 4 * unit * np.abs(outcome.out) + 1e-30
        size = size.swapaxes(1, 2) if size.shape != shape == size.swapaxes(1, 2).shape else size
        return out, np.broadcast_to(size, shape) + 8 * unit * np.abs(outcome.lse)


SLACK = 2  # times the bound: a mistaken computation may round more than a right one
SHARE = 0.1  # of the difference from the right law that a mistake may leave, besides half of the bound
GRADIENT = 2.0**-16  # of the largest number of a gradient, where no bound is given

DIRECTIONS = 3  # along which gradients are compared that only finite differences give
DIFFERENCES = 128  # the most numbers of gradients that are computed as finite differences, one by one
SLOW = 8  # the most mistakes per call whose gradients are compared by finite differences
PRODUCTS = 1 << 14  # that take about as long as the rest of a forward pass


@dataclass(frozen=True, eq=False)
class Observed:
    """One call and its answer, with the bounds of a right answer; ∞ where nothing is known of it."""

    id: str
    call: Call
    answer: Answer
    bound_out: np.ndarray | None = None
    bound_lse: np.ndarray | None = None
    bound_gradients: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def work(self) -> int:
        """The products of a call, which its time grows with."""
        B, H, Q, K, D, E = (self.call.dims[name] for name in "BHQKDE")
        return B * H * Q * K * (D + E)


class Result(NamedTuple):
    """One result of a call, and how far an answer may be from it."""

    value: np.ndarray
    bound: np.ndarray


class Trial:
    """What the law gives for observed calls, alone and with mistakes, under the conventions of an adapter.

    effort: how many forward passes were computed, where large ones count more
    """

    def __init__(self, adapter: Adapter):
        self.adapter = adapter
        self.effort = 0.0
        self._meant: dict[Observed, Arguments] = {}
        self._right: dict[Observed, dict[str, Result]] = {}
        self._right_slopes: dict[Observed, dict[str, Result]] = {}
        self._slow: Counter[Observed] = Counter()

    def arguments_of(self, seen: Observed) -> Arguments:
        """The arguments of a call."""
        if seen not in self._meant:
            self._meant[seen] = meaning(seen.call, self.adapter)
        return self._meant[seen]

    def arguments(self, seen: Observed, mistakes: tuple[Mistake, ...] = ()) -> Arguments | None:
        """The arguments of a call with these mistakes, one after the other; None if none makes a difference."""
        if not seen.work:
            return None  # without entries, rows or keys
        arguments = changed = self.arguments_of(seen)
        for mistake in mistakes:
            changed = mistake.change(changed) or changed
        return None if changed is arguments else changed

    def has_formula(self, seen: Observed, mistakes: tuple[Mistake, ...]) -> bool:
        """Whether the answer with these mistakes is computed without finite differences, which are slow and inexact."""
        arguments = None if seen.call.dout is None else self.arguments(seen, mistakes)
        return arguments is None or derived(arguments)

    def agrees(self, seen: Observed, mistakes: tuple[Mistake, ...]) -> bool | None:
        """Whether the law with these mistakes gives the answer; None if they make no difference to the call."""
        arguments = self.arguments(seen, mistakes)
        return None if arguments is None else self.agrees_with(seen, arguments)

    def contradicts(self, seen: Observed, mistakes: tuple[Mistake, ...]) -> bool:
        """Whether a right answer would have been another one with these mistakes. Fully masked rows do not count: a
        function with the mistake may treat them on their own.
        """
        arguments = self.arguments(seen, mistakes)
        if arguments is None or not self.has_formula(seen, mistakes) or self.agrees_with(seen, arguments):
            return False
        usual = self.arguments_of(seen)
        with np.errstate(all="ignore"):
            outcome = forward(usual, seen.call.q, seen.call.k, seen.call.v)
            empty = np.asarray((~outcome.allowed | np.isneginf(outcome.scores)).all(-1))
            if not empty.any():
                return True
            for what, found in self._results(seen, arguments).items():
                right = self._right_results(seen)[what]
                here = empty[..., None] if what == "out" else empty
                if found.value.shape != right.value.shape:
                    return True
                value = np.where(here, getattr(seen.answer, what), found.value)
                if not _same(getattr(seen.answer, what), Result(value, found.bound), right.bound):
                    return True
        return False

    def agrees_with(self, seen: Observed, arguments: Arguments) -> bool:
        """Whether the law with these arguments gives the answer, and what the right law does not explain in it."""
        with np.errstate(all="ignore"):
            unexplained = False
            for what, found in self._results(seen, arguments).items():
                right, got = self._right_results(seen)[what], getattr(seen.answer, what)
                if not _same(got, found, right.bound):
                    return False
                missed = _missed(got, right)
                unexplained |= bool(missed.any())
                if not _explained(got, found, right, missed):
                    return False
            return self._same_gradients(seen, arguments, unexplained)

    def _right_results(self, seen: Observed) -> dict[str, Result]:
        """The results of the right law, and the bounds of a right answer."""
        if seen not in self._right:
            results = self._results(seen, self.arguments_of(seen))
            for what, bound in (("out", seen.bound_out), ("lse", seen.bound_lse)):
                if what in results:
                    value, about = results[what]
                    results[what] = Result(value, SLACK * about if bound is None else bound)
            self._right[seen] = results
        return self._right[seen]

    def _results(self, seen: Observed, arguments: Arguments) -> dict[str, Result]:
        """The results of the law with these arguments that the function returns."""
        call, answer = seen.call, seen.answer
        self.effort += 1 + seen.work / PRODUCTS
        outcome = forward(arguments, call.q, call.k, call.v)
        bound_out, bound_lse = tolerance(arguments, outcome, call)
        found = {}
        if answer.out is not None:
            found["out"] = Result(self._declared_out(seen, outcome), bound_out)
        if answer.lse is not None:
            found["lse"] = Result(self._declared_lse(seen, outcome), bound_lse)
        return found

    def _right_shape(self, seen: Observed) -> tuple[int, ...]:
        """The shape of a right output; that of a mistaken one may be another."""
        return (*seen.call.q.shape[:3], seen.call.v.shape[3])

    def _declared_out(self, seen: Observed, outcome: Outcome) -> np.ndarray:
        """The output, with the fully masked rows that the adapter declares."""
        call, convention = seen.call, self.adapter.empty_row
        out = in_range(outcome.out, call.dtype)
        if convention == "zero" or out.shape != self._right_shape(seen):
            return out
        empty = ~outcome.allowed.any(-1, keepdims=True)
        if not empty.any():
            return out
        empty = empty & (out == 0).all(-1, keepdims=True)
        declared: Any = np.nan
        if convention == "any":
            declared = seen.answer.out
        elif convention == "mean":
            declared = np.repeat(call.v, out.shape[1] // call.v.shape[1], 1).mean(2, keepdims=True)
        return np.where(empty, declared, out)

    def _declared_lse(self, seen: Observed, outcome: Outcome) -> np.ndarray:
        """The lse, with the one of fully masked rows that the adapter declares."""
        lse = in_range(outcome.lse, np.float64 if seen.call.dtype == np.float64 else np.float32)
        if self.adapter.empty_lse == "-inf" or seen.answer.lse is None:
            return lse
        return np.where(np.isneginf(lse), np.inf if self.adapter.empty_lse == "inf" else seen.answer.lse, lse)

    def _same_gradients(self, seen: Observed, arguments: Arguments, unexplained: bool) -> bool:
        """unexplained: whether the right law does not give the results of the forward pass."""
        call, given = seen.call, seen.answer.gradients
        if call.dout is None or not given:
            return True
        if not derived(arguments):
            hidden = seen.answer.out is None or (seen.answer.lse is None and call.dlse is not None)
            self._slow[seen] += 1
            if not (unexplained or hidden) or self._slow[seen] > SLOW:
                return False  # another function has other results, not only other gradients
            roles = [role for role in given if role != "bias"]
            usual = arguments.backward is self.arguments_of(seen).backward
            if usual and all(np.isfinite(given[role]).all() for role in roles):
                self.effort += 2 * DIRECTIONS * (1 + seen.work / PRODUCTS)
                return _same_slopes(call, given, roles, arguments)
            if sum(part.size for part in given.values()) > DIFFERENCES:
                return False
            self.effort += 2 * DIFFERENCES * (1 + seen.work / PRODUCTS)
        self.effort += 2 + seen.work / PRODUCTS
        found = _gradients(seen, arguments)
        if not all(_same(given[role], found[role], seen.bound_gradients.get(role)) for role in found.keys() & given):
            return False
        right = self._right_gradients(seen)
        return all(
            _explained(given[role], found[role], right[role], _missed(given[role], right[role]))
            for role in found.keys() & given & right.keys()
        )

    def _right_gradients(self, seen: Observed) -> dict[str, Result]:
        if seen not in self._right_slopes:
            found = _gradients(seen, self.arguments_of(seen))
            bounds = seen.bound_gradients
            self._right_slopes[seen] = {
                role: Result(value, bounds.get(role, bound)) for role, (value, bound) in found.items()
            }
        return self._right_slopes[seen]


def _gradients(seen: Observed, arguments: Arguments) -> dict[str, Result]:
    """The gradients of a call, with bounds from the largest number of each."""
    call, found = seen.call, {}
    assert call.dout is not None
    for role, value in backward(arguments, call.q, call.k, call.v, call.dout, call.dlse).items():
        largest = np.max(np.abs(value), initial=0, where=np.isfinite(value))
        found[role] = Result(value, np.full(value.shape, GRADIENT * largest + 1e-30))
    return found


def _same_slopes(call: Call, given: Mapping[str, np.ndarray], roles: list[str], arguments: Arguments) -> bool:
    """Whether gradients are those of the law with these arguments along some random directions."""
    rng = np.random.default_rng(0)
    dlse = np.zeros(call.dout.shape[:3]) if call.dlse is None else call.dlse  # type: ignore[union-attr]
    for _ in range(DIRECTIONS):
        directions = {role: rng.choice([-1.0, 1.0], given[role].shape) for role in roles}
        slope = sum(float((given[role] * directions[role]).sum()) for role in roles)
        spread = {role: part[:, None] if role == "sinks" else part for role, part in directions.items()}
        right = along(arguments, call.q, call.k, call.v, call.dout, dlse, directions=spread)  # type: ignore[arg-type]
        if not abs(slope - right) <= GRADIENT * (1 + sum(float(np.abs(given[role]).sum()) for role in roles)):
            return False
    return True


def _same(actual: np.ndarray, found: Result, bound: np.ndarray | None) -> bool:
    """Whether numbers are those that were found, within their bound or that of a right answer where it is larger."""
    if actual.shape != found.value.shape:
        return False
    allowed = SLACK * (found.bound if bound is None else np.fmax(found.bound, bound))
    missed = _missed(actual, Result(found.value, np.where(np.isposinf(allowed), 0, allowed)))
    return not (missed if bound is None else missed & ~np.isposinf(bound)).any()


def _missed(actual: np.ndarray, result: Result) -> np.ndarray:
    """Where numbers are not within the bound of a result. Infinities and NaN must be equal."""
    near = (np.abs(actual - result.value) <= result.bound) | np.isposinf(result.bound)
    return ~(near | (actual == result.value) | (np.isnan(actual) & np.isnan(result.value)))


def _explained(actual: np.ndarray, found: Result, right: Result, missed: np.ndarray) -> bool:
    """Whether a mistake explains the difference from the right law where the answer is not within its bound: little of
    it is left.
    """
    counted = missed & np.isfinite(actual) & np.isfinite(right.value)
    if not counted.any():
        return True
    left, whole = (np.abs(actual - each.value)[counted].sum() for each in (found, right))
    return bool(left <= SHARE * whole + right.bound[counted].sum() / 2)


Function = Callable[[Probe], Arguments]


def mistaken(*mistakes: Mistake) -> Function:
    """A function with these mistakes: the arguments with which it computes a probe."""

    def arguments(probe: Probe) -> Arguments:
        found = meaning(probe.call, probe.adapter)
        for mistake in mistakes:
            found = mistake.change(found) or found
        return found

    return arguments


def answer_of(function: Function, probe: Probe) -> Answer:
    """The answer of a function to a probe, rounded to the dtype of the call."""
    call, arguments = probe.call, function(probe)
    outcome = forward(arguments, call.q, call.k, call.v)
    gradients = {}
    if call.dout is not None:
        gradients = backward(arguments, call.q, call.k, call.v, call.dout, call.dlse)
    with np.errstate(all="ignore"):
        return Answer(
            status="ok",
            out=_rounded(outcome.out, call.dtype),
            lse=_rounded(outcome.lse, np.float64 if call.dtype == np.float64 else np.float32),
            gradients={role: _rounded(part, call.dtype) for role, part in gradients.items()},
            dtype=str(call.dtype),
        )


def _rounded(array: np.ndarray, dtype: Any) -> np.ndarray:
    return array.astype(dtype).astype(np.float64)
