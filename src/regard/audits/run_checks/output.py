"""Output: whether calls computed what they were told to, rule by rule; where not, the mistake that explains it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...lens import Call, Run
from ..finding import Finding, Result
from .diagnosis import DOUBT, verdict
from .layer_settings import declared
from .wording import concluded, place

__all__ = ["Compare", "output", "rule"]

# What a layer may declare about a rule: (run, number of the call, call, module) -> what is wrong, or whether it could
# be compared.
Compare = Callable[[Run, int, Call, Any], Finding | bool]


def rule(name: str, compare: Compare | None, run: Run, module=None) -> Iterator[Result]:
    """One rule of the calls: whether they were told it as their layers declare it, and did as they were told."""
    answers = list(_explained(name, run))
    if compare is not None:
        answers += [compare(run, number, call, module) for number, call in enumerate(run.calls)]
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


def output(run: Run, module=None) -> Iterator[Result]:
    """Outputs that no known mistake explains."""
    answers = list(_unexplained(run, module))
    read = sum(answer is True for answer in answers)
    measured = f"{read} of {len(run.calls)} outputs are softmax(scores) · v, or are explained"
    found = [answer for answer in answers if isinstance(answer, Finding)]
    yield from concluded("output", found, read, measured, "no values and outputs were kept")


def _explained(name: str, run: Run) -> Iterator[Finding | bool]:
    """For every call: what is wrong by the name of this check; otherwise whether its output could be compared."""
    for number, call in enumerate(run.calls):
        found = verdict(call)
        mistake = found.mistake
        if mistake is None or name not in mistake.checks:
            yield found.ruled in ("fits", "explained")
            continue
        yield Finding(
            check=name,
            severity="fault",
            where=place(run, number, found.heads, found.row),
            measured=(
                f"over {found.rows} rows the output is that of {mistake.does}: off by {found.left:.1e} "
                f"from it, and by {found.error:.1e} "
                f"from what the call was told, where rounding makes at most {found.noise:.1e} (threshold: "
                f"{DOUBT} times that)"
            ),
            cause=mistake.cause,
            mend=mistake.mend,
            call=number,
            head=found.heads[0] if len(found.heads) == 1 else None,
            row=found.row,
            numbers={
                "error": found.error,
                "left": found.left,
                "noise": found.noise,
                "heads": list(found.heads),
                "asked_scale": call.scale,
                "scale": mistake.rules.scale,
            },
        )


def _unexplained(run: Run, module=None) -> Iterator[Finding | bool]:
    """For every call: that no known mistake explains its output; otherwise whether the output could be compared."""
    for number, call in enumerate(run.calls):
        found = verdict(call)
        if found.ruled != "unexplained":
            yield found.ruled != "open"
            continue
        training = declared(call, module).training
        yield Finding(
            check="output",
            severity="fault",
            where=place(run, number, found.heads, found.row),
            measured=(
                "the output is not softmax(scores) · v of what was recorded: off by up to "
                f"{found.error:.1e} over {found.rows} rows, where "
                f"rounding makes at most {found.noise:.1e} (threshold: {DOUBT} times that), and no usual mistake "
                "explains it"
            ),
            cause="dropout, because the model is in training mode"
            if training
            else "an argument that the implementation drops, adds or changes without saying so",
            mend="model.eval()"
            if training
            else "compare the implementation with rg.attention on the recorded q, k, v, call by call",
            call=number,
            head=found.heads[0] if len(found.heads) == 1 else None,
            row=found.row,
            numbers={"error": found.error, "noise": found.noise, "heads": list(found.heads)},
        )
