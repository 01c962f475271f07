"""What a trace found: every attention call with the layout of its tensors, and the first place of every kind of
trouble.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from itertools import groupby

from .faults import KINDS, Finding
from .observed_call import ObservedCall

__all__ = ["Trace"]

FIRST = {
    "shape": "the first wrong shape",
    "number": "NaN or infinity first appears",
    "row": "the first row that attends nothing",
}


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """What `regard.torch.trace` found; print it, or read its parts. findings: in the order in which they came up."""

    model: str
    calls: tuple[ObservedCall, ...]
    findings: tuple[Finding, ...]

    def first(self, kind: str) -> Finding | None:
        """The first finding of a kind: "shape", "number" or "row"; None if there is none."""
        return next((finding for finding in self.findings if finding.kind == kind), None)

    def __str__(self) -> str:
        calls = (
            f"{len(self.calls)} attention call{'' if len(self.calls) == 1 else 's'}"
            if self.calls
            else "no attention call"
        )
        lines = [f"{self.model}: {calls}"]
        for kind in KINDS:
            finding = self.first(kind)
            if finding is not None:
                more = sum(other.kind == kind for other in self.findings) - 1
                lines.append(f"{FIRST[kind]}: {finding}" + (f" (and {more} more below)" if more else ""))
        if not self.findings and self.calls:
            lines.append("shapes fit, all numbers are finite, every row attends something")
        if not self.calls:
            lines.append(
                "nothing of regard, of torch's attention, of FlexAttention, and no softmax between two "
                "products was called"
            )
        for said, group in groupby(
            self.calls, lambda call: (call.lines, [f.text for f in self.findings if f.call == call.index])
        ):
            some = list(group)
            where = some[0].layer if len(some) == 1 else f"{some[0].layer} … {some[-1].layer}, {len(some)} calls alike"
            lines += ["", f"{some[0].index:<3} {where}: {said[0][0]}"]
            lines += [f"    {line}" for line in said[0][1:]]
            lines += [f"  ! {finding.text}" for finding in self.findings if finding.call == some[0].index]
        elsewhere = [finding for finding in self.findings if finding.call is None]
        return "\n".join([*lines, *([""] if elsewhere else []), *[f"  ! {finding}" for finding in elsewhere]])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
