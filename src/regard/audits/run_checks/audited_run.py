"""A recorded run, its calls and what their layers declare, as the checks read them; and the words of findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...lens import Call, Run
from ..finding import Finding, Passed, Result, Skipped
from .layer_settings import Declared, declared

SHOWN = 8


class AuditedRun:
    """A recorded run, with the model that was recorded, where it is available."""

    def __init__(self, run: Run, module: Any = None):
        self.run, self.module = run, module
        self.calls = [AuditedCall(self, number, call) for number, call in enumerate(run.calls)]


@dataclass(frozen=True, eq=False)
class AuditedCall:
    """One call of a run."""

    of: AuditedRun
    number: int
    call: Call

    @cached_property
    def layer(self) -> Any:
        """The module that made the call; None where it is not available."""
        module, name = self.of.module, self.call.name
        if module is None:
            return None
        try:
            return module.get_submodule(name)
        except AttributeError:  # a run names the root module by its class
            return module if name == type(module).__name__ else None

    @cached_property
    def declared(self) -> Declared:
        """The settings that the layer declares."""
        return declared(self.call, self.layer, self.of.module)

    def finding(self, heads: Sequence[int] = (), row: int | None = None, **fields: Any) -> Finding:
        """A finding about the call, or about some of its heads and the first row where it shows.

        Its place is in words, such as "call 3 (layers.1.self_attn), head 0, row 17".
        """
        words = [f"call {self.number} ({self.call.name})"]
        if heads and len(heads) < self.call.shape[0]:
            words.append(f"head{'s' if len(heads) > 1 else ''} {listed(heads)}")
        where = ", ".join([*words, *([] if row is None else [f"row {row}"])])
        head = heads[0] if len(heads) == 1 else None
        return Finding(where=where, call=self.number, head=head, row=row, **fields)


def listed(things: Sequence) -> str:
    """The first 8 entries, and the number of the others.

    >>> listed(range(12))
    '0, 1, 2, 3, 4, 5, 6, 7 and 4 more'
    """
    more = len(things) - SHOWN
    return ", ".join(map(str, things[:SHOWN])) + (f" and {more} more" if more > 0 else "")


def concluded(check: str, findings: Iterable[Finding], read: int, measured: str, reason: str) -> Iterator[Result]:
    """The findings; without any, `Passed` with what was measured, or `Skipped` with the reason if nothing was read."""
    results: list[Result] = list(findings)
    yield from results or [Passed(check, measured) if read else Skipped(check, reason)]
