"""The table of all checks. To add a check, write a function and add one line to `CHECKS`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from .finding import Finding, Result
from .model_checks.cache import cache, position_offset
from .model_checks.runs import batch_dependence, determinism, finite, future_leak, padding_leak, training
from .run_checks.arguments import alignment, bias, groups, mask, scale, sinks, softcap
from .run_checks.audited_run import AuditedCall, AuditedRun, concluded
from .run_checks.numbers import PATTERNS, empty_rows, notes, numbers, overflow
from .run_checks.outputs import Compare, arrived, implementation, implementation_difference, output, rule, weights
from .run_checks.projections import positions, projections
from .subject import Subject

SOUND = ("finite", "determinism")  # without these no two runs can be compared


@dataclass(frozen=True)
class ModelCheck:
    """A check that runs a model. judge: returns the result, or raises `NotApplicable` · after: names of earlier checks;
    if one of them reports a fault, this check is skipped, because it would report the same fault again.
    """

    name: str
    judge: Callable[[Subject], Result]
    after: tuple[str, ...] = SOUND


@dataclass(frozen=True)
class RunCheck:
    """A check that reads a recorded run."""

    name: str
    judge: Callable[[AuditedRun], Iterable[Result]]


def rule_check(name: str, compare: Compare | None = None) -> RunCheck:
    """A check of one argument of the recorded calls: whether each output follows from it and, with `compare`, whether
    it is what the layer declares. Known mistakes that list the name of this check are reported by it.
    """
    return RunCheck(name, lambda run: rule(name, compare, run))


def call_check(
    name: str, judge: Callable[[AuditedCall], Iterable[Finding | bool]], measured: str, reason: str
) -> RunCheck:
    """A check of each recorded call. measured, reason: what is said where it detects nothing, and does not apply."""
    return RunCheck(
        name,
        lambda run: concluded(name, (each for audited in run.calls for each in judge(audited)), measured, reason),
    )


# In the order in which they run.
CHECKS: list[ModelCheck | RunCheck] = [
    ModelCheck("training-mode", training, after=()),
    ModelCheck("finite", finite, after=()),
    ModelCheck("determinism", determinism, after=("finite",)),
    ModelCheck("future-leak", future_leak),
    ModelCheck("padding-leak", padding_leak),
    ModelCheck("batch-dependence", batch_dependence),
    ModelCheck("implementation-difference", implementation_difference),
    ModelCheck("cache", cache, after=(*SOUND, "future-leak")),
    ModelCheck("position-offset", position_offset, after=(*SOUND, "future-leak", "cache")),
    rule_check("scale", scale),
    rule_check("mask", mask),
    rule_check("alignment", alignment),
    rule_check("groups", groups),
    rule_check("heads"),
    rule_check("softcap", softcap),
    rule_check("bias", bias),
    rule_check("sinks", sinks),
    rule_check("softmax"),
    RunCheck("projections", projections),
    RunCheck("positions", positions),
    RunCheck("output", output),
    RunCheck("numbers", numbers),
    RunCheck("overflow", overflow),
    call_check("empty-rows", empty_rows, "{}: no row is fully masked", "no statistics of rows were recorded"),
    call_check(
        "weights",
        weights,
        "{} with recorded weights: rows sum to 1, on allowed keys",
        "no call was recorded as weights; the others are computed by a softmax",
    ),
    RunCheck("implementation", implementation),
    RunCheck("arrived", arrived),
    *(RunCheck(name, partial(notes, name)) for name in PATTERNS),
]


def names() -> tuple[str, ...]:
    """The names of all checks, in order."""
    return tuple(check.name for check in CHECKS)


def selected(kind: type, chosen: Collection[str]) -> list[Any]:
    """The checks of a kind with the given names: those that run a model, or those that read a recorded run."""
    return [check for check in CHECKS if check.name in chosen and isinstance(check, kind)]
