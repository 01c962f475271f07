"""Described: what an observed call asks, in regard's own words, so that one plan and one count of operations serve all
of them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...api.explain import TILE
from ...common.arrays import is_tensor, read_array
from ...common.errors import Refused
from ...engines.cost import Cost, cost
from ...engines.dispatch import choose
from ...engines.plan import plan
from ...language.added_masks import hides, range_of
from ...language.expr import Expr
from ...language.masks import causal, lengths, window
from ...language.problem import Problem
from .observer import CACHE, FLEX, HF, REGARD, SDPA, Seen

__all__ = ["Described", "describe", "engine_of", "problem_of"]

RULES = ("mask", "score", "scale", "query_start", "sinks", "dropout", "seed")


@dataclass(frozen=True, eq=False)
class Described:
    """One call: the problem, who computes it and why, its cost; without a problem, why says what could not be read.

    matrix: whether this engine builds the whole matrix of weights.
    """

    problem: Problem | None
    engine: str
    why: str
    matrix: bool
    cost: Cost | None


def describe(seen: Seen) -> Described:
    """What the call asks and who carries it out; nothing is computed."""
    try:
        problem = problem_of(seen)
    except Refused as refused:
        return Described(None, seen.kind, str(refused).replace("\n", " "), False, None)
    engine, why, matrix = engine_of(seen, problem)
    rows, keys = TILE
    if engine == "jit":
        from ...engines import jit

        rows, keys = jit.tile_shape(problem)
    return Described(problem, engine, why, matrix, cost(problem, plan(problem, rows, keys)))


def problem_of(seen: Seen, numbers: bool = False) -> Problem:
    """The call as a Problem; `Refused` where it is none that regard could carry out.

    numbers: whether q, k and v are those of the call, copied to the CPU; otherwise only their sizes and dtypes are
    true.
    """
    read = _copied if numbers else _stand_in
    if seen.kind == CACHE:
        return _of_cache(seen, read)
    if seen.asked is not None:
        v = np.broadcast_to(np.zeros((), seen.asked.dtype), (*seen.asked.k.shape[:3], seen.v.shape[-1]))
        return dataclasses.replace(seen.asked, v=v)
    rules = {REGARD: _of_regard, SDPA: _of_sdpa, FLEX: _of_flex}.get(seen.kind, _of_scores)(seen)
    return Problem.of(read(seen.q), read(seen.k), read(seen.v), **rules, where=seen.kind, gradients=True)


def _of_regard(seen: Seen) -> dict[str, Any]:
    return {name: _on_cpu(value) for name, value in seen.given.items() if name in RULES}


def _of_sdpa(seen: Seen) -> dict[str, Any]:
    mask, causes = seen.given.get("attn_mask"), seen.given.get("is_causal", False)
    rules = _of_tensor(mask) if mask is not None else {"mask": causal(), "query_start": 0} if causes else {}
    return rules | {"scale": seen.given.get("scale")}


def _of_flex(seen: Seen) -> dict[str, Any]:
    """FlexAttention counts queries from 0. A mask that it made itself, one block without an end, allows everything."""
    block, buffers = seen.given["block_mask"], seen.given.get("mask_buffers") or ()
    whole = next((size for size in block[-3:-1]), 0) >= 1 << 30
    rules: dict[str, Any] = {"query_start": 0, "scale": seen.given.get("scale")}
    if not whole:
        rules["mask"] = _with(block[-1], buffers)
    score = seen.given["score_mod"]
    if getattr(score, "__name__", "") != "_identity":
        rules["score"] = _with(score, seen.given.get("score_buffers") or ())
    return rules


def _with(rule, buffers):
    """A rule of FlexAttention, with the arrays that it was compiled to take besides."""
    held = tuple(map(_on_cpu, buffers))
    return (lambda *at: rule(*at, *held)) if held else rule


def _of_scores(seen: Seen) -> dict[str, Any]:
    """What was written out: the scores that the softmax was given tell which keys were allowed."""
    assert seen.trail is not None and seen.trail.scores is not None
    scores = seen.trail.scores[..., : seen.k.shape[-2]]
    allowed = ~hides(scores, range_of(scores.dtype))
    sizes = (
        *seen.q.shape[:-1],
        seen.k.shape[-2],
    )  # batch and heads may have been one axis in the products and two in the softmax
    return {} if bool(allowed.all()) else {"mask": _on_cpu(allowed.reshape(sizes))}


def _of_tensor(mask: torch.Tensor) -> dict[str, Any]:
    """Booleans, or floats that are added, of which the lowest mean "may not attend"."""
    if mask.dtype is torch.bool:
        return {"mask": _on_cpu(mask)}
    numbers = _on_cpu(mask.detach()).float()
    allowed = ~hides(numbers, range_of(mask.dtype))
    added = numbers.masked_fill(~allowed, 0)
    return ({} if bool(allowed.all()) else {"mask": allowed}) | ({"score": added} if bool((added != 0).any()) else {})


def _of_cache(seen: Seen, read) -> Problem:
    """The newest rows over the keys of their own sequences; what the cache keeps is never copied."""
    given, cache = seen.given, seen.given["cache"]
    q, dtype = read(seen.q), _stand_in(seen.q).dtype
    K = int(cache.lengths.max(initial=0))
    lead = (*q.shape[:-3], cache.heads, K)
    k, v = (np.broadcast_to(np.zeros((), dtype), (*lead, depth)) for depth in (cache.depth, cache.value_depth))
    start = given.get("query_start")
    rules = {name: _on_cpu(given.get(name)) for name in ("mask", "score", "scale", "sinks")}
    problem = Problem.of(
        q, k, v, **rules, query_start=cache._start if start is None else start, where=CACHE, gradients=True
    )
    own: list[Expr] = [problem.mask] if problem.mask is not None else []
    own += [window(cache.window)] if cache.window else []
    own += [lengths(cache.lengths)] if (cache.lengths != K).any() else []
    mask = None
    for rule in own:
        mask = rule if mask is None else mask & rule
    return dataclasses.replace(problem, mask=mask)


def engine_of(seen: Seen, problem: Problem) -> tuple[str, str, bool]:
    """Who computes the call, why, and whether the whole matrix is built."""
    if seen.kind in (REGARD, CACHE, HF):
        name, why = choose(problem, seen.given.get("engine", "auto"))
        return name, "; ".join(why), name in ("reference", "sdpa")
    if seen.kind == SDPA:
        rest = {name: value for name, value in seen.given.items() if name not in ("q", "k", "v")}
        kernel = torch.nn.attention.SDPBackend(torch._fused_sdp_choice(seen.q, seen.k, seen.v, **rest)).name
        return f"SDPA {kernel.lower().removesuffix('_attention')}", "the kernel that torch chose", kernel == "MATH"
    if seen.kind == FLEX:
        return "flex, not compiled", "called without torch.compile, it builds the matrix", True
    return "written out", "the model writes its attention out, which builds the matrix", True


def _stand_in(value) -> np.ndarray:
    """Zeros of the same sizes and dtype that take no memory."""
    dtype = (
        read_array(torch.empty(0, dtype=value.dtype), "dtype").dtype if is_tensor(value) else np.asarray(value).dtype
    )
    return np.broadcast_to(np.zeros((), dtype), tuple(np.shape(value)))


def _copied(value):
    return value.detach().cpu() if is_tensor(value) else value


def _on_cpu(value):
    return value.cpu() if is_tensor(value) else value
