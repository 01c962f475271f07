"""The forward-mode derivative of attention, by definition: how out and lse change with q, k, v, sinks and tables.

Names end in the axes of the array, as in `attention`. Rows are computed in blocks, so memory grows with K and not with
Q · K.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ...language.analysis import adjoints, clamped, evaluate
from ...language.expr import Read
from ...language.expr import score as the_score
from ...language.problem import Problem, Tangents
from .attention import (
    ROWS,
    blocks,
    denominator,
    left_over,
    logits,
    per_query_head,
    score_rule,
    shares,
    weighted_sum,
    with_sinks,
)


def push_forward(problem: Problem, tangents: Tangents) -> tuple[np.ndarray, np.ndarray]:
    """dlse = Σ P ∘ dS,  dout = (P ∘ (dS − dlse)) v + P dv,  where dS is the change of the scores.

    -> dout (B, H, Q, E), dlse (B, H, Q), float64. A masked pair contributes nothing, and a fully masked row gives 0.
    """
    B, H, Q, E = (problem.dims[name] for name in "BHQE")
    dout_BHQE, dlse_BHQ = np.zeros((B, H, Q, E)), np.zeros((B, H, Q))
    v_BHKE = per_query_head(problem, problem.v)
    dv_BHKE = None if tangents.v is None else per_query_head(problem, tangents.v)
    with np.errstate(all="ignore"):
        for some in blocks(Q, ROWS):
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
        found = found + evaluate(partials[the_score], values) * _logit_change(problem, tangents, rows)
    for leaf, partial in partials.items():
        if isinstance(leaf, Read) and leaf.table in tangents.tables:
            place = clamped(leaf.table, [evaluate(part, values) for part in leaf.index])
            moved = tangents.tables[leaf.table].astype(np.float64)[place]
            found = found + np.where(moved == 0, 0, evaluate(partial, values) * moved)
    return found


def _logit_change(problem: Problem, tangents: Tangents, rows: np.ndarray) -> np.ndarray:
    """scale · (dq kᵀ + q dkᵀ)."""
    found = np.zeros((1, 1, len(rows), problem.dims["K"]))
    for q, k in ((tangents.q, problem.k), (problem.q, tangents.k)):
        if q is not None and k is not None:
            part = dataclasses.replace(problem, q=q, k=k, score=None, mask=None)
            found = found + logits(part, rows, np.arange(problem.dims["K"]))[0]
    return found
