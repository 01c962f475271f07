"""What tests of the compiled engine share: gradients of a call, equal bits, and the usual computation of attention
(NumPy with the whole matrix, every step in the dtype of sums), by which error budgets are measured.
"""

import functools
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import regard as rg
from regard.api.backward import learned
from regard.engines import dispatch as engines
from regard.engines.jit.kernels.forward import PIECE
from regard.engines.reference import attention as reference
from regard.language.analysis import evaluate
from regard.language.expr import Expr
from regard.language.problem import Gradients, Problem
from tests.support.engines import normal, same_bits
from tests.support.lanes import SWEEP
from tests.support.strategies import Dims, masks

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]  # what hypothesis says of large random problems


def large_examples(count: int, few: int) -> settings:
    """So many large random problems in `make sweep`, and few in `make test`: many compile kernels of their own."""
    return settings(max_examples=count if SWEEP else few, suppress_health_check=SLOW)


@st.composite
def rules_with_gaps(draw, dims: Dims) -> Expr:
    """A random mask; on top of it often whole pieces, parts of pieces and rows without keys."""
    mask = draw(masks(dims))
    if draw(st.booleans()):
        size = draw(st.sampled_from((PIECE, 2 * PIECE, 128, 300, 17)))
        rng = np.random.default_rng(draw(st.integers(0, 999)))
        share = draw(st.sampled_from((0.1, 0.5, 0.9)))
        kept = rg.table(rng.random((dims.Q, -(-dims.K // size))) < share, "kept")
        mask = mask & kept[(rg.query - (dims.K - dims.Q)) % dims.Q, rg.key // size]
    return mask


def tables_of(problem: Problem) -> list:
    """The tables that get gradients."""
    return [table for table in learned(problem) if not table.frozen]


def gradients_of(problem: Problem, dout, dlse=None) -> Gradients:
    """The gradients of the compiled engine."""
    return engines.pull_back(problem, engines.keep(problem, "jit"), dout, dlse, tables_of(problem))


def incoming(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """dout and dlse of a problem."""
    rows = problem.q.shape[:3]
    return normal(*rows, problem.v.shape[3], seed=8, dtype=problem.dtype), normal(*rows, seed=9, dtype=problem.real)


def slopes(found: Gradients) -> list[np.ndarray]:
    """The gradients of q, k, v, tables and sinks."""
    return [*found[:3], *found.tables.values(), *([] if found.sinks is None else [found.sinks])]


def parts(found) -> list[np.ndarray]:
    """The arrays of statistics."""
    return [part for name in found for part in (found[name] if isinstance(found[name], tuple) else [found[name]])]


def same_results(found, wanted) -> None:
    """All arrays have the same bits; NaN is equal to NaN."""
    for two in zip(found, wanted, strict=True):
        same_bits(*(np.where(np.isnan(each), each.dtype.type(9), each) for each in two))


def tree(parts: dict, merge=np.add):
    """The law of sums, written out: level by level neighbours are merged, blocks by their number; what is before
    position 0 meets the rest last.
    """
    while len(parts) > 1 and set(parts) != {-1, 0}:
        above: dict = {}
        for number in sorted(parts):
            above[number // 2] = merge(above[number // 2], parts[number]) if number // 2 in above else parts[number]
        parts = above
    return functools.reduce(merge, (parts[number] for number in sorted(parts)))


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
