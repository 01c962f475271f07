"""What one call of attention means: its rules as expressions, and the steps of the law as functions. A known mistake is
a change of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import and_

import numpy as np

from ...language.analysis import substituted
from ...language.expr import Expr
from ...language.expr import score as the_score
from .backward_steps import BackwardSteps
from .steps import (
    Added,
    Finish,
    Inputs,
    Product,
    ToLse,
    ToOutput,
    ToWeights,
    as_it_is,
    lse,
    masked_softmax,
    nothing,
    product,
    same_inputs,
    weighted_sum,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Arguments:
    """out = weights(score(scale · q·k), mask) · v, for one call.

    masks: conditions by the name of the argument that they come from ("mask", "causal", "window", "lengths"; "rule" for
    everything together, where only that is known); a pair is allowed if all are true · scores: changes of the score by
    name ("softcap", "bias"), applied in order · start: the position of row 0 on the key axis · sinks (H, S) · heads,
    queries, keys, depth: sizes of q and k · key_heads, value_heads (H or G,): the number of the given key or value head
    that each head uses · real: the dtype of sums, outside of whose range numbers are infinite or 0 · the other fields
    are the steps; `recomputed` changes the arguments with which a backward pass computes the weights again
    """

    masks: Mapping[str, Expr] = field(default_factory=dict)
    scores: Mapping[str, Expr] = field(default_factory=dict)
    scale: float
    start: int
    sinks: np.ndarray | None = None
    heads: int
    queries: int
    keys: int
    depth: int
    key_heads: np.ndarray
    value_heads: np.ndarray
    real: type = np.float32
    inputs: Inputs = same_inputs
    product: Product = product
    to_weights: ToWeights = masked_softmax
    to_output: ToOutput = weighted_sum
    to_lse: ToLse = lse
    finish: Finish = as_it_is
    added: Added = nothing
    backward: BackwardSteps = field(default_factory=BackwardSteps)
    recomputed: Callable[[Arguments], Arguments] | None = None

    @property
    def groups(self) -> int:
        """The number of key heads."""
        return len(self.key_heads)

    @property
    def mask(self) -> Expr | None:
        """The condition for a pair to be allowed; None if every pair is."""
        return reduce(and_, self.masks.values()) if self.masks else None

    @property
    def score(self) -> Expr | None:
        """The score as an expression of scale · q·k; None if nothing changes it."""
        found: Expr | None = None
        for change in self.scores.values():
            found = change if found is None else substituted(change, {the_score: found})
        return found
