"""Every check of the audits: a new one is a function and one line in `CHECKS`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ..lens import Run
from .finding import Result
from .model_checks.batch import batch_dependence
from .model_checks.cache import cache, position_offset
from .model_checks.determinism import determinism, training
from .model_checks.finite import finite
from .model_checks.future import future_leak
from .model_checks.implementations import implementation_difference
from .model_checks.padding import padding_leak
from .run_checks.arguments import bias, groups, sinks, softcap
from .run_checks.heads import dead, duplicate, saturated, sink, uniform
from .run_checks.implementation import arrived, implementation
from .run_checks.masks import alignment, mask
from .run_checks.numbers import empty_rows, numbers, overflow
from .run_checks.output import Compare, output, rule
from .run_checks.scales import scale
from .run_checks.weights import weights
from .subject import Subject

__all__ = ["CHECKS", "Check", "OfModel", "OfRule", "OfRun", "names", "of_model", "of_run"]


@dataclass(frozen=True)
class OfModel:
    """A check that runs a model. judge: what it finds, or that it found nothing, or why it does not apply · after: the
    checks whose fault it would only find again.
    """

    name: str
    judge: Callable[[Subject], Iterable[Result]]
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class OfRun:
    """A check that reads a recorded run, with the module that made it where it is at hand."""

    name: str
    judge: Callable[[Run, Any], Iterable[Result]]


@dataclass(frozen=True)
class OfRule:
    """A check of one rule of the calls in a recorded run: whether they did as they were told and, with `compare`,
    whether they were told what their layers declare. A known mistake that names this check is found by it.
    """

    name: str
    compare: Compare | None = None

    def judge(self, run: Run, module: Any) -> Iterable[Result]:
        """What it finds in a run."""
        return rule(self.name, self.compare, run, module)


Check = OfModel | OfRun | OfRule

SOUND = ("finite", "determinism")  # otherwise no two runs can be compared

# In the order in which they are carried out.
CHECKS: list[Check] = [
    OfModel("training-mode", training),
    OfModel("finite", finite),
    OfModel("determinism", determinism),
    OfModel("future-leak", future_leak, after=SOUND),
    OfModel("padding-leak", padding_leak, after=SOUND),
    OfModel("batch-dependence", batch_dependence, after=SOUND),
    OfModel("implementation-difference", implementation_difference, after=SOUND),
    OfModel("cache", cache, after=(*SOUND, "future-leak")),
    OfModel("position-offset", position_offset, after=(*SOUND, "future-leak", "cache")),
    OfRule("scale", scale),
    OfRule("mask", mask),
    OfRule("alignment", alignment),
    OfRule("groups", groups),
    OfRule("heads"),
    OfRule("softcap", softcap),
    OfRule("bias", bias),
    OfRule("sinks", sinks),
    OfRule("softmax"),
    OfRun("output", output),
    OfRun("numbers", numbers),
    OfRun("overflow", overflow),
    OfRun("empty-rows", empty_rows),
    OfRun("weights", weights),
    OfRun("implementation", implementation),
    OfRun("arrived", arrived),
    OfRun("saturated", saturated),
    OfRun("uniform", uniform),
    OfRun("dead", dead),
    OfRun("duplicate", duplicate),
    OfRun("sink", sink),
]


def names() -> tuple[str, ...]:
    """The names of all checks, in their order."""
    return tuple(check.name for check in CHECKS)


def of_model(chosen: Collection[str]) -> list[OfModel]:
    """Those of the named checks that run a model."""
    return [check for check in CHECKS if check.name in chosen and isinstance(check, OfModel)]


def of_run(chosen: Collection[str]) -> list[OfRun | OfRule]:
    """Those of the named checks that read a recorded run."""
    return [check for check in CHECKS if check.name in chosen and not isinstance(check, OfModel)]
