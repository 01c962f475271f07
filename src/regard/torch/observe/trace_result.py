"""`Trace`: the result of `regard.torch.trace`, with every attention call and the first fault of each kind."""

from __future__ import annotations

import html
from dataclasses import dataclass
from itertools import groupby

from ...common.text.terminal_text import printable
from .faults import KINDS, Finding
from .observed_call import ObservedCall

FIRST = {
    "shape": "the first wrong shape",
    "number": "NaN or infinity first appears",
    "row": "the first fully masked row",
}


@printable
@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """The result of `regard.torch.trace`; print it, or read its fields. findings: the faults, in order of detection."""

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
            lines.append("shapes fit, all numbers are finite, no row is fully masked")
        if not self.calls:
            lines.append(
                "neither regard, torch's attention or FlexAttention, nor a softmax between two products was called"
            )
        for (block, texts), group in groupby(
            self.calls, lambda call: (call.lines, [f.text for f in self.findings if f.call == call.index])
        ):
            some = list(group)
            where = some[0].layer if len(some) == 1 else f"{some[0].layer} … {some[-1].layer}, {len(some)} calls alike"
            lines += ["", f"{some[0].index:<3} {where}: {block[0]}"]
            lines += [f"    {line}" for line in block[1:]]
            lines += [f"  ! {text}" for text in texts]
        elsewhere = [finding for finding in self.findings if finding.call is None]
        return "\n".join([*lines, *([""] if elsewhere else []), *[f"  ! {finding}" for finding in elsewhere]])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
