"""A stand-in for the session: the function is called in this process."""

from dataclasses import dataclass

from regard.conformance.conventions.gradients import gradients
from regard.conformance.conventions.read import Unreadable, read
from regard.conformance.conventions.translate import prepare
from regard.conformance.conventions.validation import parameters_of
from regard.laws.call import Answer


@dataclass
class Described:
    """What is known of the function."""

    parameters: tuple


class Here:
    """Calls a function as the child process does."""

    def __init__(self, function):
        self.function = function
        self.parameters = parameters_of(function)

    @property
    def described(self):
        return Described(self.parameters)

    def call(self, call, adapter):
        prepared = prepare(call, adapter, self.parameters)
        try:
            if call.dout is None and call.dlse is None:
                found = {}
                result = read(prepared.call(self.function), call, prepared.adapter)
            else:
                result, found = gradients(self.function, prepared, call)
        except Unreadable as error:
            return Answer(status="unreadable", words=str(error), returned=error.returned)
        except Exception as error:  # the function's own
            return Answer(status="raised", words=f"{type(error).__name__}: {error}")
        return Answer(
            status="ok", out=result.out, lse=result.lse, weights=result.weights, dtype=result.dtype, gradients=found
        )
