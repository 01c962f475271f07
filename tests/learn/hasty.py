"""The process of a check that does not search for pairs of mistakes for a second, in which it finds none."""

from regard.laws import explain
from regard.learn.checking.worker import service  # noqa: F401, which the process calls by its name

explain.EFFORT = 300
