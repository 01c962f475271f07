"""Known mistakes in the output after the weighted sum: another factor, or something that is added."""

from __future__ import annotations

from dataclasses import replace

from ...law.arguments import Arguments
from ...law.steps import Added
from ..mistake import Mistake
from .changes import Change


def _times(factor: float) -> Change:
    def change(arguments: Arguments) -> Arguments:
        usual = arguments.finish
        return replace(arguments, finish=lambda out: factor * usual(out))

    return change


def _plus(added: Added) -> Change:
    def change(arguments: Arguments) -> Arguments:
        usual = arguments.added
        return replace(arguments, added=lambda q, v: usual(q, v) + added(q, v))

    return change


def _queries(q, v):
    return q if q.shape[-1] == v.shape[-1] else 0.0


def _values(q, v):
    return v if q.shape[-2] == v.shape[-2] else 0.0


def _residual(name: str, what: str, added: Added) -> Mistake:
    return Mistake(
        name=f"{name}-added-to-output",
        law=1,
        description=f"{what} added to the output",
        cause="the residual connection is inside the function",
        fix="return weights @ v alone, and add the residual outside",
        change=_plus(added),
    )


OUTPUTS = (
    _residual("queries", "the queries", _queries),
    _residual("values", "the values of each position", _values),
    *(
        Mistake(
            name=f"dropout-scaling-{p}",
            law=9,
            description=f"an output divided by {1 - p:g}",
            cause=f"the factor 1 / (1 − {p}) of dropout is applied, although nothing is dropped",
            fix="apply the factor only to weights from which some are dropped",
            change=_times(1 / (1 - p)),
        )
        for p in (0.1, 0.2, 0.5)
    ),
)
