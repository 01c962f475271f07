"""The reference: the definition of attention in float64 NumPy. Every engine is tested against it; none imports it.

It is written for clarity, not for speed: it builds the full matrix. Names end in the axes of the array: B batch, H
query heads, Q query rows, K key rows, D score depth, E value depth.

    >>> import numpy as np
    >>> from regard.language.problem import Problem
    >>> q = k = v = np.eye(2)
    >>> out, lse = forward(Problem.of(q, k, v, scale=1.0))
    >>> bool(np.isclose(lse[0, 0, 0], np.log(np.e + 1)))
    True
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...language.analysis import adjoints, clamped, evaluate
from ...language.expr import Expr, Read, tables_of
from ...language.expr import score as the_score
from ...language.problem import Gradients, Problem, Tangents

ROWS, KEYS = 64, 2048  # of a block in `weights`: half a megabyte per head, and enough work per NumPy call
ROOM = 1 << 20  # numbers of the matrix of some rows in derivatives, so that it stays in a cache


class Denominator(NamedTuple):
    """Σ exp(s) = total · exp(top), in two parts: as a single lse, a sum of n equal scores of 1e16 or more would lose
    its ln n to rounding.
    """

    top: np.ndarray
    total: np.ndarray

    @property
    def lse(self) -> np.ndarray:
        return some_number(self.top) + np.log(self.total)

    def joined(self, other: Denominator) -> Denominator:
        top = np.maximum(self.top, other.top)
        return Denominator(top, sum(part.total * np.exp(part.top - some_number(top)) for part in (self, other)))


def forward(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """out = softmax(score(scale · q kᵀ) where mask) v, and lse = ln(Σ exp(score) + Σ exp(sinks)).

    -> out (B, H, Q, E), lse (B, H, Q) in nats, both float64. A fully masked row gives out = 0 and, without sinks,
    lse = −inf.
    """
    with np.errstate(all="ignore"):
        s_BHQK, values = logits(problem, *everywhere(problem))
        below_BHQ = with_sinks(problem, denominator(s_BHQK))
        p_BHQK = shares(s_BHQK, below_BHQ) * left_over(problem, values)
        return weighted_sum(p_BHQK, s_BHQK != -np.inf, per_query_head(problem, problem.v)), below_BHQ.lse


def weights(problem: Problem, rows: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """exp(score) / (Σ exp(score) + Σ exp(sinks)) for selected rows and keys (indices from 0) -> (B, H, rows, keys),
    float64, after dropout.

    The denominators are summed block by block, so memory grows with the selection and not with Q · K.
    """
    B, H, K = (problem.dims[name] for name in "BHK")
    found = np.zeros((B, H, len(rows), len(keys)))
    with np.errstate(all="ignore"):
        for some in blocks(len(rows), ROWS):
            below_BHR = denominator(np.empty((B, H, len(rows[some]), 0)))
            for block in blocks(K, KEYS):
                s_BHRK, _ = logits(problem, rows[some], np.arange(block.start, min(block.stop, K)))
                below_BHR = below_BHR.joined(denominator(s_BHRK))
            below_BHR = with_sinks(problem, below_BHR)
            for block in blocks(len(keys), KEYS):
                s_BHRK, values = logits(problem, rows[some], keys[block])
                found[:, :, some, block] = shares(s_BHRK, below_BHR) * left_over(problem, values)
    return found


def backward(problem: Problem, dout: np.ndarray, dlse: np.ndarray | None = None) -> Gradients:
    """The gradients of Σ out · dout + Σ lse · dlse, by dS = P ∘ (dP − δ + dlse) with dP = dout vᵀ and δ = Σ dout · out.

    dout (B, H, Q, E), dlse (B, H, Q) or None for 0 -> float64, with an entry for every float table of the score.
    A masked pair contributes no gradient, nor does a fully masked row.
    """
    dout_BHQE = np.asarray(dout, np.float64)
    dlse_BHQ = np.zeros(dout_BHQE.shape[:3]) if dlse is None else np.asarray(dlse, np.float64)
    q_BHQD = problem.q.astype(np.float64)
    k_BHKD, v_BHKE = per_query_head(problem, problem.k), per_query_head(problem, problem.v)

    with np.errstate(all="ignore"):
        s_BHQK, values = logits(problem, *everywhere(problem))
        allowed_BHQK = s_BHQK != -np.inf
        below_BHQ = with_sinks(problem, denominator(s_BHQK))
        p_BHQK, left_BHQK = shares(s_BHQK, below_BHQ), left_over(problem, values)
        out_BHQE = weighted_sum(p_BHQK * left_BHQK, allowed_BHQK, v_BHKE)
        dp_BHQK = dout_BHQE @ v_BHKE.swapaxes(-1, -2) * left_BHQK
        rest_BHQ = dlse_BHQ - (dout_BHQE * out_BHQE).sum(-1)
        ds_BHQK = np.where(allowed_BHQK, p_BHQK * (dp_BHQK + rest_BHQ[..., None]), 0)

        def through(partial: Expr | None) -> np.ndarray:
            """The gradient that reaches a leaf of the score expression, given d score' / d leaf."""
            if partial is None:
                return np.zeros_like(ds_BHQK)
            return np.where(allowed_BHQK, ds_BHQK * evaluate(partial, values, problem.real), 0)

        rule = score_rule(problem)
        partials = adjoints(rule)
        tables = {found: np.zeros(found.array.shape) for found in tables_of(rule).values() if found.kind == "float"}
        for leaf, partial in partials.items():
            if isinstance(leaf, Read) and leaf.table in tables:
                place = clamped(
                    leaf.table, [np.broadcast_to(evaluate(part, values), ds_BHQK.shape) for part in leaf.index]
                )
                np.add.at(tables[leaf.table], place, through(partial))

        dlogit_BHQK = problem.scale * through(partials.get(the_score))
        across_BHKQ = allowed_BHQK.swapaxes(-1, -2)
        dq_BHQD = weighted_sum(dlogit_BHQK, allowed_BHQK, k_BHKD)
        dk_BHKD = weighted_sum(dlogit_BHQK.swapaxes(-1, -2), across_BHKQ, q_BHQD)
        dv_BHKE = weighted_sum((p_BHQK * left_BHQK).swapaxes(-1, -2), across_BHKQ, dout_BHQE)

        dsinks_HS = None
        if problem.sinks is not None:
            share_BHQS = shares(problem.sinks[:, None].astype(np.float64), below_BHQ)
            dsinks_HS = (share_BHQS * rest_BHQ[..., None]).sum((0, 2))
    return Gradients(dq_BHQD, per_group(problem, dk_BHKD), per_group(problem, dv_BHKE), tables, dsinks_HS)


