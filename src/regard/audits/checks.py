"""The table of all checks. To add a check, write a function and add one line to `CHECKS`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from .finding import Result
from .model_checks.cache import cache, position_offset
from .model_checks.future import future_leak
from .model_checks.padding import padding_leak
from .model_checks.runs import batch_dependence, determinism, finite, training
from .run_checks.arguments import bias, groups, scale, sinks, softcap
from .run_checks.audited_run import AuditedRun
from .run_checks.heads import PATTERNS, notes
from .run_checks.implementation import arrived, implementation, implementation_difference
from .run_checks.masks import alignment, mask
from .run_checks.numbers import empty_rows, numbers, overflow
from .run_checks.outputs import Compare, output, rule, weights
from .subject import Subject


@dataclass(frozen=True)
class ModelCheck:
    """A check that runs a model. judge: returns the result, or raises `NotApplicable` · after: names of earlier checks;
    if one of them reports a fault, this check is skipped, because it would report the same fault again.
    """

    name: str
    judge: Callable[[Subject], Result]
    after: tuple[str, ...] = ()


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


SOUND = ("finite", "determinism")  # without these no two runs can be compared

# In the order in which they run.
CHECKS: list[ModelCheck | RunCheck] = [
    ModelCheck("training-mode", training),
    ModelCheck("finite", finite),
    ModelCheck("determinism", determinism, after=("finite",)),
    ModelCheck("future-leak", future_leak, after=SOUND),
    ModelCheck("padding-leak", padding_leak, after=SOUND),
    ModelCheck("batch-dependence", batch_dependence, after=SOUND),
    ModelCheck("implementation-difference", implementation_difference, after=SOUND),
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
    RunCheck("output", output),
    RunCheck("numbers", numbers),
    RunCheck("overflow", overflow),
    RunCheck("empty-rows", empty_rows),
    RunCheck("weights", weights),
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
