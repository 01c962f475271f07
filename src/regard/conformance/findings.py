"""Finding: one law that a function breaks, with what was seen, the likely cause, the fix and a counterexample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..common.text.terminal_text import printable


@printable
@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong.

    Args:
        law: the number of the law that is broken; 0 for what comes before the laws (the call returns, its shape and
            dtype, side effects).
        level: the level that is not reached because of it.
        kind: "convention" if the function has another convention than declared; "law" if no convention explains it;
            "unexpected-pass" if it was expected to fail and does not.
        measured: what was seen.
        mistake: the name in the catalog of known mistakes; None if none explains it. Two are joined by " + ".
        alike: names of other mistakes that would give the same results.
        cause: the likely cause.
        fix: what to do about it.
        declares: what to declare if a convention is meant, such as "causal='top-left'"; "" if none is measured.
        cases: the cases that fail because of it.
        counterexample: a Python script that shows it; "" if no call does.

    Examples:
        >>> from regard.conformance import Finding
        >>> print(Finding(law=1, level=1, kind="law", measured="out[0, 0, 0, 0] is 2 and must be 1", mistake=None,
        ...               cause="unknown", fix="compare with the law", cases=("law-01[plain]",)))
        law 1: out[0, 0, 0, 0] is 2 and must be 1
          cause     unknown
          fix       compare with the law
          cases     law-01[plain]
    """

    law: int
    level: int
    kind: str
    measured: str
    mistake: str | None
    cause: str
    fix: str
    alike: tuple[str, ...] = ()
    declares: str = ""
    cases: tuple[str, ...] = ()
    counterexample: str = ""

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data.

        Returns:
            A dict that `json.dumps` accepts, with one entry for each field.

        Examples:
            >>> from regard.conformance import Finding
            >>> found = Finding(law=1, level=1, kind="law", measured="", mistake=None, cause="", fix="")
            >>> found.to_json()["law"]
            1
        """
        return dict(vars(self)) | {"alike": list(self.alike), "cases": list(self.cases)}

    def __str__(self) -> str:
        title = "before the laws" if self.law == 0 else f"law {self.law}"
        named = "" if self.mistake is None else f", {self.mistake}"
        lines = [f"{title}{named}: {self.measured}", f"  cause     {self.cause}", f"  fix       {self.fix}"]
        if self.cases:
            more = len(self.cases) - 4
            shown = ", ".join(self.cases[:4]) + (f" and {more} more" if more > 0 else "")
            lines.append(f"  cases     {shown}")
        return "\n".join(lines)
