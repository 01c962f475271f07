"""A finding: what was measured, the likely cause and a fix, as text and as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..common.text.terminal_text import printable


@printable
@dataclass(frozen=True, kw_only=True)
class BaseFinding:
    """One thing that is wrong: what `audits.Finding` and `conformance.Finding` share.

    Args:
        measured: what was measured.
        cause: the likely cause.
        fix: what to do about it.
    """

    measured: str
    cause: str
    fix: str

    @property
    def title(self) -> str:
        """What is wrong, in one line."""
        raise NotImplementedError

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What is said below the title: names, and words for each."""
        return [("cause", self.cause), ("fix", self.fix)]

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
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {name:8}  {words}" for name, words in self.rows)])