def push_forward(problem: Problem, tangents: Tangents) -> tuple[np.ndarray, np.ndarray]:
    """dlse = Σ P ∘ dS,  dout = (P ∘ (dS − dlse)) v + P dv,  where dS is the change of the scores.

    -> dout (B, H, Q, E), dlse (B, H, Q), float64. A masked pair contributes nothing, and a fully masked row gives 0.
    """
    B, H, Q, E = (problem.dims[name] for name in "BHQE")
    dout_BHQE, dlse_BHQ = np.zeros((B, H, Q, E)), np.zeros((B, H, Q))
    v_BHKE = per_query_head(problem, problem.v)
    dv_BHKE = None if tangents.v is None else per_query_head(problem, tangents.v)
    with np.errstate(all="ignore"):
        for some in blocks(Q, rows_at_a_time(problem)):
            rows = np.arange(Q)[some]
            s_BHRK, values = logits(problem, rows, np.arange(problem.dims["K"]))
            allowed_BHRK = s_BHRK != -np.inf
            below_BHR = with_sinks(problem, denominator(s_BHRK))
            p_BHRK, left_BHRK = shares(s_BHRK, below_BHR), left_over(problem, values)
            change_BHRK = p_BHRK * _change(problem, tangents, rows, values)
            change_BHRK = np.where(allowed_BHRK, change_BHRK, 0)
            dlse_BHR = change_BHRK.sum(-1)
            if tangents.sinks is not None and problem.sinks is not None:
                share_BHRS = shares(problem.sinks[:, None].astype(np.float64), below_BHR)
                dlse_BHR = dlse_BHR + (share_BHRS * tangents.sinks[:, None]).sum(-1)
            moved_BHRK = np.where(allowed_BHRK, change_BHRK - p_BHRK * dlse_BHR[..., None], 0) * left_BHRK
            out_BHRE = weighted_sum(moved_BHRK, allowed_BHRK, v_BHKE)
            if dv_BHKE is not None:
                out_BHRE = out_BHRE + weighted_sum(p_BHRK * left_BHRK, allowed_BHRK, dv_BHKE)
            dout_BHQE[:, :, some], dlse_BHQ[:, :, some] = out_BHRE, dlse_BHR
    return dout_BHQE, dlse_BHQ


def _change(problem: Problem, tangents: Tangents, rows: np.ndarray, values) -> np.ndarray:
    """dS: the change of the scores (B, H, rows, K), through the logit and through every table."""
    partials = adjoints(score_rule(problem))
    found = np.zeros(values["score"].shape)
    if the_score in partials:
        found = found + evaluate(partials[the_score], values) * logit_change(problem, tangents, rows)
    for leaf, partial in partials.items():
        if isinstance(leaf, Read) and leaf.table in tangents.tables:
            place = clamped(leaf.table, [evaluate(part, values) for part in leaf.index])
            moved = tangents.tables[leaf.table].astype(np.float64)[place]
            found = found + np.where(moved == 0, 0, evaluate(partial, values) * moved)
    return found


