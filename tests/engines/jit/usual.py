"""The usual computation of attention: NumPy with the whole matrix, every step in the dtype of sums. Error budgets of
the compiled engine are measured by it.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from regard.engines.reference import attention as reference
from regard.language.analysis import evaluate
from regard.language.problem import Problem

__all__ = ["Softmax", "shaken", "softmax"]


class Softmax(NamedTuple):
    """q; keys and values of each query head; scores (B, H, Q, K), what is subtracted from them and the sums of their
    powers (B, H, Q, 1); the weights of keys and of sinks; the variables of the rules.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    s: np.ndarray
    top: np.ndarray
    total: np.ndarray
    p: np.ndarray
    sinks: np.ndarray
    values: dict[str, np.ndarray]


def softmax(problem: Problem, exact: bool = False) -> Softmax:
    """The weights of a problem in the dtype of sums; exact: in float64, of the scores of the law."""
    real = np.float64 if exact else problem.real.type
    k, v = (reference.per_query_head(problem, part).astype(real) for part in (problem.k, problem.v))
    q = problem.q.astype(real)
    with np.errstate(all="ignore"):
        s, values = reference.logits(problem, *reference.everywhere(problem))
        if not exact:
            values["score"] = real(problem.scale) * (q @ k.swapaxes(-1, -2))
            rule = np.broadcast_to(evaluate(reference.score_rule(problem), values), s.shape)
            s = np.where(s == -np.inf, -np.inf, rule).astype(real)
        sinks = np.zeros((1, 0)) if problem.sinks is None else problem.sinks
        sinks = np.broadcast_to(sinks[:, None].astype(real), (*s.shape[:3], sinks.shape[1]))
        columns = np.concatenate([s, sinks], -1)
        top = reference.some_number(columns.max(-1, keepdims=True, initial=-np.inf))
        powers = np.exp(columns - top)
        total = powers.sum(-1, keepdims=True)
        shares = np.divide(powers, total, out=np.zeros_like(powers), where=total > 0).astype(real)
    K = s.shape[-1]
    return Softmax(q, k, v, s, top, total, shares[..., :K], shares[..., K:], values)


def shaken(problem: Problem, seed: int) -> Problem:
    """The problem in float64, with queries whose last bits are rounded differently."""
    eps = 8 * np.finfo(problem.real).eps
    noise = np.random.default_rng(seed).uniform(-eps, eps, problem.q.shape)
    q, k, v = (part.astype(np.float64) for part in (problem.q, problem.k, problem.v))
    return replace(problem, q=q * (1 + noise), k=k, v=v)
