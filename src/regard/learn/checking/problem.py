"""Problem: what is wrong with a learner's answer, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """What a check found.

    kind: "runs", "raises", "shape", "law", "value", "inputs", "random", "tests", "conform", or
    "chapter": nothing of the learner's is wrong, the exercise itself cannot be run · what: a sentence ·
    details: lines such as "q = [[1, 2]]" · mistakes: names of known mistakes that explain it · alike: other names that
    no case tells apart from these · description, cause, fix: of the mistake · printed: what the learner's code printed
    """

    kind: str
    what: str
    details: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    description: str = ""
    cause: str = ""
    fix: str = ""
    printed: str = ""

    def to_json(self) -> dict[str, Any]:
        """As types of JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Problem:
        """From `to_json`."""
        lists = {name: tuple(data[name]) for name in ("details", "mistakes", "alike")}
        return cls(**{**data, **lists})
