"""Statistics of every row: entropy, distance, weight on special tokens, …; exact, in memory linear in the rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...api.attention import attention
from ...api.statistics import attention_stats
from ...engines import choice
from ...language.analysis import evaluate
from ...language.expr import Expr, frozen_table, key, query
from ...language.measures import edges, mass, pooled
from .call import Call, Overview, keys_of, rules_of
from .codes import ABOVE, too_large
from .tiles import overview

BLOCK = 1 << 20  # given weights that are processed at a time
CELLS = 128  # along the side of the overview


def with_figures(call: Call, special, sets: Mapping[str, Expr] | None = None, w_o: np.ndarray | None = None) -> Call:
    """The call with the fields that are computed after recording: lse, rows, received, overview, and lengths if it has
    values.

    special (K,) booleans: which keys are special tokens. sets: further sets of keys by name, as rules; the weight on
    them is a figure of each row, NaN in rows that may attend to none of them. w_o (d_model, H · E): the output
    projection.
    """
    sets = dict(sets or {})
    if call.given is not None:
        found = of_weights(call.given, special, mask=call.mask, start=call.start, sets=sets)
    else:
        found = measured(call.q, call.k, special, sets=sets, start=call.start, **rules_of(call))
    if call.v is not None:
        found["lengths"] = lengths(call.v, call.shape[0], w_o)
        found["rows"] |= moved(call, found["lengths"], np.asarray(special, bool))
        found["notes"] = {**call.notes, "lengths": "‖v‖" if w_o is None else "‖v W_o‖"}
    for name, rule in sets.items():
        some = keys_of(rule if call.mask is None else call.mask & rule, call.shape, call.start) > 0
        found["rows"][name] = np.where(some, found["rows"][name], np.float32(np.nan))
    return dataclasses.replace(call, **found)


def lengths(v: np.ndarray, heads: int, w_o: np.ndarray | None) -> np.ndarray:
    """The length of each value, or of its product with the rows of W_o of the head, (H, K) float32.

    v (G, K, E) · w_o (d_model, H · E): ‖W v‖² = vᵀ (Wᵀ W) v, since E is much smaller than d_model.
    """
    v = np.repeat(np.asarray(v, np.float64), heads // len(v), 0)
    with np.errstate(all="ignore"):
        if w_o is None:
            return np.linalg.norm(v, axis=-1).astype(np.float32)
        w = np.asarray(w_o, np.float64).reshape(len(w_o), heads, -1).swapaxes(0, 1)  # (H, d_model, E)
        squares = np.einsum("hke,hef,hkf->hk", v, w.swapaxes(1, 2) @ w, v, optimize=True)
        return np.sqrt(np.maximum(squares, 0)).astype(np.float32)


def moved(call: Call, lengths: np.ndarray, special: np.ndarray) -> dict[str, np.ndarray]:
    """Σ p · length of each row, and the share of special tokens in it, (H, Q) float32."""
    parts = np.stack([lengths, np.where(special, lengths, 0)], -1).astype(np.float32)
    if call.given is not None:
        sums = np.asarray(call.given, np.float64) @ parts
    else:
        assert call.q is not None and call.k is not None
        k = np.repeat(call.k, call.shape[0] // len(call.k), 0)
        engine = choice.of_one_call(math.prod(call.shape))
        wide = np.float64 if too_large(call.q, call.k, call.scale) else np.result_type(call.q, np.float32)
        arrays = (each.astype(wide, copy=False) for each in (call.q, k, parts))
        sums = attention(*arrays, query_start=call.start, engine=engine, **rules_of(call))
    with np.errstate(invalid="ignore"):
        share = np.where(sums[..., 0] > 0, sums[..., 1] / np.where(sums[..., 0] > 0, sums[..., 0], 1), 0)
    return {"moved": compact(sums[..., 0]), "moved_special": compact(share)}


def measured(
    q,
    k,
    special,
    *,
    scale: float = 1.0,
    start: int = 0,
    sets: Mapping[str, Expr] | None = None,
    **rules: Any,
) -> dict[str, Any]:
    """The computed fields of a call with q and k: lse (H, Q), rows {figure: (H, Q)}, received (H, K), overview.

    q (H, Q, D) · k (G, K, D) · special (K,) booleans: which keys are special tokens · sets: further sets of keys by
    name · rules: mask, score and sinks. Everything is exact. The compiled engine reads q and k twice; short
    calls run in NumPy. float64 is used if rounding to float32 would change weights; lse is always float64, since all
    weights follow from it.
    """
    (H, Q), K = q.shape[:2], k.shape[1]
    is_special = frozen_table(np.asarray(special, bool), "special")[key]
    sets = {
        **(sets or {}),
        "special": is_special,
        "itself": key == query,
        "previous": key == query - 1,
        "first": key == 0,
        "distant": ~is_special & ((key < query - 1) | (key > query + 1)),
    }
    columns = min(CELLS, K)
    short = H * Q * K <= choice.ONE_CALL

    def computed(q, k):
        return attention_stats(
            q,
            k,
            of=[
                "lse",
                "entropy",
                "maximum",
                "distance",
                "range",
                "counts",
                "received",
                *(mass(keys, name=name) for name, keys in sets.items()),
                pooled(min(CELLS, Q), columns),
            ],
            scale=scale,
            query_start=start,
            engine=choice.of_one_call(H * Q * K),
            **rules,
        )

    found = None if short or too_large(q, k, scale) else computed(q, k)
    if found is None or too_large(q, k, scale, found.lse):
        found = computed(q.astype(np.float64), k.astype(np.float64))
    rows = {
        "entropy": found.entropy,
        "spread": spread(found.entropy, found.counts.attended),
        "maximum": found.maximum.weight,
        "strongest": found.maximum.key,
        **{name: found[name] for name in sets},
        "distance": np.sqrt(found.distance.mean**2 + found.distance.variance),
        "low": found.range.minimum,
        "high": found.range.maximum,
        "attended": found.counts.attended,
        "wrong": found.counts.nan + found.counts.inf,
    }
    pooled_map = Overview(compact(found.pooled.mean * np.diff(edges(K, columns))), compact(found.pooled.maximum))
    return {
        "lse": found.lse.astype(np.float64),
        "rows": {name: compact(values) for name, values in rows.items()},
        "received": compact(found.received),
        "overview": pooled_map,
    }


def of_weights(
    given: np.ndarray,
    special,
    *,
    mask: Expr | None = None,
    start: int = 0,
    sets: Mapping[str, Expr] | None = None,
) -> dict[str, Any]:
    """The same for given weights (H, Q, K), which may violate the mask and need not sum to 1.

    lse is the logarithm of a row's sum; scores are not known (low and high are NaN); "wrong" counts invalid weights.
    """
    H, Q, K = given.shape
    special, keys = np.asarray(special, bool), np.arange(K)
    nowhere = np.full((H, Q), np.nan)
    rows = {"low": nowhere, "high": nowhere}
    lse, received = np.zeros((H, Q)), np.zeros((H, K))
    with np.errstate(all="ignore"):
        for first in range(0, Q, max(1, BLOCK // K)):
            some = slice(first, first + max(1, BLOCK // K))
            position = start + np.arange(Q)[some, None]
            for h in range(H):
                p = np.asarray(given[h, some], np.float64)
                places = {"batch": 0, "head": h, "query": position, "key": keys}
                free = np.broadcast_to(True if mask is None else evaluate(mask, places), p.shape)
                found = figures_of(p, free, position - keys, special)
                for name, rule in (sets or {}).items():
                    found[name] = np.where(evaluate(rule, places), p, 0).sum(-1)
                for name, values in found.items():
                    rows.setdefault(name, np.zeros((H, Q), values.dtype))[h, some] = values
                lse[h, some] = np.log(p.sum(-1))
                received[h] += p.sum(0)
    return {
        "lse": lse,
        "rows": {name: compact(values) for name, values in rows.items()},
        "received": compact(received),
        "overview": overview(Call("weights", None, "", "", lse, given=given), CELLS),
    }


def figures_of(p: np.ndarray, free: np.ndarray, away: np.ndarray, special: np.ndarray) -> dict[str, np.ndarray]:
    """The figures of rows of weights p (rows, keys); free: where the mask allows weight; away: query − key."""

    def on(keys) -> np.ndarray:
        return np.where(keys, p, 0).sum(-1)

    entropy, attended, sums = -(p * np.log(np.where(p == 0, 1, p))).sum(-1), free.sum(-1), p.sum(-1)
    most = p.max(-1)
    return {
        "entropy": entropy,
        "spread": spread(entropy, attended),
        "maximum": most,
        "strongest": np.where((most == 0) | np.isnan(most), -1, p.argmax(-1)),
        "special": on(special),
        "itself": on(away == 0),
        "previous": on(away == 1),
        "first": p[:, 0],
        "distant": on(~special & (np.abs(away) > 1)),
        "distance": np.sqrt((p * away**2).sum(-1) / np.where(sums == 0, 1, sums)),
        "attended": attended,
        "wrong": (~((p >= 0) & (p <= ABOVE))).sum(-1),
        "forbidden": on(~free),
    }


def spread(entropy: np.ndarray, attended: np.ndarray) -> np.ndarray:
    """The entropy as a share of the entropy of uniform weights."""
    with np.errstate(divide="ignore"):
        most = np.log(attended)
    return np.where(most > 0, entropy / np.where(most > 0, most, 1), 0)


def compact(values: np.ndarray) -> np.ndarray:
    """Figures in their stored dtypes: float32 and int32."""
    return values.astype(np.float32 if values.dtype.kind == "f" else np.int32)
