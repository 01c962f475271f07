"""`look`: what is given (a model and a text, a module and its inputs, or plain arrays) becomes a Run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import read_array
from ..problem import Problem
from .axis import Axis
from .call import Call
from .figures import measure
from .run import Run

__all__ = ["of_arrays"]


def of_arrays(
    q, k, v=None, *, tokens: Sequence[str] | None = None, special=None, mask=None, score=None, scale=None, query_start=None,
    sinks=None, name: str = "attention",
) -> Run:  # fmt: skip
    """A run of one call from its q (H, Q, D) and k (G, K, D), with the rules that `attention` takes."""
    problem = Problem.of(read_array(q, "q")[None], read_array(k, "k")[None], None, mask=mask, score=score, scale=scale,
                         query_start=query_start, sinks=sinks, where="look")  # fmt: skip
    Q, K = problem.dims["Q"], problem.dims["K"]
    words = [str(i) for i in range(K)] if tokens is None else list(tokens)
    keys = Axis.of(words, special, "keys")
    axes = {"keys": keys} if Q == K else {"queries": Axis.of(Q, None, "queries"), "keys": keys}
    rules = {"mask": problem.mask, "score": problem.score, "scale": problem.scale, "start": int(problem.query_start[0])}
    lse, rows, received = measure(problem.q[0], problem.k[0], np.array(keys.special), **rules, sinks=problem.sinks)
    call = Call(name, 0, "keys" if Q == K else "queries", "keys", lse, problem.q[0], problem.k[0], **rules, sinks=problem.sinks,
                rows=rows, received=received, v=None if v is None else read_array(v, "v"))  # fmt: skip
    return Run("arrays", "", axes, (call,))