def logit_change(problem: Problem, tangents: Tangents, rows: np.ndarray) -> np.ndarray:
    """scale · (dq kᵀ + q dkᵀ)."""
    found = np.zeros((1, 1, len(rows), problem.dims["K"]))
    for q, k in ((tangents.q, problem.k), (problem.q, tangents.k)):
        if q is not None and k is not None:
            part = dataclasses.replace(problem, q=q, k=k, score=None, mask=None)
            found = found + logits(part, rows, np.arange(problem.dims["K"]))[0]
    return found


def logits(problem: Problem, rows: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The input of the softmax, −inf where masked, and the variables it was computed from.

    Masked scores are replaced, not added to: −inf + NaN would be NaN, and a masked NaN must have no effect.
    """
    B, H = problem.q.shape[:2]
    shape = (B, H, len(rows), len(keys))
    q_BHQD = picked(problem.q, rows).astype(np.float64)
    k_BHKD = per_query_head(problem, picked(problem.k, keys))
    values = {
        "batch": np.arange(B)[:, None, None, None],
        "head": np.arange(H)[:, None, None],
        "query": problem.query_start[:, None, None, None] + rows[:, None],
        "key": np.asarray(keys),
        "score": problem.scale * (q_BHQD @ k_BHKD.swapaxes(-1, -2)),
    }
    s_BHQK = values["score"]
    if problem.score is not None:
        s_BHQK = np.broadcast_to(evaluate(problem.score, values, problem.real).astype(np.float64), shape)
    if problem.mask is not None:
        s_BHQK = np.where(evaluate(problem.mask, values), s_BHQK, -np.inf)
    return s_BHQK, values


def picked(x_BHND: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Some rows; a view where they are consecutive, because NumPy would copy them with Python's lock."""
    first, last = (places[0], places[-1] + 1) if len(places) else (0, 0)
    if np.array_equal(places, np.arange(first, last)):
        return x_BHND[:, :, first:last]
    return x_BHND[:, :, places]


def denominator(s: np.ndarray) -> Denominator:
    """Σ exp(s) over the last axis; 0 if it is empty, NaN if it contains NaN or +inf."""
    top = s.max(-1, initial=-np.inf)
    return Denominator(top, np.exp(s - some_number(top)[..., None]).sum(-1))


def with_sinks(problem: Problem, below_BHQ: Denominator) -> Denominator:
    """The denominator including the sinks."""
    if problem.sinks is None:
        return below_BHQ
    top_H, total_H = denominator(problem.sinks.astype(np.float64))
    return below_BHQ.joined(Denominator(top_H[:, None], total_H[:, None]))


def shares(s: np.ndarray, below: Denominator) -> np.ndarray:
    """exp(s) / Σ exp(s), and 0 for a masked key, whatever the denominator is."""
    return np.where(s == -np.inf, 0, np.exp(s - some_number(below.top)[..., None]) / below.total[..., None])


def left_over(problem: Problem, values: dict[str, np.ndarray]) -> np.ndarray | float:
    """The dropout factors of the weights, 0 or 1 / (1 − rate); dropout does not change the denominator."""
    if problem.dropout is None:
        return 1.0
    return problem.dropout.factors(*(values[name] for name in ("batch", "head", "query", "key")))


def some_number(top: np.ndarray) -> np.ndarray:
    """A maximum that can be subtracted: −inf, the maximum of an empty set, becomes 0."""
    return np.where(top == -np.inf, 0, top)


def weighted_sum(p: np.ndarray, allowed: np.ndarray, values: np.ndarray) -> np.ndarray:
    """p @ values; infinities and NaN among the values reach only the rows that attend to them."""
    out = p @ np.where(np.isfinite(values), values, 0)
    for bad, here in ((np.inf, values == np.inf), (-np.inf, values == -np.inf), (np.nan, np.isnan(values))):
        if here.any():
            out = out + np.where(allowed.astype(np.float64) @ here > 0, bad, 0)
    return out


def score_rule(problem: Problem) -> Expr:
    return the_score if problem.score is None else problem.score


def everywhere(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(problem.dims["Q"]), np.arange(problem.dims["K"])


def per_query_head(problem: Problem, x_BGKD: np.ndarray) -> np.ndarray:
    """Keys or values in float64, each head repeated for the query heads that share it."""
    H, G = problem.dims["H"], problem.dims["G"]
    return np.repeat(x_BGKD.astype(np.float64), H // max(G, 1), axis=1)


def per_group(problem: Problem, dx_BHKD: np.ndarray) -> np.ndarray:
    """The gradient of a shared head: the sum over the query heads that share it."""
    H, G = problem.dims["H"], problem.dims["G"]
    B, _, K, depth = dx_BHKD.shape
    return dx_BHKD.reshape(B, G, H // max(G, 1), K, depth).sum(2)


def rows_at_a_time(problem: Problem) -> int:
    """Rows whose matrix of all heads stays in a cache; at least 4."""
    B, H, K = (problem.dims[name] for name in "BHK")
    return min(ROWS, max(4, ROOM // max(1, B * H * K)))


def blocks(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))
