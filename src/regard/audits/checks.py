"""The table of all checks. To add a check, write a function and add one line to `CHECKS`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from inspect import cleandoc
from typing import Any

from ..common.errors import Reason, Refused, did_you_mean, refuse
from .finding import Finding, Result
from .model_checks.cache import cache, position_offset
from .model_checks.laws import laws
from .model_checks.runs import (
    batch_dependence,
    determinism,
    finite,
    future_leak,
    missing_softmax,
    padding_leak,
    training,
)
from .run_checks import arguments
from .run_checks.audited_run import AuditedCall, AuditedRun, concluded
from .run_checks.numbers import PATTERNS, empty_rows, notes, numbers, overflow
from .run_checks.outputs import Compare, arrived, implementation, implementation_difference, output, rule, weights
from .run_checks.projections import positions, projections
from .subject import Subject

SOUND = ("finite", "determinism")  # without these no two runs can be compared


@dataclass(frozen=True)
class ModelCheck:
    """A check that runs a model. judge: returns the result, or raises `NotApplicable`; its docstring says what the
    check does and cannot see · after: names of earlier checks; if one of them reports a fault, this check is skipped,
    because it would report the same fault again.
    """

    name: str
    judge: Callable[[Subject], Result]
    after: tuple[str, ...] = SOUND


@dataclass(frozen=True)
class RunCheck:
    """A check that reads a recorded run. about: what it does and cannot see; None: `judge` says that."""

    name: str
    judge: Callable[[AuditedRun], Iterable[Result]]
    about: str | None = None


def rule_check(compare: Compare) -> RunCheck:
    """A check of one argument of the recorded calls: whether each output follows from it and whether it is what the
    layer declares. Known mistakes that list the name of this check are reported by it.
    """
    return RunCheck(compare.__name__, partial(rule, compare.__name__, compare), compare.__doc__)


def call_check(
    name: str, judge: Callable[[AuditedCall], Iterable[Finding | bool]], measured: str, reason: str
) -> RunCheck:
    """A check of each recorded call. measured, reason: what is said where it detects nothing, and does not apply."""
    return RunCheck(
        name,
        lambda run: concluded(name, (each for audited in run.calls for each in judge(audited)), measured, reason),
        judge.__doc__,
    )


# In the order in which they run.
CHECKS: list[ModelCheck | RunCheck] = [
    ModelCheck("training-mode", training, after=()),
    ModelCheck("laws", laws, after=()),
    ModelCheck("finite", finite, after=()),
    ModelCheck("determinism", determinism, after=("finite",)),
    ModelCheck("future-leak", future_leak),
    ModelCheck("padding-leak", padding_leak),
    ModelCheck("batch-dependence", batch_dependence),
    ModelCheck("implementation-difference", implementation_difference),
    ModelCheck("missing-softmax", missing_softmax),
    ModelCheck("cache", cache, after=(*SOUND, "future-leak")),
    ModelCheck("position-offset", position_offset, after=(*SOUND, "future-leak", "cache")),
    rule_check(arguments.scale),
    rule_check(arguments.mask),
    rule_check(arguments.alignment),
    rule_check(arguments.groups),
    rule_check(arguments.heads),
    rule_check(arguments.softcap),
    rule_check(arguments.bias),
    rule_check(arguments.sinks),
    rule_check(arguments.softmax),
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
    *(RunCheck(name, partial(notes, name), pattern.__doc__) for name, (pattern, _) in PATTERNS.items()),
]


def names() -> tuple[str, ...]:
    """The names of all checks, in order."""
    return tuple(check.name for check in CHECKS)


def chosen_names(checks: Iterable[str] | None) -> tuple[str, ...]:
    """The names of the checks to run, in the order in which they run."""
    known = names()
    if checks is not None and not isinstance(checks, Iterable):
        raise refuse(
            "audit",
            "checks is not a list of names",
            type(checks).__name__,
            f"names among {', '.join(known)}",
            "pass checks=['mask', 'scale'], or omit checks= to run all checks that apply",
        )
    wanted = known if checks is None else [checks] if isinstance(checks, str) else list(checks)
    expected = f"one of {', '.join(known)}"
    unknown = [name for name in wanted if name not in known]
    reasons = [
        Reason("no such check", repr(name), expected, did_you_mean(str(name), known, "the line above"))
        for name in unknown
    ]
    if reasons:
        raise Refused("audit", reasons)
    return tuple(name for name in known if name in wanted)


def explained(name: str) -> str:
    """What a check does and what it cannot see, from the docstring of its function. Refused: unknown names.

    >>> explained("determinism").split(".")[0]
    'Two runs with the same inputs and different random seeds differ by no more than rounding'
    """
    (known,) = chosen_names(name)
    check = next(check for check in CHECKS if check.name == known)
    return cleandoc(getattr(check, "about", None) or check.judge.__doc__ or "")


def selected(kind: type, chosen: Collection[str]) -> list[Any]:
    """The checks of a kind with the given names: those that run a model, or those that read a recorded run."""
    return [check for check in CHECKS if check.name in chosen and isinstance(check, kind)]
