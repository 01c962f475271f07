"""A right answer in another style: library."""

from regard.engines.reference import scalar


def softmax(row):
    return scalar.softmax(row)
