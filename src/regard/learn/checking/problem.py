"""Problem: what is wrong with a learner's answer, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Problem:
    """What a check found.

    kind: "runs", "raises", "shape", "law", "value", "inputs", "random", "tests", "conform", or
    "chapter": nothing of the learner's is wrong, the exercise itself cannot be run · what: a sentence ·
    details: lines such as "q = [[1, 2]]" · law: the law that is broken, in words · mistakes: names of known mistakes
    that explain it · alike: other names that no case tells apart from these · description, cause, fix: of the mistake ·
    printed: what the learner's code printed · extra: numbers of a report of conformance
    """

    kind: str
    what: str
    details: tuple[str, ...] = ()
    law: str = ""
    mistakes: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    description: str = ""
    cause: str = ""
    fix: str = ""
    printed: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As types of JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Problem:
        """From `to_json`."""
        lists = {name: tuple(map(str, data.get(name, ()))) for name in ("details", "mistakes", "alike")}
        return cls(**{**{name: value for name, value in data.items() if name in cls.__dataclass_fields__}, **lists})
