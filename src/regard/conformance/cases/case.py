"""Case: one thing that must hold, and what came out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..answer import Answer
from ..call import Call

LEVELS = ("runs", "textbook", "edges", "gradients", "isolation", "scale")


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """One thing that must hold.

    name: such as "empty-row-float32" · law: the number of the law; 0 for what comes before the laws · level · says:
    what must hold, a sentence · call: the call · optional: a function may refuse this call with an exception ·
    check: how a `Judge` judges it; None: the answer is compared with the law
    """

    name: str
    law: int
    level: int
    says: str
    call: Call
    optional: bool = False
    check: Callable[[Case, Any], Result] | None = None

    @property
    def id(self) -> str:
        """Such as "law-05[empty-row-float32]"."""
        return f"law-{self.law:02d}[{self.name}]"


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """What came out of a case.

    status: "pass"; "fail"; "refused", with an exception, where a function may; "absent", if the function has no such
    argument; "expected" to fail, as declared; "unexpected-pass" · ratio: the largest |error| / bound; None where
    nothing was compared · words: what was seen · call, answer: those that failed · grade: "bits" or "rounding", where
    results of two calls are compared · also: the calls and answers that were compared with each other · numbers: what
    else was measured
    """

    case: Case
    status: str
    ratio: float | None = None
    words: str = ""
    call: Call | None = None
    answer: Answer | None = None
    grade: str | None = None
    also: tuple[tuple[Call, Answer], ...] = ()
    seconds: float = 0.0
    numbers: Mapping[str, float] = field(default_factory=dict)
