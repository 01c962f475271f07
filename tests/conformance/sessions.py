"""Sessions of tests: their calls have the conventions of the function, or those of the laws, if none are passed."""

from regard.conformance import session
from regard.conformance.conventions.fields import Adapter
from regard.conformance.conventions.parameters import completed
from regard.conformance.target import Target


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


class Here(InProcess):
    """The same, where only the answers and the parameters are of interest."""

    @property
    def parameters(self):
        return self.describe().parameters
