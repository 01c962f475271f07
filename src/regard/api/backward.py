"""Gradients for whoever works with arrays: the backward pass of one call, in the shapes and dtypes of its arguments."""

from __future__ import annotations

from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from ..common.arrays import as_tensor, is_tensor, read_array
from ..common.errors import Reason, Refused
from ..engines import dispatch as engines
from ..language.expr import Table, tables_of
from ..language.problem import Gradients, Problem

__all__ = ["attention_backward", "fitted", "learned"]


def attention_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    out: Any = None,
    lse: Any = None,
    dlse: Any = None,
    mask: Any = None,
    score: Any = None,
    scale: SupportsFloat | None = None,
    query_start: Any = None,
    sinks: Any = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
    engine: str = "auto",
) -> Gradients:
    """The gradients of attention, without the matrix: exact, in a fixed order of sums, in memory that grows with the
    rows.

    dS = P ∘ (dP - δ + dlse), dP = dout vᵀ, δ = Σ dout · out;   dq = scale · dS k,  dk = scale · dSᵀ q,  dv = Pᵀ dout

    dout (…, H, Q, E): the gradient of `attention`'s output; dlse (…, H, Q): that of lse, or None for 0. out and lse:
    what `attention_with_lse` gave for the same arguments; without them the forward pass is computed once more. All else
    as for `attention` -> (q, k, v, tables, sinks), each in the shape and dtype of what was given. tables: for every
    array of floats that the score reads, by `rg.table(array)`; an array that is read twice gets the sum. Constants of
    regard's own, such as `alibi(8)` reads, have no entry. A masked pair passes nothing on, not even NaN; a row that may
    attend nothing gets zeros.

    Refused: out without lse or lse without out, shapes and dtypes other than those of the forward pass, engine="sdpa".

    Source: Dao et al. 2022 (recomputed in tiles); Baydin et al. 2018 (derivatives of the score by reverse mode).

    >>> import numpy as np, regard as rg
    >>> q = k = v = np.eye(3, dtype=np.float32)
    >>> slope = np.ones(1, np.float32)
    >>> found = attention_backward(np.ones((3, 3), np.float32), q, k, v, mask=rg.causal(), score=rg.alibi(slope))
    >>> found.v.sum(), found.tables[rg.table(slope)].shape
    (np.float32(9.0), (1,))
    """
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
        where="attention_backward",
    )
    B, H, Q, E = *problem.q.shape[:3], problem.v.shape[3]
    reasons: list[Reason] = []
    if (out is None) != (lse is None):
        reasons.append(
            Reason(
                "only one of out and lse",
                given="out alone" if lse is None else "lse alone",
                expected="both out and lse, or neither",
                fix="take both from attention_with_lse, or leave both out",
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
    mine = Gradients(dq, dk, dv, fit, dsinks)
    return _tensors(mine) if is_tensor(q) else mine


def _tensors(found: Gradients) -> Gradients:
    """The same as torch tensors."""
    q, k, v = map(as_tensor, found[:3])
    tables = {table: as_tensor(part) for table, part in found.tables.items()}
    return Gradients(q, k, v, tables, None if found.sinks is None else as_tensor(found.sinks))


def learned(problem: Problem) -> list[Table]:
    """The arrays of floats that the score reads."""
    return (
        [] if problem.score is None else [table for table in tables_of(problem.score).values() if table.kind == "float"]
    )


def fitted(gradient: np.ndarray, given: np.ndarray, problem: Problem) -> np.ndarray:
    """A gradient (B, heads, rows, depth) as the caller gave the array: what he broadcast over the batch is summed."""
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
    """What belongs to a result of the forward pass, as (B, H, Q …); None where nothing was given."""
    if value is None:
        if name == "dout":
            reasons.append(
                Reason(
                    "dout is missing",
                    given="None",
                    expected=f"{dtype} {list(shape)}",
                    fix="pass the gradient of the output",
                )
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
                given=f"{array.dtype} {list(array.shape)}",
                expected=f"{dtype} {list(shape)}",
                fix="pass what belongs to the result of the same arguments, in its dtype",
            )
        )
        return None
    return array.reshape(four)
