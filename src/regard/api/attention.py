"""The functions people call: Problem -> Plan -> engine."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from ..common.arrays import elsewhere, is_tensor, like
from ..common.call_hooks import watched
from ..common.errors import refuse
from ..engines.dispatch import choose, solve
from ..language.expr import Expr
from ..language.problem import Problem
from . import fast_path as again

__all__ = ["attention", "attention_weights", "attention_with_lse", "choose", "solve"]


def attention(
    q, k, v, *, mask=None, score=None, scale=None, query_start=None, sinks=None, dropout=0.0, seed=None, engine="auto"
):
    """Exact attention: each query row's weighted mean of the values it may see.

    out = softmax(score(scale · q kᵀ) where mask) v, over the keys of each row.

    q (…, H, Q, D) · k (…, G, K, D) · v (…, G, K, E), NumPy arrays or torch tensors, H a multiple of G -> out (…, H, Q,
    E) in
    their dtype: float32, float64, float16 or bfloat16 (torch's, or ml_dtypes'). Sums and lse are float32, for float64
    float64.
    mask: an expression, a callable mask(b, h, q, kv), or booleans that broadcast to (B, H, Q, K); true means "may
    attend".
    score: an expression, a callable score(s, b, h, q, kv), or floats that are added to the logits.
    scale: of q·k, by default 1/√D. query_start: the position of the first row on the key axis, by default K - Q.
    sinks: extra logits in the denominator, (H,) or (H, n). engine: "auto", "jit", "reference" or "sdpa"; for tensors
    on a graphics card "auto", "sdpa", "flex" or "tiles".
    dropout: the share of weights that fall out, the others growing by 1 / (1 - dropout); seed alone decides which (0 …
    2**64 - 1).

    Tensors that want gradients get them: q, k, v, sinks, and what the score reads (once: a second derivative is
    refused).

    Refused, with all reasons at once: shapes that do not fit, dtypes that are no floats, rules of the wrong kind. A row
    that may attend nothing gives 0.

    Source: Vaswani et al. 2017 (the formula); Dao et al. 2022 (computed in tiles, so that memory grows with Q, not
    Q·K).

    >>> import numpy as np, regard as rg
    >>> q = k = v = np.eye(3, dtype=np.float32)
    >>> rg.attention(q, k, v, mask=rg.causal()).round(2).tolist()[0]
    [1.0, 0.0, 0.0]
    """
    return _call(q, k, v, mask, score, scale, query_start, sinks, dropout, seed, engine, 1)[0]


def attention_with_lse(
    q, k, v, *, mask=None, score=None, scale=None, query_start=None, sinks=None, dropout=0.0, seed=None, engine="auto"
):
    """Attention and, per row, the logarithm of its denominator.

    lse = ln(Σ exp(score) over the allowed keys + Σ exp(sinks)); −inf for a row that may attend nothing and has no sink.

    Arguments as for `attention` -> (out (…, H, Q, E), lse (…, H, Q)). lse is in nats; weights are exp(score - lse).

    >>> import numpy as np, regard as rg
    >>> out, lse = rg.attention_with_lse(*np.zeros((3, 4, 8), np.float32))
    >>> bool(np.allclose(lse, np.log(4)))
    True
    """
    return _call(q, k, v, mask, score, scale, query_start, sinks, dropout, seed, engine, 2)


def attention_weights(
    q,
    k,
    *,
    mask=None,
    score=None,
    scale=None,
    query_start=None,
    sinks=None,
    dropout=0.0,
    seed=None,
    rows=None,
    keys=None,
):
    """The exact weights of a chosen rectangle of the attention matrix, without the rest.

    weights[i, j] = exp(score(i, j) - lse(i)); each row of the whole matrix sums to 1 (less with sinks; 0 if it may see
    nothing; on average 1 with dropout).

    q (…, H, Q, D) · k (…, G, K, D) -> (…, H, rows, keys) in q's dtype. rows, keys: anything that indexes an axis
    (slice, list, boolean array; an integer drops its axis); None is all. Memory grows with the chosen rows and keys.

    >>> import numpy as np, regard as rg
    >>> q = k = np.zeros((100_000, 8), np.float32)
    >>> round(float(rg.attention_weights(q, k, mask=rg.causal(), rows=9, keys=0)), 6)
    0.1
    """
    given = {
        "mask": mask,
        "score": score,
        "scale": scale,
        "query_start": query_start,
        "sinks": sinks,
        "dropout": dropout,
        "seed": seed,
        "where": "attention_weights",
    }
    call: Any = None
    if elsewhere(q):
        from ..engines import gpu

        call = gpu.DeviceCall.of(q, k, None, **given)
    problem = Problem.of(q, k, None, **given) if call is None else call.problem
    chosen = []
    for name, picked, size in (("rows", rows, problem.dims["Q"]), ("keys", keys, problem.dims["K"])):
        try:
            part = np.arange(size)[slice(None) if picked is None else picked]
            if part.ndim > 1:  # what a truth value or nested lists would give
                raise IndexError("it gives more than one axis")
            chosen.append(part)
        except (IndexError, TypeError, ValueError) as error:
            raise refuse(
                "attention_weights",
                f"{name} outside the matrix",
                given=f"{name}={picked!r}: {error}",
                expected=f"positions among {size}",
                fix="count from 0, or from the end with negative numbers",
            ) from error
    some = [np.atleast_1d(part) for part in chosen]
    if call is None:
        from ..engines.reference import attention as reference

        found = reference.weights(problem, *some).astype(problem.dtype)
    else:
        found = gpu.weights(call, *some)
    found = found.reshape((*_heads(problem), *chosen[0].shape, *chosen[1].shape))
    return like(q, found)


@watched("regard.attention")
def _call(q, k, v, mask, score, scale, query_start, sinks, dropout, seed, engine, wanted: int) -> tuple[Any, ...]:
    """out, or out and lse, shaped as the caller's arrays are."""
    if elsewhere(q):
        from ..engines import gpu

        return gpu.attention(
            q,
            k,
            v,
            mask=mask,
            score=score,
            scale=scale,
            query_start=query_start,
            sinks=sinks,
            dropout=dropout,
            seed=seed,
            engine=engine,
            wanted=wanted,
        )
    learning = _learning(q, k, v, sinks, score)
    if not learning and sinks is None and seed is None and not dropout:
        found = again.attend(q, k, v, mask, score, scale, query_start, engine, wanted)
        if found is not None:
            return found
    problem = Problem.of(
        q,
        k,
        v,
        mask=mask,
        score=score,
        scale=scale,
        query_start=query_start,
        sinks=sinks,
        dropout=dropout,
        seed=seed,
        gradients=True,
    )
    if learning or _learning(problem.score):
        from . import torch_operator as autograd

        return autograd.attend(problem, q, k, v, sinks, engine)[:wanted]
    heads = _heads(problem)
    return tuple([like(q, each.reshape(*heads, *each.shape[2:])) for each in solve(problem, engine)[:wanted]])


def _learning(*given) -> bool:
    """Whether torch waits for a gradient of one of these: tensors, or what an expression reads."""
    for value in given:
        for source in value.sources if isinstance(value, Expr) else (value,):
            if is_tensor(source) and source.requires_grad:
                return sys.modules["torch"].is_grad_enabled()
    return False


def _heads(problem: Problem) -> tuple[int, ...]:
    """The leading axes of the result, as the caller gave them."""
    B, H = problem.q.shape[:2]
    assert math.prod(problem.lead) == B * H
    return problem.lead
