"""Watched: a session that remembers the calls that ended the process while conventions were measured."""

from __future__ import annotations

from .answer import Answer
from .call import Call
from .cases.case import Case, Result
from .conventions.fields import Adapter
from .judge import Asks

__all__ = ["Watched"]

ENDS = ("SystemExit", "KeyboardInterrupt", "GeneratorExit")  # exceptions that end a program, and are not errors


class Watched:
    """Passes calls to a session. A function that ends the process in one of them is wrong, whatever it does later."""

    def __init__(self, session: Asks):
        self.session = session
        self.ended: list[tuple[Call, Answer]] = []

    def call(self, call: Call, adapter: Adapter) -> Answer:
        """The answer to one call."""
        answer = self.session.call(call, adapter)
        if answer.status == "crashed" or (answer.status == "raised" and answer.words.startswith(ENDS)):
            self.ended.append((call, answer))
        return answer

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
