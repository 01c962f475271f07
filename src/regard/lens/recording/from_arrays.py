"""Runs without a model: one call from q and k, or given weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...common.arrays import read_array
from ...common.errors import refuse
from ...common.text.units import counted
from ...language.expr import Expr
from ...language.problem import Problem
from ..runs.axis import Axis
from ..runs.call import UNMEASURED, Call
from ..runs.detectors import of_tokens
from ..runs.figures import with_figures
from ..runs.run import Run
from .keeper import facts


def of_arrays(
    q,
    k,
    v=None,
    *,
    tokens: Sequence[str] | None = None,
    special=None,
    measures: Mapping[str, Expr] | None = None,
    **rules: Any,
) -> Run:
    """A run of one call from its q (H, Q, D) and k (G, K, D), with the mask and score rules of `attention`.

    >>> import numpy as np
    >>> of_arrays(*np.zeros((2, 1, 4, 8))).calls[0].weights(rows=[0])
    array([[[0.25, 0.25, 0.25, 0.25]]])
    """
    problem = Problem.of(q, k, v, where="look", **rules)
    if len(problem.q) != 1:
        raise refuse(
            "look",
            "several batch entries",
            f"q {list(np.shape(q))}",
            "one batch entry: (heads, rows, depth)",
            "pass q[0] and k[0]",
        )
    axes = _axes(problem.dims["Q"], problem.dims["K"], int(problem.query_start[0]), tokens, special)
    call = Call(
        "attention",
        0,
        queries=next(iter(axes)),
        keys="keys",
        lse=UNMEASURED,
        q=problem.q[0],
        k=problem.k[0],
        mask=problem.mask,
        score=problem.score,
        scale=problem.scale,
        start=int(problem.query_start[0]),
        sinks=problem.sinks,
        v=None if v is None else problem.v[0],
    )
    return Run("arrays", "", axes, (_with_figures(call, axes, measures),), facts=facts())


def _with_figures(call: Call, axes: Mapping[str, Axis], measures: Mapping[str, Expr] | None) -> Call:
    sets = of_tokens(axes["keys"], measures or {}) if call.aligned else {}
    return with_figures(call, axes["keys"].special, sets)


def of_weights(
    weights,
    *,
    mask=None,
    query_start=None,
    tokens: Sequence[str] | None = None,
    special=None,
    entry: int = 0,
    measures: Mapping[str, Expr] | None = None,
) -> Run:
    """A run of given weights: (Q, K), (H, Q, K) or (B, H, Q, K) of one layer, or a list with one array per layer.

    Examples:
        >>> import numpy as np, regard as rg
        >>> call = of_weights(np.full((1, 2, 2), 0.5), mask=rg.causal()).calls[0]
        >>> float(call.rows["forbidden"][0, 0])
        0.5
    """
    layers = list(weights) if isinstance(weights, list | tuple) else [weights]
    held = [_of_entry(read_array(each, "weights"), entry) for each in layers]
    sizes = {each.shape[1:] for each in held}
    if not held or len(sizes) != 1:
        raise refuse(
            "look",
            "weights of different sizes",
            ", ".join(map(str, sorted(sizes))) or "none",
            "the same rows and keys in all layers",
            "pass the layers one by one",
        )
    Q, K = sizes.pop()
    rules = [_rule(len(each), Q, K, mask, query_start) for each in held]
    start = int(rules[0].query_start[0])
    axes = _axes(Q, K, start, tokens, special)
    rows = next(iter(axes))
    calls = (
        Call(f"layer {number}", number, rows, "keys", UNMEASURED, mask=rule.mask, start=start, given=each)
        for number, (each, rule) in enumerate(zip(held, rules, strict=True))
    )
    measured = tuple(_with_figures(call, axes, measures) for call in calls)
    return Run("weights", "", axes, measured, facts=facts() | {"exact": "the weights are those that were passed"})


def _rule(H: int, Q: int, K: int, mask, query_start) -> Problem:
    """A problem with the mask as `attention` interprets it, for weights (H, Q, K)."""
    empty = np.zeros((H, 1, 1), np.float32)
    q, k = (np.broadcast_to(empty, (H, size, 1)) for size in (Q, K))
    return Problem.of(q, k, None, mask=mask, query_start=query_start, where="look")


def _of_entry(weights: np.ndarray, entry: int) -> np.ndarray:
    if weights.ndim == 4 and 0 <= entry < len(weights):
        return weights[entry]
    if weights.ndim in (2, 3) and not entry:
        return weights.reshape(-1, *weights.shape[-2:])
    raise refuse(
        "look",
        "not an array of weights",
        f"{list(weights.shape)} with entry={entry}",
        "(H, Q, K), or (B, H, Q, K) with an entry in its batch",
        "pass one array per layer, its axes in the order heads, rows, keys",
    )


def _axes(Q: int, K: int, start: int, tokens: Sequence[str] | None, special) -> dict[str, Axis]:
    """The key axis, which is also the query axis if the sizes are equal and row 0 is at key 0."""
    words = [str(i) for i in range(K)] if tokens is None else list(tokens)
    if len(words) != K:
        raise refuse(
            "look",
            "the number of tokens is not the number of keys",
            f"{counted(len(words), 'token')} for {counted(K, 'key')}",
            "one token per key",
            "check the tokens",
        )
    keys = Axis.of(words, special, "keys")
    return {"keys": keys} if Q == K and start == 0 else {"queries": Axis.of(Q, None, "queries"), "keys": keys}
