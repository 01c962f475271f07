"""Checks that read a recorded run: what each attention call was given, and what came out of it.

output            whether outputs follow from what the calls were given: expected_output, known_mistakes, diagnosis
scales · masks    what the layers declare (layer_settings), against what their calls were given; arguments: the others
numbers           overflow, NaN, empty rows; weights: what weights may be; heads: which heads are like which
implementation    whether the implementation that was asked for is the one that ran
wording           how places are said
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...lens import Run
from ...lens.runs.call import Call
from ..finding import Finding, Result
from .arguments import bias, groups, sinks, softcap
from .heads import dead, duplicate, saturated, sink, uniform
from .implementation import arrived, implementation
from .layer_settings import declared
from .masks import alignment, mask
from .numbers import empty_rows, numbers, overflow
from .output import explained, unexplained
from .scales import scale
from .weights import weights
from .wording import concluded

__all__ = ["CHECKS", "checks"]

# What a layer may declare about a rule: (run, number of the call, call, module) -> what is wrong, or whether it could
# be compared.
ASKED: dict[str, Callable[[Run, int, Call, Any], Finding | bool]] = {
    "scale": scale, "mask": mask, "alignment": alignment, "groups": groups, "softcap": softcap, "bias": bias,
    "sinks": sinks,
}  # fmt: skip
RULES = ("scale", "mask", "alignment", "groups", "heads", "softcap", "bias", "sinks", "softmax")


def _rule(name: str, run: Run, module=None) -> Iterator[Result]:
    """One rule of the calls: whether they were told it as their layers declare it, and did as they were told."""
    answers = list(explained(name, run))
    asked = ASKED.get(name)
    if asked is not None:
        answers += [asked(run, number, call, module) for number, call in enumerate(run.calls)]
    read = sum(answer is True for answer in answers[: len(run.calls)])
    of = sum(answer is True for answer in answers[len(run.calls) :])
    measured = [f"{read} of {len(run.calls)} outputs follow from what their calls were told"] if read else []
    measured += [f"{of} calls were told what their layers declare"] if of else []
    wide = [
        window
        for call in run.calls
        if (window := declared(call, module).window) is not None and window >= call.shape[2]
    ]
    if name == "mask" and wide:
        measured.append(
            f"the windows of {len(wide)} calls, {min(wide)} keys and more, are not reached: take a longer text"
        )
    yield from concluded(
        name,
        [answer for answer in answers if isinstance(answer, Finding)],
        read + of,
        "; ".join(measured),
        "no values and outputs were kept, and no layer declares it",
    )


def _output(run: Run, module=None) -> Iterator[Result]:
    answers = list(unexplained(run, module))
    read = sum(answer is True for answer in answers)
    measured = f"{read} of {len(run.calls)} outputs are softmax(scores) · v, or are explained"
    found = [answer for answer in answers if isinstance(answer, Finding)]
    yield from concluded("output", found, read, measured, "no values and outputs were kept")


# Every check by its name: (run, module or None) -> what it found, or that it found nothing, or why it did not apply.
CHECKS: dict[str, Callable[[Run, Any], Iterable[Result]]] = {
    **{name: functools.partial(_rule, name) for name in RULES},
    "output": _output, "numbers": numbers, "overflow": overflow, "empty-rows": empty_rows, "weights": weights,
    "implementation": implementation, "arrived": arrived, "saturated": saturated, "uniform": uniform, "dead": dead,
    "duplicate": duplicate, "sink": sink,
}  # fmt: skip


def checks(run: Run, module=None, names: Iterable[str] | None = None) -> Iterator[Result]:
    """What every check (or those named) says about a run. module: the torch model that made it, where it is at hand."""
    for name in CHECKS if names is None else names:
        yield from CHECKS[name](run, module)
