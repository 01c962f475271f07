"""One pass of a model as data: the axes, every attention call, and what is known about where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ...common.errors import Reason, Refused
from .axis import Axis
from .call import Call

__all__ = ["Run", "Step"]


@dataclass(frozen=True)
class Step:
    """One token that a model wrote: its position on the axis, and the likeliest tokens with their probabilities,
    falling.
    """

    position: int
    candidates: tuple[tuple[str, float], ...]


@dataclass(frozen=True, eq=False)
class Run:
    """Every attention call of one text (picture, pair of texts, arrays) through one model.

    axes: by name · calls: in the order in which they were made · steps: what was generated, one entry per written
    token; the rows of a generated run are joined, so a call has the rows of the prompt and one for each step · facts:
    plain JSON: versions of the libraries, the hash of the weights, when, what was left out and why, and what is exact,
    sampled or pooled.
    """

    model: str
    text: str
    axes: Mapping[str, Axis]
    calls: tuple[Call, ...]
    steps: tuple[Step, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    _repr_html_: ClassVar[Callable[[Run], str]]  # what notebooks show: `lens` puts the page of the viewer here

    def __post_init__(self):
        reasons = []
        if not self.calls:
            reasons.append(
                Reason(
                    "nothing to look at",
                    given="no attention call",
                    expected="at least one",
                    fix="give a model that attends",
                )
            )
        for call in self.calls:
            for name, size in ((call.queries, call.shape[1]), (call.keys, call.shape[2])):
                axis = self.axes.get(name)
                if axis is None or len(axis) != size:
                    known = ", ".join(f"{name} of {len(axis)}" for name, axis in self.axes.items())
                    reasons.append(
                        Reason(
                            "a call that does not fit its axes",
                            given=f"{call.name}: {name} of {size}",
                            expected=known or "axes",
                            fix="give every axis its tokens",
                        )
                    )
        longest = max(map(len, self.axes.values()), default=0)
        if outside := [step.position for step in self.steps if not 0 <= step.position < longest]:
            reasons.append(
                Reason(
                    "steps outside every axis",
                    given=f"positions {', '.join(map(str, outside[:5]))[:80]}",
                    expected=f"0 to {longest - 1}",
                    fix="count from the first token of the text",
                )
            )
        if reasons:
            raise Refused("Run", reasons)

    def __repr__(self) -> str:
        axes = ", ".join(f"{name} of {len(axis)}" for name, axis in self.axes.items())
        calls = f"{len(self.calls)} call{'s' * (len(self.calls) > 1)}"
        return f"<Run of {self.model}: {calls}; {axes}{f'; {len(self.steps)} steps' if self.steps else ''}>"

    def call(self, at: int | str) -> Call:
        """A call by its number, or by the name of its layer (the first of that name)."""
        if isinstance(at, str):
            found = next((call for call in self.calls if call.name == at), None)
            if found is not None:
                return found
        elif -len(self.calls) <= at < len(self.calls):
            return self.calls[at]
        raise Refused(
            "Run.call",
            [
                Reason(
                    "no such call",
                    given=f"{at!r}",
                    expected=f"0 to {len(self.calls) - 1}, or a name such as {self.calls[0].name!r}",
                    fix="list them: [call.name for call in run.calls]",
                )
            ],
        )

    @classmethod
    def open(cls, folder: Path | str, *, verify: bool = False) -> Run:
        """The run that a folder holds, its arrays mapped from there; `storage.reader.open_run` says more."""
        from ..storage.reader import open_run

        return open_run(folder, verify=verify)

    def save(self, folder: Path | str, *, overwrite: bool = False, limit: int | str | None = None) -> Run:
        """Writes the run into a folder -> the same run, mapped from there; `storage.folder.save` says more."""
        from ..storage.folder import save

        return save(self, folder, overwrite=overwrite, limit=limit)
