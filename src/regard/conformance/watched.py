"""Watched: a session that remembers what calls did besides computing."""

from __future__ import annotations

import tempfile

from .answer import Answer
from .call import Call
from .cases.case import Case, Result
from .conventions.fields import Adapter
from .judge import Asks

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
