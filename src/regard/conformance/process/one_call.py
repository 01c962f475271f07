"""One call of the judged function, in the process where it runs: prepared, made, watched, and its result read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ..answer import Answer
from ..call import Call
from ..conventions.fields import Adapter
from ..conventions.gradients import gradients
from ..conventions.parameters import parameters_of
from ..conventions.read import Result, Unreadable, read
from ..conventions.translate import Absent, Prepared, prepare
from .memory import peak, restart_peak
from .plain_text import one_line, said
from .side_effects import Contents, EarlierResult, changed_state, process_state

Failure = tuple[str, str, Any] | None  # a status, words, and the structure of what was returned instead


class Events(Protocol):
    """What collects the events of a call."""

    def start(self) -> None: ...

    def stop(self) -> list[str]: ...


class Callee:
    """The judged function, called again and again.

    events: what collects side effects, or None · caught: the exceptions that count as raised by the function
    """

    def __init__(self, function: Callable[..., Any], events: Events | None, caught: tuple[type[BaseException], ...]):
        self.function = function
        self.events = events
        self.caught = caught
        self.parameters = parameters_of(function)
        self.process = os.getpid()
        self.earlier: EarlierResult | None = None

    def answer(self, call: Call, adapter: Adapter) -> Answer:
        """Makes one call. Raises Absent or Refused if the adapter cannot express it."""
        prepared = prepare(call, adapter, self.parameters)
        inputs, state = Contents(prepared.given), process_state()
        size = restart_peak()
        if self.events:
            self.events.start()
        start = time.perf_counter()
        try:
            failure, result, gradients = self._made(call, prepared)
        finally:
            if os.getpid() != self.process:
                os._exit(0)  # a copy of the process that the function made and returned in: one answer is enough
            seconds = time.perf_counter() - start
            seen = self.events.stop() if self.events else []
        grown = peak(size)
        seen += [f"changed its input {name}" for name in inputs.changed()]
        seen += changed_state(state, random_allowed=call.dropout is not None)
        if failure is None and not isinstance(result, Result):
            failure, result = self._read(result, call, prepared.adapter, seen)
        known: dict[str, Any] = {"events": tuple(seen), "seconds": seconds, "peak": grown}
        if failure is not None:
            return Answer(status=failure[0], words=failure[1], returned=failure[2], **known)
        read = {name: getattr(result, name) for name in ("out", "lse", "weights", "dtype")}
        return Answer(status="ok", gradients=gradients, **read, **known)

    def _made(self, call: Call, prepared: Prepared) -> tuple[Failure, Any, dict[str, np.ndarray]]:
        """What the function returned, or with gradients, what was read of it."""
        try:
            if call.dout is None and call.dlse is None:
                return None, prepared.call(self.function), {}
            return None, *gradients(self.function, prepared, call)
        except Absent:
            raise
        except Unreadable as error:
            return ("unreadable", one_line(str(error)), error.returned), None, {}
        except self.caught as error:
            return ("raised", said(error), None), None, {}

    def _read(self, result: Any, call: Call, adapter: Adapter, seen: list[str]) -> tuple[Failure, Any]:
        """The result in canonical form. What it says of the previous result is added to the events `seen`."""
        try:
            with np.errstate(all="ignore"):
                if self.earlier is not None:
                    seen += self.earlier.events(result)
                self.earlier = EarlierResult(result)
                return None, read(result, call, adapter)
        except Unreadable as error:
            return ("unreadable", one_line(str(error)), error.returned), None
        except self.caught as error:  # the result may be of the function's own class, whose attributes raise anything
            return ("unreadable", said(error), None), None
