"""Describes an observed call of any kind as a problem of regard, with its engine, plan and cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...common.arrays import is_tensor, stand_in
from ...common.errors import Refused
from ...engines.cost import cost
from ...engines.cpu import TILE
from ...engines.dispatch import choose
from ...engines.plan import plan
from ...language.added_masks import hides, range_of
from ...language.checks.arguments import Arguments
from ...language.expr import Expr
from ...language.masks import causal, lengths, window
from ...language.problem import Problem
from .observed_call import CACHE, FLEX, HF, REGARD, SDPA, ObservedCall


def describe(call: ObservedCall) -> None:
    """Sets the rules, the engine and the cost of a call; no attention is computed."""
    call.dtype = str(call.q.dtype).removeprefix("torch.")
    call.device = str(getattr(call.q, "device", "cpu"))
    try:
        problem = outline_of(call)
    except Refused as refused:
        call.engine, call.why = call.kind, str(refused).replace("\n", " ")
        call.mask = call.score = "?"
        return
    call.engine, call.why, call.matrix = engine_of(call, problem)
    call.dims = problem.dims
    call.mask = "everything" if problem.mask is None else str(problem.mask)
    call.score = "score" if problem.score is None else str(problem.score)
    rows, keys = TILE
    if call.engine == "jit":
        from ...engines import jit

        rows, keys = jit.tile_shape(problem)
    call.cost = cost(problem, plan(problem, rows, keys))


def problem_of(call: ObservedCall) -> Problem:
    """The call as a Problem over its own numbers, copied to the CPU; raises `Refused` if regard does not support it."""
    return _problem(call, _copied)


def outline_of(call: ObservedCall) -> Problem:
    """`problem_of` without numbers: q, k and v have the right sizes and dtypes only, and nothing is copied."""
    return _problem(call, stand_in)


def _problem(call: ObservedCall, read: Callable) -> Problem:
    """read: how q, k and v become arrays."""
    if call.kind == CACHE:
        return _of_cache(call, read)
    if call.problem is not None:
        v = np.broadcast_to(np.zeros((), call.problem.dtype), (*call.problem.k.shape[:3], call.v.shape[-1]))
        return dataclasses.replace(call.problem, v=v)
    rules = {REGARD: _of_regard, SDPA: _of_sdpa, FLEX: _of_flex}.get(call.kind, _of_scores)(call)
    return Problem.of(read(call.q), read(call.k), read(call.v), **rules, where=call.kind, gradients=True)


def _of_regard(call: ObservedCall) -> dict[str, Any]:
    return {name: _on_cpu(value) for name, value in call.given.items() if name in Arguments._fields}


def _of_sdpa(call: ObservedCall) -> dict[str, Any]:
    mask, causes = call.given.get("attn_mask"), call.given.get("is_causal", False)
    rules = _of_tensor(mask) if mask is not None else {"mask": causal(), "query_start": 0} if causes else {}
    return rules | {"scale": call.given.get("scale")}


def _of_flex(call: ObservedCall) -> dict[str, Any]:
    """FlexAttention counts queries from 0. Its default mask, a single unbounded block, allows everything."""
    block, buffers = call.given["block_mask"], call.given.get("mask_buffers") or ()
    whole = next((size for size in block[-3:-1]), 0) >= 1 << 30
    rules: dict[str, Any] = {"query_start": 0, "scale": call.given.get("scale")}
    if not whole:
        rules["mask"] = _with(block[-1], buffers)
    score = call.given["score_mod"]
    if getattr(score, "__name__", "") != "_identity":
        rules["score"] = _with(score, call.given.get("score_buffers") or ())
    return rules


def _with(rule, buffers):
    """A rule of FlexAttention, with the arrays that it takes as additional arguments."""
    arrays = tuple(map(_on_cpu, buffers))
    return (lambda *at: rule(*at, *arrays)) if arrays else rule


def _of_scores(call: ObservedCall) -> dict[str, Any]:
    """Handwritten attention: the input of the softmax determines which keys were allowed."""
    assert call.trail is not None and call.trail.scores is not None
    scores = call.trail.scores[..., : call.k.shape[-2]]
    allowed = ~hides(scores, range_of(scores.dtype))
    # Batch and heads may have been one axis in the products and two in the softmax.
    sizes = (*call.q.shape[:-1], call.k.shape[-2])
    return {} if bool(allowed.all()) else {"mask": _on_cpu(allowed.reshape(sizes))}


def _of_tensor(mask: torch.Tensor) -> dict[str, Any]:
    """Booleans, or floats that are added, of which values near the minimum mean "may not attend"."""
    if mask.dtype is torch.bool:
        return {"mask": _on_cpu(mask)}
    numbers = _on_cpu(mask.detach()).float()
    allowed = ~hides(numbers, range_of(mask.dtype))
    added = numbers.masked_fill(~allowed, 0)
    return ({} if bool(allowed.all()) else {"mask": allowed}) | ({"score": added} if bool((added != 0).any()) else {})


def _of_cache(call: ObservedCall, read) -> Problem:
    """The newest rows over the keys of their own sequences; the contents of the cache are not copied."""
    given, cache = call.given, call.given["cache"]
    q, dtype = read(call.q), stand_in(call.q).dtype
    chosen = slice(None) if given.get("sequences") is None else np.atleast_1d(given["sequences"])
    ends, newest = cache.lengths[chosen], cache.newest_start[chosen]
    K = int(ends.max(initial=0))
    lead = (*q.shape[:-3], cache.heads, K)
    k, v = (np.broadcast_to(np.zeros((), dtype), (*lead, depth)) for depth in (cache.depth, cache.value_depth))
    start = given.get("query_start")
    rules = {
        name: _on_cpu(given.get(name)) for name in ("mask", "score", "scale", "sinks", "batch_start", "head_start")
    }
    problem = Problem.of(q, k, v, **rules, query_start=newest if start is None else start, where=CACHE, gradients=True)
    own: list[Expr] = [problem.mask] if problem.mask is not None else []
    own += [window(cache.window)] if cache.window else []
    own += [lengths(ends)] if (ends != K).any() else []
    mask = None
    for rule in own:
        mask = rule if mask is None else mask & rule
    return dataclasses.replace(problem, mask=mask)


def engine_of(call: ObservedCall, problem: Problem) -> tuple[str, str, bool]:
    """The engine of a call, the reason for it, and whether it builds the whole matrix."""
    if call.kind in (REGARD, CACHE, HF):
        name, why = choose(problem, call.given.get("engine", "auto"))
        return name, "; ".join(why), name in ("reference", "sdpa")
    if call.kind == SDPA:
        rest = {name: value for name, value in call.given.items() if name not in ("q", "k", "v")}
        kernel = torch.nn.attention.SDPBackend(torch._fused_sdp_choice(call.q, call.k, call.v, **rest)).name
        return f"SDPA {kernel.lower().removesuffix('_attention')}", "the kernel that torch chose", kernel == "MATH"
    if call.kind == FLEX:
        return "flex, not compiled", "without torch.compile it builds the matrix", True
    return "written out", "the model computes its attention by separate operations, which build the matrix", True


def _copied(value):
    return value.detach().cpu() if is_tensor(value) else value


def _on_cpu(value):
    return value.cpu() if is_tensor(value) else value
