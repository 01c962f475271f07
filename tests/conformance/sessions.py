"""Sessions of tests: their calls have the conventions of the function, or those of the laws, if none are passed."""

from regard.conformance import session
from regard.conformance.conventions.fields import Adapter
from regard.conformance.conventions.parameters import completed, parameters_of
from regard.conformance.conventions.read import Unreadable, read, with_gradients
from regard.conformance.conventions.translate import prepare
from regard.conformance.target import Target
from regard.laws.call import Answer


class Closes:
    """Is closed by `with`."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Session(Closes, session.Session):
    """A session by the text that names the function. adapter: for calls that pass none"""

    def __init__(self, target, adapter=None, seconds=10.0, loading=60.0):
        super().__init__(Target.parse(target), seconds, loading)
        self.adapter = adapter

    def call(self, call, adapter=None, seconds=None):
        usual, self.seconds = self.seconds, seconds or self.seconds
        try:
            return super().call(call, conventions(self.describe(), adapter or self.adapter))
        finally:
            self.seconds = usual


class InProcess(Closes, session.InProcess):
    """The same in this process."""

    def call(self, call, adapter=None):
        return super().call(call, conventions(self.describe(), adapter))


def conventions(described, adapter):
    """The adapter of a call, completed as that of a run is."""
    return completed(adapter or described.adapter or Adapter(), described.parameters)


class Here:
    """Calls a function as the child process does."""

    def __init__(self, function):
        self.function = function
        self.parameters = parameters_of(function)

    def call(self, call, adapter):
        adapter = completed(adapter, self.parameters)
        prepared = prepare(call, adapter, self.parameters)
        try:
            if call.dout is None:
                return read(prepared.call(self.function), call, adapter)
            return with_gradients(self.function, prepared, call, adapter)
        except Unreadable as error:
            return Answer(status="unreadable", words=str(error), returned=error.returned)
        except Exception as error:  # the function's own
            return Answer(status="raised", words=f"{type(error).__name__}: {error}")
