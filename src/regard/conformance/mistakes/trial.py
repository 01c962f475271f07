"""Trial: whether the law with some mistakes gives what a function answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...language.analysis import in_range
from ..answer import Answer
from ..call import Call
from ..conventions.fields import Adapter
from ..law.arguments import Arguments
from ..law.backward import along, backward, derived
from ..law.forward import Outcome, forward
from ..law.meaning import meaning
from .mistake import Mistake
from .tolerance import tolerance

__all__ = ["Observed", "Trial"]

SLACK = 2  # times the bound: a mistaken computation may round more than a right one
GRADIENT = 2.0**-16  # of the largest number of a gradient, where no bound is given

DIRECTIONS = 3  # along which gradients are compared that only finite differences give
DIFFERENCES = 128  # the most numbers of gradients that are computed as finite differences, one by one


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


class Trial:
    """What the law gives for observed calls, alone and with mistakes, under the conventions of an adapter."""

    def __init__(self, adapter: Adapter):
        self.adapter = adapter
        self._meant: dict[int, Arguments] = {}

    def arguments_of(self, seen: Observed) -> Arguments:
        """The arguments of a call."""
        if id(seen) not in self._meant:
            self._meant[id(seen)] = meaning(seen.call, self.adapter)
        return self._meant[id(seen)]

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

    def agrees_with(self, seen: Observed, arguments: Arguments) -> bool:
        """Whether the law with these arguments gives the answer."""
        call = seen.call
        with np.errstate(all="ignore"):
            outcome = forward(arguments, call.q, call.k, call.v)
            bound_out, bound_lse = tolerance(arguments, outcome, call)
            return (
                self._same_out(seen, outcome, bound_out)
                and self._same_lse(seen, outcome, bound_lse)
                and self._same_gradients(seen, arguments)
            )

    def _same_out(self, seen: Observed, outcome: Outcome, bound: np.ndarray) -> bool:
        answer, call = seen.answer, seen.call
        if answer.out is None:
            return True
        out = in_range(outcome.out, call.dtype)
        if self.adapter.empty_row != "zero":
            empty = ~outcome.allowed.any(-1, keepdims=True) & (out == 0).all(-1, keepdims=True)
            if empty.any():
                declared: Any = {
                    "nan": np.nan,
                    "mean": np.repeat(call.v, out.shape[1] // call.v.shape[1], 1).mean(2, keepdims=True),
                    "any": answer.out,
                }[self.adapter.empty_row]
                out = np.where(empty, declared, out)
        return _same(answer.out, out, bound, seen.bound_out)

    def _same_lse(self, seen: Observed, outcome: Outcome, bound: np.ndarray) -> bool:
        answer = seen.answer
        if answer.lse is None:
            return True
        lse = in_range(outcome.lse, np.float64 if seen.call.dtype == np.float64 else np.float32)
        if self.adapter.empty_lse != "-inf":
            declared = np.inf if self.adapter.empty_lse == "inf" else answer.lse
            lse = np.where(np.isneginf(lse), declared, lse)
        return _same(answer.lse, lse, bound, seen.bound_lse)

    def _same_gradients(self, seen: Observed, arguments: Arguments) -> bool:
        call, given = seen.call, seen.answer.gradients
        if call.dout is None or not given:
            return True
        if not derived(arguments):
            roles = [role for role in given if role != "bias"]
            usual = arguments.backward is self.arguments_of(seen).backward
            if usual and all(np.isfinite(given[role]).all() for role in roles):
                return _same_slopes(call, given, roles, arguments)
            if sum(part.size for part in given.values()) > DIFFERENCES:
                return False
        found = backward(arguments, call.q, call.k, call.v, call.dout, call.dlse)
        for role in found.keys() & given.keys():
            largest = np.max(np.abs(found[role]), initial=0, where=np.isfinite(found[role]))
            bound = np.full(found[role].shape, GRADIENT * largest + 1e-30)
            if not _same(given[role], found[role], bound, seen.bound_gradients.get(role)):
                return False
        return True


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


def _same(actual: np.ndarray, expected: np.ndarray, tolerance: np.ndarray, bound: np.ndarray | None) -> bool:
    """Whether numbers are equal within the tolerance, or within the bound of a right answer where that is larger."""
    if actual.shape != expected.shape:
        return False
    if bound is not None:
        tolerance = np.maximum(tolerance, bound)
    near = np.abs(actual - expected) <= SLACK * tolerance
    unknown = False if bound is None else np.isposinf(bound)
    return bool((near | (actual == expected) | (np.isnan(actual) & np.isnan(expected)) | unknown).all())
