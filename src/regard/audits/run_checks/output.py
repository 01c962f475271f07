"""Carried out: calls whose output is not what they were told to compute, by the mistake that explains it."""

from __future__ import annotations

from collections.abc import Iterator

from ...lens import Run
from ..finding import Finding
from .diagnosis import DOUBT, verdict
from .layer_settings import declared
from .wording import place

__all__ = ["explained", "unexplained"]


def explained(name: str, run: Run) -> Iterator[Finding | bool]:
    """For every call: what is wrong by the name of this check; otherwise whether its output could be compared."""
    for number, call in enumerate(run.calls):
        found = verdict(call)
        suspect = found.suspect
        if suspect is None or name not in suspect.checks:
            yield found.ruled in ("fits", "explained")
            continue
        yield Finding(
            check=name,
            severity="fault",
            where=place(run, number, found.heads, found.row),
            measured=(
                f"over {found.rows} rows the output is that of {suspect.does}: off by {found.left:.1e} "
                f"from it, and by {found.error:.1e} "
                f"from what the call was told, where rounding makes at most {found.noise:.1e} (threshold: "
                f"{DOUBT} times that)"
            ),
            cause=suspect.cause,
            mend=suspect.mend,
            call=number,
            head=found.heads[0] if len(found.heads) == 1 else None,
            row=found.row,
            numbers={
                "error": found.error,
                "left": found.left,
                "noise": found.noise,
                "heads": list(found.heads),
                "asked_scale": call.scale,
                "scale": suspect.told.scale,
            },
        )


def unexplained(run: Run, module=None) -> Iterator[Finding | bool]:
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
