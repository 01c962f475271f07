"""Biases that hide keys: a plan leaves out the tiles in which an added array is −infinity, as it does for a mask.

    s' = s + bias[…, query, key]        s' = −∞ where bias = −∞ and s is neither NaN nor +∞

Such a pair has no weight. The products of queries and keys are checked in each call: if all of them are finite, s is.
The kernel computes the same either way; only the tiles that it visits differ.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...common.dtypes import row_of
from ...language.expr import Op, Read, Table
from ...language.expr import key as the_key
from ...language.expr import score as the_score
from ...language.problem import Problem

ROWS = 64  # with fewer rows, checking the keys takes longer than tiles save
SAMPLED = 64, 16  # every 64th row and every 16th key are looked at first
WORTH = 0.1  # the share of these that must be hidden
LARGEST = 1e37  # a product of this size is far from overflow in float32, the narrowest type of sums


def as_planned(problem: Problem) -> Problem:
    """The problem with the mask that its plan is made from.

    Only for arrays that may change: the plan of any other call is kept for further calls, whose products may not be
    finite.
    """
    read = _bias(problem)
    if read is None or read.table.frozen or not hides(read.table.array, problem.dims["Q"]):
        return problem
    if not _finite_products(problem):
        return problem
    bits, nothing = _bits(read.table.array)
    visible = bits != nothing
    allowed = Read(Table(visible, visible, read.table.name), *read.index)
    return replace(problem, mask=allowed if problem.mask is None else problem.mask & allowed)


def hides(numbers: np.ndarray, rows: int) -> bool:
    """Whether enough of the numbers that are added to the scores of this many rows are −infinity."""
    if rows < ROWS or numbers.ndim < 2 or row_of(numbers.dtype) is None or not numbers.dtype.isnative:
        return False
    bits, nothing = _bits(numbers)
    sample = bits[..., :: SAMPLED[0], :: SAMPLED[1]] == nothing
    return bool(sample.mean() >= WORTH)


def _bits(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as integers, because NumPy compares bfloat16 slowly; and −infinity."""
    bits = numbers.view(f"u{numbers.itemsize}")
    return bits, np.array(-math.inf, numbers.dtype).view(bits.dtype)


def _bias(problem: Problem) -> Read | None:
    """The read of an array of (…, query, key) in score + array[…], or None."""
    score = problem.score
    if not isinstance(score, Op) or score.name != "add" or all(part is not the_score for part in score.args):
        return None
    others = [part for part in score.args if isinstance(part, Read) and part.kind == "float"]
    return next((read for read in others if len(read.index) > 1 and read.index[-1] is the_key), None)


def _finite_products(problem: Problem) -> bool:
    """Whether no score can be NaN or infinite, from the largest elements; by their bits, because NumPy compares
    bfloat16 slowly.
    """
    largest = [_largest(array) for array in (problem.q, problem.k)]
    product = largest[0] * largest[1] * problem.dims["D"] * max(abs(problem.scale), 1.0)
    return bool(product < LARGEST)  # also False for NaN


def _largest(array: np.ndarray) -> float:
    """The largest magnitude; NaN or infinity if there is one."""
    if not array.size:
        return 0.0
    width = 8 * array.itemsize
    magnitude = array.view(f"u{array.itemsize}") & ((1 << (width - 1)) - 1)
    return float(magnitude.max().astype(f"u{array.itemsize}").view(array.dtype))
