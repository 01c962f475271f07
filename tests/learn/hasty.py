"""The service of a check with less time to search for pairs of mistakes: unknown mistakes are a second faster."""

from regard.laws import explain
from regard.learn.checking.worker import service  # noqa: F401, which the process calls by its name

explain.EFFORT = 300
