"""Second derivatives: how the gradients of attention change in a direction, in float64, some rows at a time.

A direction u of q, k and v changes out by t = (P ∘ (T − m)) v + P u_v, with T the change of the scores and m = Σ P ∘ T
(`attention.push_forward`). L = Σ t · dout + Σ m · dlse has the gradients that reverse mode needs after reverse mode (of
Σ u · gradients), reverse mode after forward mode, and forward mode after reverse mode, because they are all
derivatives of L.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...language.analysis import adjoints, evaluate
from ...language.expr import score as the_score
from ...language.problem import Problem, Tangents
from .attention import (
    blocks,
    denominator,
    left_over,
    logit_change,
    logits,
    per_group,
    per_query_head,
    rows_at_a_time,
    score_rule,
    shares,
    weighted_sum,
    with_sinks,
)


class Second(NamedTuple):
    """The gradients of L, in float64 and in the shapes of the arrays: dout (B, H, Q, E), dlse (B, H, Q)."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    dout: np.ndarray
    dlse: np.ndarray


def second(problem: Problem, along: Tangents, dout: np.ndarray, dlse: np.ndarray | None) -> Second:
    """The gradients of L for a direction of q, k and v; each part of it may be None for no change.

        G = T ∘ (dP − δ + dlse) − m dP + W        dP = dout vᵀ,   W = dout u_vᵀ,   δ = Σ P ∘ dP
        Z = P ∘ (G − Σ P ∘ G)                     the gradient of the scores

    With a score s = f(z) of logits z and their change τ: T = f′(z) τ, and Z reaches z as Z f′ + dS f″ τ and τ as dS f′,
    where dS = P ∘ (dP − δ + dlse). Tables and sinks are constants here. Memory grows with the rows and the keys.
    """
    B, H, Q, D, E, K = (problem.dims[name] for name in "BHQDEK")
    dout_BHQE = np.asarray(dout, np.float64)
    dlse_BHQ = np.zeros((B, H, Q)) if dlse is None else np.asarray(dlse, np.float64)
    q_BHQD = problem.q.astype(np.float64)
    k_BHKD, v_BHKE = per_query_head(problem, problem.k), per_query_head(problem, problem.v)
    uq_BHQD = None if along.q is None else along.q.astype(np.float64)
    uk_BHKD, uv_BHKE = (None if each is None else per_query_head(problem, each) for each in (along.k, along.v))
    slope = adjoints(score_rule(problem)).get(the_score)
    curve = None if slope is None else adjoints(slope).get(the_score)
    found = Second(*(np.zeros(shape) for shape in ((B, H, Q, D), (B, H, K, D), (B, H, K, E), (B, H, Q, E), (B, H, Q))))
    with np.errstate(all="ignore"):
        for some in blocks(Q, rows_at_a_time(problem)):
            rows = np.arange(Q)[some]
            s_BHRK, values = logits(problem, rows, np.arange(K))
            allowed_BHRK = s_BHRK != -np.inf
            p_BHRK, left_BHRK = shares(s_BHRK, with_sinks(problem, denominator(s_BHRK))), left_over(problem, values)
            tau_BHRK = logit_change(problem, along, rows)
            first, then = (0.0 if part is None else evaluate(part, values) for part in (slope, curve))

            def where_allowed(array: np.ndarray, allowed=allowed_BHRK) -> np.ndarray:
                return np.where(allowed, array, 0)

            def total(array: np.ndarray) -> np.ndarray:
                return array.sum(-1, keepdims=True)

            t_BHRK, g_BHRE = where_allowed(first * tau_BHRK), dout_BHQE[:, :, some]
            m_BHR1 = total(p_BHRK * t_BHRK)
            dp_BHRK = where_allowed(left_BHRK * (g_BHRE @ v_BHKE.swapaxes(-1, -2)))
            rest_BHRK = dp_BHRK - total(p_BHRK * dp_BHRK) + dlse_BHQ[:, :, some, None]
            ds_BHRK = where_allowed(p_BHRK * rest_BHRK)
            both_BHRK = t_BHRK * rest_BHRK - m_BHR1 * dp_BHRK
            if uv_BHKE is not None:
                both_BHRK = both_BHRK + left_BHRK * (g_BHRE @ uv_BHKE.swapaxes(-1, -2))
            z_BHRK = where_allowed(p_BHRK * (both_BHRK - total(p_BHRK * where_allowed(both_BHRK))))
            to_logit = problem.scale * where_allowed(z_BHRK * first + ds_BHRK * then * tau_BHRK)
            to_change = problem.scale * where_allowed(ds_BHRK * first)
            moved_BHRK = where_allowed(left_BHRK * p_BHRK * (t_BHRK - m_BHR1))
            found.dlse[:, :, some] = m_BHR1[..., 0]
            for place, weights, keys in (
                (found.q, to_logit, k_BHKD),
                (found.q, to_change, uk_BHKD),
                (found.dout, moved_BHRK, v_BHKE),
                (found.dout, left_BHRK * p_BHRK, uv_BHKE),
            ):
                if keys is not None:
                    place[:, :, some] += weighted_sum(weights, allowed_BHRK, keys)
            for sums, weights, queries in (
                (found.k, to_logit, q_BHQD),
                (found.k, to_change, uq_BHQD),
                (found.v, moved_BHRK, dout_BHQE),
            ):
                if queries is not None:
                    turned = weights.swapaxes(-1, -2), allowed_BHRK.swapaxes(-1, -2)
                    sums[...] += weighted_sum(*turned, queries[:, :, some])
    return found._replace(k=per_group(problem, found.k), v=per_group(problem, found.v))
