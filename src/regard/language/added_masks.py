"""Numbers that are added to scores to hide keys: when an added number is a mask, as one rule for every room.

The rule. Let every score of a row lie within ±S. A number n added to the score of one key hides that key if

    n ≤ −(104 + 2 · S)

because its score then lies at least 104 below that of any key to which nothing is added, and exp(−104) is 0 in
float32, in which sums are kept (law 10). NaN hides nothing, so that it shows.

What S is, depends on what the caller knows, and that is the only difference between the callers:

0                 hides from −104. Who looks at the weights as well, and asks only whether added numbers explain them.
`ORDINARY`        4,940, hides from −9984, as bfloat16 rounds −10⁴. Who reads what a model did, and compares the result
                  with what it computed: models that make their own masks add −10⁴, −10⁹ or the smallest number.
`range_of(dtype)` hides from half the smallest number of the dtype. Who computes for transformers: its masks hold the
                  smallest number, the sum of two lies no higher, and nobody means a score by such a number.
infinity          hides from −∞. Who computes where the caller may add any number, as in torch's own layers: a row in
                  which −10⁹ is added to every score has weights there, and must have them here.

Consequences. Who computes and treats a number as a mask leaves its key out, so a row in which every key is hidden
attends nothing and gives 0 (law 5), where adding a finite number to every score gives the weights of the bare scores,
or equal weights where the scores are lost in rounding. So who computes adds every number that is not that low, −10⁹ in
float32 too. Who only reads asks `hidden_beside`: in a row in which all numbers are so low, none of them hides anything,
because a softmax does not feel what is added to every score alike.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

__all__ = ["NOTHING", "ORDINARY", "hidden_beside", "hides", "range_of"]

NOTHING = 104  # exp(−104) is less than half of the smallest number of float32, so that it rounds to 0
ORDINARY = 4940.0  # scores of models are smaller than this by magnitude


def hides(added: Any, scores: float) -> Any:
    """Whether each added number hides its key, beside a key to which nothing is added; `added` is an array, a tensor or
    a number.

    scores: what no score exceeds by magnitude.

    >>> added = np.array([-1e4, -9983, -np.inf, np.nan])
    >>> hides(added, ORDINARY), hides(added, math.inf)
    (array([ True, False,  True, False]), array([False, False,  True, False]))
    """
    return added <= -(NOTHING + 2 * scores)


def hidden_beside(added: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Which allowed pairs (…, keys) the added numbers hide where scores are `ORDINARY`; a row of which they would hide
    every key sees them all.

    >>> hidden_beside(np.array([[-1e9, 0], [-1e9, -1e9]]), np.ones((2, 2), bool))
    array([[ True, False],
           [False, False]])
    """
    low = hides(added, ORDINARY) & allowed
    return low & (allowed & ~low).any(-1, keepdims=True)


@functools.lru_cache(64)
def range_of(dtype: Any) -> float:
    """The S at which numbers hide from half the smallest of a dtype on, NumPy's or torch's. Infinity for whole numbers,
    of which none means −∞.

    >>> hides(np.array([-65504, -32752, -32736], np.float16), range_of(np.dtype(np.float16)))
    array([ True,  True, False])
    """
    import ml_dtypes

    try:
        largest = float(ml_dtypes.finfo(str(dtype).removeprefix("torch.")).max)
    except (TypeError, ValueError):
        return math.inf
    return largest / 4 - NOTHING / 2
