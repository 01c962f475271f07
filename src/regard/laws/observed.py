"""Observed: one call and what came of it, to be compared with the law, alone and with mistakes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..language.analysis import in_range
from .arguments import Arguments
from .backward import along, backward, derived
from .bound import first_order, units_of
from .call import Answer, Call, Conventions
from .forward import Outcome, forward, meaning
from .mistake import Mistake, apply

SLACK = 2  # times the bound: a mistaken computation may round more than a right one
SHARE = 0.1  # of the difference from the right law that a mistake may leave, besides half of the bound
GRADIENT = 2.0**-16  # of the largest number of a gradient, where no bound is known

DIRECTIONS = 3  # along which gradients are compared that only finite differences give
DIFFERENCES = 128  # the most numbers of gradients that are computed as finite differences, one by one
SLOW = 8  # the most mistakes per call whose gradients are compared by finite differences
FITTED = 8  # rows, at least, to which a number is fitted
PRODUCTS = 1 << 14  # that take about as long as the rest of a forward pass


class Observed(ABC):
    """What was observed of one call.

    id: its name in an explanation · arguments: those of the call, without mistakes · work: the products of a
    comparison, which its time grows with · answered: whether there are numbers to compare · effort: how many forward
    passes its comparisons took so far, where large ones count more
    """

    def __init__(self, id: str, arguments: Arguments, work: int, answered: bool = True):
        self.id, self.arguments, self.work, self.answered = id, arguments, work, answered
        self.effort = 0.0

    def mistaken(self, mistakes: Sequence[Mistake]) -> Arguments | None:
        """The arguments with these mistakes, one after the other; None if none makes a difference."""
        if not self.work:
            return None  # without entries, rows or keys
        changed = apply(mistakes, self.arguments)
        return None if changed is self.arguments else changed

    @abstractmethod
    def agrees(self, arguments: Arguments) -> bool:
        """Whether the law with these arguments gives what was observed, and what the right law does not explain."""

    def contradicts(self, arguments: Arguments) -> bool:
        """Whether what was observed is right, and would have been something else with these arguments."""
        return not self.agrees(arguments)

    def has_formula(self, arguments: Arguments) -> bool:
        """Whether a comparison takes no finite differences, which are slow and inexact."""
        return True

    def distance(self, arguments: Arguments) -> float:
        """How far the law with these arguments is from what was observed, for fits; infinite where nothing is known."""
        return math.inf

    def explained(self, mistakes: Sequence[Mistake]) -> bool:
        """Whether the law with these mistakes gives what was observed. False if they make no difference to the call."""
        arguments = self.mistaken(mistakes)
        return arguments is not None and self.agrees(arguments)


class Result(NamedTuple):
    """One result of a call, and how far an answer may be from it."""

    value: np.ndarray
    bound: np.ndarray


class ObservedAnswer(Observed):
    """One call of a function and its answer.

    bounds: those of a right answer by the name of the result ("out", "lse", "q", "k", …), ∞ where nothing is known of
    it; for what is missing they are computed · conventions: those of the function
    """

    def __init__(
        self,
        id: str,
        call: Call,
        answer: Answer,
        conventions: Conventions,
        bounds: Mapping[str, np.ndarray] | None = None,
    ):
        B, H, Q, K, D, E = (call.dims[name] for name in "BHQKDE")
        super().__init__(id, meaning(call, conventions), B * H * Q * K * (D + E), answer.status == "ok")
        self.call, self.answer, self.conventions, self.bounds = call, answer, conventions, bounds or {}
        self._slow = 0

    def has_formula(self, arguments: Arguments) -> bool:
        """Whether a comparison takes no finite differences, which are slow and inexact."""
        return self.call.dout is None or derived(arguments)

    def contradicts(self, arguments: Arguments) -> bool:
        """Whether what was observed is right, and would have been something else with these arguments. Fully masked
        rows do not count: a function with the mistake may treat them on their own.
        """
        if not self.has_formula(arguments) or self.agrees(arguments):
            return False
        with np.errstate(all="ignore"):
            outcome = forward(self.arguments, self.call.q, self.call.k, self.call.v)
            empty = np.asarray((~outcome.allowed | (outcome.scores == -np.inf)).all(-1))
            if not empty.any():
                return True
            for what, result in self._results(arguments).items():
                right = self._right[what]
                here = empty[..., None] if what == "out" else empty
                if result.value.shape != right.value.shape:
                    return True
                value = np.where(here, getattr(self.answer, what), result.value)
                if not _same(getattr(self.answer, what), Result(value, result.bound), right.bound):
                    return True
        return False

    def agrees(self, arguments: Arguments) -> bool:
        """Whether the law with these arguments gives the answer, and what the right law does not explain in it."""
        with np.errstate(all="ignore"):
            unexplained = False
            for what, result in self._results(arguments).items():
                right, actual = self._right[what], getattr(self.answer, what)
                if not _same(actual, result, right.bound):
                    return False
                missed = _missed(actual, right)
                unexplained |= bool(missed.any())
                if not _explained(actual, result, right, missed):
                    return False
            return self._same_gradients(arguments, unexplained)

    def distance(self, arguments: Arguments) -> float:
        """The sum of squared differences of the output; infinite for few rows, to which any number can be fitted."""
        if self.answer.out is None or self.answer.out[..., 0].size < FITTED:
            return math.inf
        with np.errstate(all="ignore"):
            outcome = forward(arguments, self.call.q, self.call.k, self.call.v)
            return float(np.nansum((self.answer.out - self._declared_out(outcome)) ** 2))

    @cached_property
    def _right(self) -> dict[str, Result]:
        """The results of the right law, and the bounds of a right answer."""
        results = self._results(self.arguments)
        for what, (value, bound) in results.items():
            results[what] = Result(value, self.bounds.get(what, SLACK * bound))
        return results

    def _results(self, arguments: Arguments) -> dict[str, Result]:
        """The results of the law with these arguments that the function returns."""
        call, answer = self.call, self.answer
        self.effort += 1 + self.work / PRODUCTS
        outcome = forward(arguments, call.q, call.k, call.v)
        bound_out, bound_lse = first_order(arguments, outcome, call.q, call.k, call.v, units=units_of(call.dtype))
        results = {}
        if answer.out is not None:
            results["out"] = Result(self._declared_out(outcome), bound_out)
        if answer.lse is not None:
            results["lse"] = Result(self._declared_lse(outcome), bound_lse)
        return results

    def _declared_out(self, outcome: Outcome) -> np.ndarray:
        """The output, with the fully masked rows that the conventions state."""
        call, convention = self.call, self.conventions.empty_row
        out = in_range(outcome.out, call.dtype)
        if convention == "zero" or out.shape != (*call.q.shape[:3], call.v.shape[3]):  # a mistake may change the shape
            return out
        empty = ~outcome.allowed.any(-1, keepdims=True)
        if not empty.any():
            return out
        empty = empty & (out == 0).all(-1, keepdims=True)
        declared: Any = np.nan
        if convention == "any":
            declared = self.answer.out
        elif convention == "mean":
            declared = np.repeat(call.v, out.shape[1] // call.v.shape[1], 1).mean(2, keepdims=True)
        return np.where(empty, declared, out)

    def _declared_lse(self, outcome: Outcome) -> np.ndarray:
        """The lse, with the one of fully masked rows that the conventions state."""
        lse = in_range(outcome.lse, self.arguments.real)
        if self.conventions.empty_lse == "-inf" or self.answer.lse is None:
            return lse
        return np.where(lse == -np.inf, np.inf if self.conventions.empty_lse == "inf" else self.answer.lse, lse)

    def _same_gradients(self, arguments: Arguments, unexplained: bool) -> bool:
        """unexplained: whether the right law does not give the results of the forward pass."""
        call, actual = self.call, self.answer.gradients
        if call.dout is None or not actual:
            return True
        if not derived(arguments):
            hidden = self.answer.out is None or (self.answer.lse is None and call.dlse is not None)
            self._slow += 1
            if not (unexplained or hidden) or self._slow > SLOW:
                return False  # another function has other results, not only other gradients
            roles = [role for role in actual if role != "bias"]
            usual = arguments.backward is self.arguments.backward
            if usual and all(np.isfinite(actual[role]).all() for role in roles):
                self.effort += 2 * DIRECTIONS * (1 + self.work / PRODUCTS)
                return _same_slopes(call, actual, roles, arguments)
            if sum(part.size for part in actual.values()) > DIFFERENCES:
                return False
            self.effort += 2 * DIFFERENCES * (1 + self.work / PRODUCTS)
        self.effort += 2 + self.work / PRODUCTS
        results = _gradients(call, arguments)
        if not all(_same(actual[role], results[role], self.bounds.get(role)) for role in results.keys() & actual):
            return False
        right = self._right_gradients
        return all(
            _explained(actual[role], results[role], right[role], _missed(actual[role], right[role]))
            for role in results.keys() & actual & right.keys()
        )

    @cached_property
    def _right_gradients(self) -> dict[str, Result]:
        results = _gradients(self.call, self.arguments)
        return {role: Result(value, self.bounds.get(role, bound)) for role, (value, bound) in results.items()}


def _gradients(call: Call, arguments: Arguments) -> dict[str, Result]:
    """The gradients of a call, with bounds from the largest number of each."""
    assert call.dout is not None
    found = {}
    for role, value in backward(arguments, call.q, call.k, call.v, call.dout, call.dlse).items():
        largest = np.max(np.abs(value), initial=0, where=np.isfinite(value))
        found[role] = Result(value, np.full(value.shape, GRADIENT * largest + 1e-30))
    return found


def _same_slopes(call: Call, given: Mapping[str, np.ndarray], roles: list[str], arguments: Arguments) -> bool:
    """Whether gradients are those of the law with these arguments along some random directions."""
    assert call.dout is not None
    rng = np.random.default_rng(0)
    dlse = np.zeros(call.dout.shape[:3]) if call.dlse is None else call.dlse
    for _ in range(DIRECTIONS):
        directions = {role: rng.choice([-1.0, 1.0], given[role].shape) for role in roles}
        slope = sum(float((given[role] * directions[role]).sum()) for role in roles)
        spread = {role: part[:, None] if role == "sinks" else part for role, part in directions.items()}
        right = along(arguments, call.q, call.k, call.v, call.dout, dlse, directions=spread)
        if not abs(slope - right) <= GRADIENT * (1 + sum(float(np.abs(given[role]).sum()) for role in roles)):
            return False
    return True


def _same(actual: np.ndarray, found: Result, bound: np.ndarray | None) -> bool:
    """Whether numbers are those that were found, within their bound or that of a right answer where it is larger."""
    if actual.shape != found.value.shape:
        return False
    allowed = SLACK * (found.bound if bound is None else np.fmax(found.bound, bound))
    missed = _missed(actual, Result(found.value, np.where(allowed == np.inf, 0, allowed)))
    return not (missed if bound is None else missed & (bound != np.inf)).any()


def _missed(actual: np.ndarray, result: Result) -> np.ndarray:
    """Where numbers are not within the bound of a result. Infinities and NaN must be equal."""
    near = (np.abs(actual - result.value) <= result.bound) | (result.bound == np.inf)
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
