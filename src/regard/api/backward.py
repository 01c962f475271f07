"""Gradients for callers that use arrays: the backward pass of one call, in the shapes and dtypes of its arguments."""

from __future__ import annotations

from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from ..common.arrays import like, read_array
from ..common.compiled import outside_programs
from ..common.errors import Reason, Refused
from ..common.public import ArrayLike, ArrayT, Engine
from ..engines import dispatch as engines
from ..language.callables import Mask, Score
from ..language.checks.arguments import Arguments
from ..language.expr import Table, tables_of
from ..language.problem import Gradients, Problem


@outside_programs
def attention_backward(
    dout: ArrayT,
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    *,
    out: ArrayT | None = None,
    lse: ArrayT | None = None,
    dlse: ArrayT | None = None,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    query_start: SupportsIndex | ArrayLike | None = None,
    batch_start: SupportsIndex | None = None,
    head_start: SupportsIndex | None = None,
    sinks: ArrayLike | None = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
    engine: Engine = "auto",
) -> Gradients[ArrayT]:
    """The gradients of attention, without the matrix.

    dS = P ∘ (dP - δ + dlse), dP = dout vᵀ, δ = Σ dout · out;   dq = scale · dS k,  dk = scale · dSᵀ q,  dv = Pᵀ dout

    The result is exact and deterministic, and memory grows with the rows. A masked pair contributes nothing, not even
    NaN; a fully masked row gets zeros. With torch tensors that require gradients, call `attention` and `backward()`
    instead.

    Args:
        dout: (…, H, Q, E) the gradient of the output of `attention`.
        q: (…, H, Q, D) queries, as for `attention`.
        k: (…, G, K, D) keys.
        v: (…, G, K, E) values.
        out: (…, H, Q, E) the output of `attention_with_lse` with the same arguments. None computes the forward pass
            again. In 16 bits that is more accurate, because the rounding of `out` then does not affect δ.
        lse: (…, H, Q) the lse of the same call, together with `out`.
        dlse: (…, H, Q) the gradient of lse; None is 0.
        mask: which keys a row may attend to, as for `attention`.
        score: changes the logits, as for `attention`.
        scale: the factor of q·k, by default 1/√D.
        query_start: the position of the first row on the key axis, by default K - Q.
        batch_start: the number of the first batch entry in a larger call, as for `attention`.
        head_start: the number of the first query head in a larger call, as for `attention`.
        sinks: extra logits in the denominator, (H,) or (H, n).
        dropout: the rate of the forward pass.
        seed: the seed of the forward pass.
        engine: "auto", "jit" or "reference".

    Returns:
        A named tuple (q, k, v, tables, sinks); each gradient has the shape and dtype of its argument. `tables` maps
        `rg.table(array)` to the gradient of every float array that the score reads; constants that regard creates, such
        as the slopes of `alibi(8)`, have no entry. `sinks` is None without sinks.

    Raises:
        Refused: as for `attention`; also only one of out and lse, arrays that do not fit the forward pass, or
            engine="sdpa".

    Source:
        Dao et al. 2022 (recomputation in tiles); Baydin et al. 2018 (reverse-mode derivatives of the score).

    Examples:
        >>> import numpy as np, regard as rg
        >>> q = k = v = np.eye(3, dtype=np.float32)
        >>> slope = np.ones(1, np.float32)
        >>> dout = np.ones((3, 3), np.float32)
        >>> gradients = rg.attention_backward(dout, q, k, v, mask=rg.causal(), score=rg.alibi(slope))
        >>> gradients.v.sum(), gradients.tables[rg.table(slope)].shape
        (np.float32(9.0), (1,))
    """
    arguments = Arguments(mask, score, scale, query_start, sinks, dropout, seed, batch_start, head_start)
    problem: Problem = Problem.of(q, k, v, **arguments._asdict(), where="attention_backward")
    B, H, Q, E = (problem.dims[name] for name in "BHQE")
    reasons: list[Reason] = []
    if (out is None) != (lse is None):
        reasons.append(
            Reason(
                "only one of out and lse",
                "out alone" if lse is None else "lse alone",
                "both out and lse, or neither",
                "pass both results of attention_with_lse, or omit both",
            )
        )
    dout_, out_ = (
        _result(name, value, (*problem.lead, Q, E), (B, H, Q, E), problem.dtype, reasons)
        for name, value in (("dout", dout), ("out", out))
    )
    dlse_, lse_ = (
        _result(name, value, (*problem.lead, Q), (B, H, Q), problem.real, reasons)
        for name, value in (("dlse", dlse), ("lse", lse))
    )
    if reasons:
        raise Refused("attention_backward", reasons)
    assert dout_ is not None
    tables = [table for table in learned(problem) if not table.frozen]
    saved = engines.keep(problem, engine, None if out_ is None or lse_ is None else (out_, lse_))
    found = engines.pull_back(problem, saved, dout_, dlse_, tables)
    dq, dk, dv = (
        fitted(gradient, read_array(given, name), problem)
        for gradient, given, name in zip(found[:3], (q, k, v), "qkv", strict=True)
    )
    fit = {table: gradient.astype(table.array.dtype) for table, gradient in found.tables.items()}
    dsinks = (
        None if found.sinks is None else found.sinks.astype(problem.dtype).reshape(read_array(sinks, "sinks").shape)
    )
    named = {table: like(q, part) for table, part in fit.items()}
    return Gradients(like(q, dq), like(q, dk), like(q, dv), named, None if dsinks is None else like(q, dsinks))


def learned(problem: Problem) -> list[Table]:
    """The arrays of floats that the score reads."""
    return (
        [] if problem.score is None else [table for table in tables_of(problem.score).values() if table.kind == "float"]
    )


def fitted(gradient: np.ndarray, given: np.ndarray, problem: Problem) -> np.ndarray:
    """A gradient (B, heads, rows, depth) in the shape of the argument; axes that the caller broadcast are summed."""
    shape, inner = given.shape, gradient.shape[1:]
    whole = gradient.reshape(*problem.lead[:-1], *inner)
    lead = (
        (1,) * (whole.ndim - len(shape)) + shape[: max(len(shape) - 3, 0)]
        if len(shape) > 2
        else (1,) * (whole.ndim - 3)
    )
    axes = tuple(axis for axis, size in enumerate(lead) if size == 1 and whole.shape[axis] != 1)
    if axes:
        wider: Any = np.result_type(given.dtype, np.float32)
        whole = whole.astype(wider).sum(axes)
    return np.ascontiguousarray(whole.reshape(shape), given.dtype)


def _result(name: str, value, shape, four, dtype, reasons: list[Reason]) -> np.ndarray | None:
    """An array that has the shape of a result of the forward pass, as (B, H, Q …); None if it was not passed."""
    if value is None:
        if name == "dout":
            reasons.append(
                Reason("dout is missing", "None", f"{dtype} {list(shape)}", "pass the gradient of the output")
            )
        return None
    try:
        array = read_array(value, name)
    except Refused as refused:
        reasons.extend(refused.reasons)
        return None
    if array.shape != shape or array.dtype != dtype:
        reasons.append(
            Reason(
                f"{name} does not fit the result",
                f"{array.dtype} {list(array.shape)}",
                f"{dtype} {list(shape)}",
                "pass the array for the result of the same arguments, in its dtype",
            )
        )
        return None
    return array.reshape(four)
