"""Judge: asks the function, compares its answers with the law, and remembers what calls did besides."""

from __future__ import annotations

import tempfile
from collections import Counter

from ..common.errors import Refused
from ..laws.call import Answer, Call
from ..laws.expected import Comparison, compared_gradients, expected
from .cases.case import Case, Result
from .conventions.fields import Adapter
from .conventions.translate import Absent, Asks


class Judge:
    """The function under these conventions.

    session: what calls it · adapter: the conventions under which it is judged
    """

    def __init__(self, session: Asks, adapter: Adapter):
        self.session, self.adapter = session, adapter

    def ask(self, call: Call) -> Answer:
        """What the function answers."""
        return self.session.call(call, self.adapter)

    def answer(self, case: Case, call: Call | None = None) -> Answer:
        """What the function answers to the call of a case, or to another one; without a result, the case ends here."""
        call = call or case.call
        answer = self.ask(call)
        if answer.status != "ok":
            raise Unanswered(case, call, answer)
        return answer

    def compared(self, call: Call, answer: Answer) -> Comparison:
        """How an answer compares with the law: its results, or the gradients that were requested."""
        if call.dout is not None:
            return compared_gradients(call, self.adapter, answer)
        return expected(call, self.adapter).judge(answer)

    def result(self, case: Case) -> Result:
        """The result of a case."""
        try:
            return (case.check or agrees)(case, self)
        except Unanswered as lost:
            return lost.result
        except Absent as absent:
            words = absent.words
        except Refused as refused:
            words = f"{refused.reasons[0].what}: {refused.reasons[0].given}"
        return Result(case=case, status="absent", call=case.call, words=words)


def agrees(case: Case, judge: Judge) -> Result:
    """Whether the answer to the call of the case is what the law says."""
    answer = judge.answer(case)
    comparison = judge.compared(case.call, answer)
    right = comparison.right
    return answered(case, answer, right, "" if right else str(comparison), ratio=comparison.ratio)


def answered(case: Case, answer: Answer, right: bool, words: str, *, ratio: float | None = None) -> Result:
    """The result of a case whose call was answered."""
    status = "pass" if right else "fail"
    return Result(case=case, status=status, ratio=ratio, words=words, call=case.call, answer=answer)


class Unanswered(Exception):
    """A call of a case gave no result. The case does not count where an exception is allowed; otherwise it fails."""

    def __init__(self, case: Case, call: Call, answer: Answer):
        raised = answer.status == "raised"
        self.result = Result(
            case=case,
            status="refused" if raised and case.optional else "fail",
            words=answer.words if raised else f"{answer.status}: {answer.words}",
            call=call,
            answer=answer,
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
        self.seen: Counter[str] = Counter()

    def call(self, call: Call, adapter: Adapter) -> Answer:
        """The answer to one call."""
        answer = self.session.call(call, adapter)
        ended = answer.status == "crashed" or (answer.status == "raised" and answer.words.startswith(ENDS))
        if ended and self.measuring:
            self.ended.append((call, answer))
        self.calls += 1
        for event in answer.events:
            if tempfile.gettempdir() not in event:
                self.seen[event] += 1
        return answer

    def noticed(self) -> tuple[str, ...]:
        """The side effects in words, the most frequent first. Cases judge whether they are wrong: what compiles itself
        writes files and starts processes in its first calls.
        """
        return tuple(f"{event} (in {count} of {self.calls} calls)" for event, count in self.seen.most_common(SHOWN))

    def results(self) -> list[Result]:
        """The first call that ended the process, as the result of a case."""
        return [
            Unanswered(
                Case(name="process", law=0, level=0, says="a call does not end the process", call=call), call, answer
            ).result
            for call, answer in self.ended[:1]
        ]
