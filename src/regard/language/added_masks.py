"""When a number that is added to a score masks its key: one rule for all packages.

The rule. Let every score of a row be within ±S. A number n that is added to the score of one key masks that key if

    n ≤ −(104 + 2 · S)

because its score is then at least 104 below that of any key to which nothing is added, and exp(−104) is 0 in float32,
the dtype of sums (law 10). NaN does not mask, so that it propagates.

S depends on what the caller knows about the scores:

0                 masks from −104. For callers that have the weights, and only check whether added numbers explain them.
`ORDINARY`        4,940, masks from −9984, which is −10⁴ rounded to bfloat16. For callers that analyze a recorded model
                  and compare with its output: handwritten masks add −10⁴, −10⁹ or the smallest number.
`range_of(dtype)` masks from half the smallest number of the dtype. For attention in transformers: its masks contain the
                  smallest number or a sum of two, and no score is that low.
infinity          masks from −∞. For attention with arbitrary added numbers, as in torch's own layers: a row in which
                  −10⁹ is added to every score has weights there, and must have the same weights here.

Consequences. Attention omits masked keys, so a row in which every key is masked gives 0 (law 5), whereas adding a
finite number to every score gives the weights of the original scores, or equal weights if the scores are lost in
rounding. Therefore attention adds every number above its limit, −10⁹ in float32 included. Analysis calls
`hidden_beside`: in a row in which all numbers are below the limit none of them masks a key, because softmax is
invariant to a constant that is added to all scores.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

NOTHING = 104  # exp(−104) is less than half of the smallest number of float32, so that it rounds to 0
ORDINARY = 4940.0  # scores of models are smaller than this by magnitude


def hides(added: Any, scores: float) -> Any:
    """Whether each added number masks its key, next to a key to which nothing is added.

    added: an array, a tensor or a number.

    scores: an upper bound of the magnitude of the scores.

    >>> added = np.array([-1e4, -9983, -np.inf, np.nan])
    >>> hides(added, ORDINARY), hides(added, math.inf)
    (array([ True, False,  True, False]), array([False, False,  True, False]))
    """
    return added <= -(NOTHING + 2 * scores)


def hidden_beside(added: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Which allowed pairs (…, keys) the added numbers mask if scores are `ORDINARY`; in a row in which they would mask
    every key they mask none.

    >>> hidden_beside(np.array([[-1e9, 0], [-1e9, -1e9]]), np.ones((2, 2), bool))
    array([[ True, False],
           [False, False]])
    """
    low = hides(added, ORDINARY) & allowed
    return low & (allowed & ~low).any(-1, keepdims=True)


@functools.lru_cache(64)
def range_of(dtype: Any) -> float:
    """The S for which numbers mask from half the smallest number of a dtype of NumPy or torch. Infinity for integers,
    which have no −∞.

    >>> hides(np.array([-65504, -32752, -32736], np.float16), range_of(np.dtype(np.float16)))
    array([ True,  True, False])
    """
    import ml_dtypes

    try:
        largest = float(ml_dtypes.finfo(str(dtype).removeprefix("torch.")).max)
    except (TypeError, ValueError):
        return math.inf
    return largest / 4 - NOTHING / 2


def how_to_pass(numbers: Any, name: str, *, added: str = "", condition: str = "") -> str:
    """The fix for numbers that were passed as booleans (true means "may attend"): code that means the same.

    numbers: an array; name: the variable of the code. added: how numbers to add are passed, "" where they cannot be.
    condition: how booleans are passed. A mask of floats that are all 0 is added: it hides nothing.

    >>> how_to_pass(np.array([0.0, -np.inf]), "m", added="score=", condition="mask=")
    'pass score=m, or mask=m == 0, which skips keys: its numbers hide a key by being added to its score'
    >>> how_to_pass(np.array([0, 1]), "m", condition="mask=")
    'pass mask=m != 0 if 1 means "may attend", or mask=m == 0 if 1 means "masked"'
    """
    read = np.asarray(numbers).astype(np.float64)
    low, floats = hides(read, ORDINARY), np.asarray(numbers).dtype.kind not in "iu"
    if read.size and ((read == 0) | low).all() and (low.any() or floats):
        sums = f"{added}{name}, or " if added else ""
        return (
            f"pass {sums}{condition}{name} == 0{', which skips keys' if added else ''}: "
            "its numbers hide a key by being added to its score"
        )
    if read.size and ((read == 0) | (read == 1)).all():
        return f'pass {condition}{name} != 0 if 1 means "may attend", or {condition}{name} == 0 if 1 means "masked"'
    if added:
        return (
            f"pass {added}{name} if its numbers are added to scores; a condition is a comparison, such as {name} > 0.5"
        )
    return f'compare it, so that true means "may attend": numbers of 0 and −infinity become {name} == 0'
