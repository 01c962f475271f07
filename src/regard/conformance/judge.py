"""Judge: asks the function, compares its answers with the law, and remembers what calls did besides."""

from __future__ import annotations

import tempfile
from typing import Protocol

from ..common.errors import Refused
from ..laws.call import Answer, Call
from ..laws.expected import Comparison, Expected, compared_gradients, expected
from .cases.case import Case, Result
from .conventions.fields import Adapter
from .conventions.translate import Absent


class Asks(Protocol):
    """What calls the function: a `Session` in a process of its own, or `InProcess`."""

    def call(self, call: Call, adapter: Adapter) -> Answer:
        """The answer to one call."""
        ...


class Judge:
    """The function under these conventions.

    session: what calls it · adapter: the conventions under which it is judged · parameters: whether a role that is not
    in the adapter is known to be absent
    """

    def __init__(self, session: Asks, adapter: Adapter):
        self.session, self.adapter = session, adapter

    def missing(self, call: Call) -> str | None:
        """The first argument of the call that the function does not have; None if it has all."""
        known = set(self.adapter.parameters)
        if "causal" in self.adapter.always:
            known.add("causal")
        if "window_before" in known:
            known.add("window")
        if "cu_seqlens_k" in known:
            known.add("lengths")
        return next((role for role in call.uses() if role not in known), None)

    def ask(self, call: Call) -> Answer:
        """What the function answers."""
        return self.session.call(call, self.adapter)

    def expected(self, call: Call) -> Expected:
        """What the law says."""
        return expected(call, self.adapter)

    def compared(self, call: Call, answer: Answer) -> Comparison:
        """How an answer compares with the law."""
        return self.expected(call).judge(answer)

    def compared_gradients(self, call: Call, answer: Answer) -> Comparison:
        """How the gradients of an answer compare with those of the law."""
        return compared_gradients(call, self.adapter, answer)

    def result(self, case: Case) -> Result:
        """The result of a case, timed by the function's own seconds."""
        missing = self.missing(case.call)
        if missing is not None:
            return Result(case=case, status="absent", words=f"the function has no argument for {missing}")
        try:
            return (case.check or agrees)(case, self)
        except Absent as absent:
            return Result(case=case, status="absent", words=absent.words)
        except Refused as refused:
            return Result(case=case, status="absent", words=f"{refused.reasons[0].what}: {refused.reasons[0].given}")


def agrees(case: Case, judge: Judge) -> Result:
    """Whether the answer to the call of the case is what the law says."""
    answer = judge.ask(case.call)
    if answer.status != "ok":
        return unanswered(case, case.call, answer)
    comparison = judge.compared(case.call, answer)
    return Result(
        case=case,
        status="pass" if comparison.right else "fail",
        ratio=comparison.ratio,
        words="" if comparison.right else str(comparison),
        call=case.call,
        answer=answer,
        seconds=answer.seconds,
    )


def unanswered(case: Case, call: Call, answer: Answer) -> Result:
    """The result of a case whose call gave no result: refused, where an exception is allowed, or failed."""
    refused = answer.status == "raised" and case.optional
    return Result(
        case=case,
        status="refused" if refused else "fail",
        words=f"{'' if answer.status == 'raised' else answer.status + ': '}{answer.words}",
        call=call,
        answer=answer,
        seconds=answer.seconds,
    )


SHOWN = 5  # side effects, at most
ENDS = ("SystemExit", "KeyboardInterrupt", "GeneratorExit")  # exceptions that end a program, and are not errors


class Watched:
    """Passes calls to a session. A function that ends the process while its conventions are measured is wrong, whatever
    it does later.

    ended: those calls · seen: how many calls had each side effect, except for files in the folder of temporary ones
    """

    def __init__(self, session: Asks):
        self.session = session
        self.measuring = True
        self.ended: list[tuple[Call, Answer]] = []
        self.calls = 0
        self.seen: dict[str, int] = {}

    def call(self, call: Call, adapter: Adapter) -> Answer:
        """The answer to one call."""
        answer = self.session.call(call, adapter)
        ended = answer.status == "crashed" or (answer.status == "raised" and answer.words.startswith(ENDS))
        if ended and self.measuring:
            self.ended.append((call, answer))
        self.calls += 1
        for event in answer.events:
            if tempfile.gettempdir() not in event:
                self.seen[event] = self.seen.get(event, 0) + 1
        return answer

    def noticed(self) -> tuple[str, ...]:
        """The side effects in words, the most frequent first. Cases judge whether they are wrong: what compiles itself
        writes files and starts processes in its first calls.
        """
        most = sorted(self.seen.items(), key=lambda each: -each[1])[:SHOWN]
        return tuple(f"{event} (in {count} of {self.calls} calls)" for event, count in most)

    def results(self) -> list[Result]:
        """The first call that ended the process, as the result of a case."""
        return [
            Result(
                case=Case(name="process", law=0, level=0, says="a call does not end the process", call=call),
                status="fail",
                words=f"{'' if answer.status == 'raised' else answer.status + ': '}{answer.words}",
                call=call,
                answer=answer,
            )
            for call, answer in self.ended[:1]
        ]
