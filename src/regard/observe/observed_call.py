"""`ObservedCall`: one attention call of a running model, also as a problem of regard, with its engine and its cost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch._C import _dispatch_has_kernel_for_dispatch_key

from ..common.arrays import is_tensor, name_of_dtype, stand_in
from ..common.errors import Refused
from ..engines.cost import Cost, cost
from ..engines.cpu import TILE
from ..engines.dispatch import choose
from ..engines.plan import plan
from ..language.added_masks import hides, range_of
from ..language.checks.arguments import Arguments
from ..language.expr import Expr
from ..language.masks import causal, lengths, window
from ..language.problem import Problem
from .handwritten import Trail


@dataclass(frozen=True)
class Layout:
    """The memory layout of a tensor: its shape, dtype, strides in elements, and device."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    device: str

    @classmethod
    def of(cls, value) -> Layout | None:
        """The layout of a tensor or an array; None of anything else."""
        if isinstance(value, cls):
            return value
        if is_tensor(value):
            dtype = name_of_dtype(value)
            return cls(tuple(value.shape), dtype, tuple(value.stride()), str(value.device))
        if not hasattr(value, "strides"):
            return None
        return cls(value.shape, str(value.dtype), tuple(step // value.itemsize for step in value.strides), "cpu")

    def __str__(self) -> str:
        device = "" if self.device == "cpu" else f", {self.device}"
        return f"{self.shape} {self.dtype}, strides {self.strides}{device}"


REGARD, CACHE, HF = "regard.attention", "regard.KVCache.attend", "regard, for transformers"
SDPA, FLEX, WRITTEN_OUT = "torch SDPA", "FlexAttention", "softmax(q kᵀ) v, written out"


@dataclass(eq=False)
class ObservedCall:
    """One attention call of a model.

    Set for every call:
    index: its number among the calls of a run. layer: the path of the module that made it. kind: the function called.
    given: the arguments by name, including q, k and v; out: the output. While the model runs these are tensors or
    arrays; after `let_go` they are layouts. k and v are None for a cache, out for a call that failed. problem: the
    problem of a call from transformers. trail: the operations of handwritten attention. outside: the input tensors.
    seconds: the time of the forward pass, NaN inside compiled code; backward: the time in torch's autograd, None
    unless requested.

    Set by `describe`, for a profile:
    engine, why: the engine and the reason for it. matrix: whether it builds the whole weight matrix. cost: operations
    and bytes, None if the call cannot be described (see `why`). dims: B, H, G, Q, K, D, E. dtype, device: of q. mask,
    score: as text.

    Set by a profile:
    measured: the peak bytes allocated by torch during the call, plus the peak of NumPy; None if the call is not a
    single function. limit: the peak in GFLOP/s that `share` refers to.

    Set by a trace:
    mask, scores: the rules as text, with their sizes.
    """

    index: int
    layer: str
    kind: str
    given: dict[str, Any] = field(default_factory=dict)
    out: Any = None
    seconds: float = 0.0
    backward: float | None = None
    problem: Problem | None = field(default=None, repr=False)
    trail: Trail | None = field(default=None, repr=False)
    outside: list[torch.Tensor] = field(default_factory=list, repr=False)

    engine: str = ""
    why: str = ""
    matrix: bool = False
    cost: Cost | None = None
    dims: dict[str, int] = field(default_factory=dict)
    dtype: str = ""
    device: str = ""
    mask: str = ""
    score: str = ""
    scores: str = ""

    measured: int | None = None
    limit: float = math.nan

    @property
    def q(self):
        return self.given.get("q")

    @property
    def k(self):
        return self.given.get("k")

    @property
    def v(self):
        return self.given.get("v")

    def let_go(self) -> None:
        """Replaces q, k, v and out by their layouts, and removes all other references to tensors of the model."""
        self.given = {name: Layout.of(self.given.get(name)) for name in ("q", "k", "v")}
        self.out = Layout.of(self.out)
        self.problem, self.trail, self.outside = None, None, []

    # Derived from time and cost ---------------------------------------------------------------------------------------

    @property
    def flops(self) -> int:
        """Floating-point operations of the forward pass, for the pairs that the mask allows."""
        return 0 if self.cost is None else self.cost.useful

    @property
    def backward_flops(self) -> int | None:
        """Floating-point operations of the backward pass, for the pairs that the mask allows."""
        if self.cost is None or self.backward is None:
            return None
        return 2 * (3 * self.dims["D"] + 2 * self.dims["E"]) * self.cost.allowed

    @property
    def all_flops(self) -> int:
        """Floating-point operations of the forward and backward pass."""
        return self.flops + (self.backward_flops or 0)

    @property
    def modelled(self) -> int:
        """Bytes by the cost model, without q, k and v: the output and either the weight matrix or plan and lse."""
        if self.cost is None:
            return 0
        return self.cost.written + (self.cost.weights if self.matrix else self.cost.extra)

    @property
    def total(self) -> float:
        """Seconds of the forward and backward pass."""
        return self.seconds + (self.backward or 0.0)

    @property
    def rate(self) -> float:
        """FLOP/s of the forward and backward pass."""
        return self.all_flops / self.total if self.total else math.nan

    @property
    def share(self) -> float:
        """The fraction of the peak that was reached."""
        return self.rate / (1e9 * self.limit)

    # The output of a trace --------------------------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """The lines of a trace for this call, without its index and layer."""
        shown = [
            ("q", self.q),
            ("k", self.k),
            ("v", self.v),
            ("mask", self.mask),
            ("scores", self.scores),
            ("out", self.out),
        ]
        return [self.kind, *[f"{name:<7}{value}" for name, value in shown if value is not None]]


def describe(call: ObservedCall) -> None:
    """Sets the rules, the engine and the cost of a call; no attention is computed."""
    call.dtype = name_of_dtype(call.q)
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
        from ..engines import jit

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
    rules = {name: _copied(value) for name, value in rules_of(call).items()}
    return Problem.of(read(call.q), read(call.k), read(call.v), **rules, where=call.kind, gradients=True)


def rules_of(call: ObservedCall) -> dict[str, Any]:
    """The rules of a call by name, without dropout by torch; tensors are those of the model, with their gradients."""
    return {REGARD: _of_regard, CACHE: _of_regard, SDPA: _of_sdpa, FLEX: _of_flex}.get(call.kind, _of_scores)(call)


def _of_regard(call: ObservedCall) -> dict[str, Any]:
    return {name: value for name, value in call.given.items() if name in Arguments._fields}


def _of_sdpa(call: ObservedCall) -> dict[str, Any]:
    given, mask = call.given, call.given.get("attn_mask")
    causes = {"mask": causal(), "query_start": 0} if given.get("is_causal") else {}
    return {**(causes if mask is None else _of_tensor(mask)), "scale": given.get("scale")}


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
    arrays = tuple(map(_copied, buffers))
    return (lambda *at: rule(*at, *arrays)) if arrays else rule


def _of_scores(call: ObservedCall) -> dict[str, Any]:
    """Handwritten attention: the input of the softmax determines which keys were allowed."""
    trail: Any = call.trail
    scores = trail.scores[..., : call.k.shape[-2]]
    allowed = ~hides(scores, range_of(scores.dtype))
    # Batch and heads may have been one axis in the products and two in the softmax.
    return {} if bool(allowed.all()) else {"mask": allowed.reshape(*call.q.shape[:-1], -1)}


def _of_tensor(mask: torch.Tensor) -> dict[str, Any]:
    """Booleans, or floats that are added, of which values near the minimum mean "may not attend"."""
    if mask.dtype is torch.bool:
        return {"mask": mask}
    numbers = mask.to(torch.promote_types(mask.dtype, torch.float32))
    allowed = ~hides(numbers.detach(), range_of(mask.dtype))
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
        name: _copied(given.get(name)) for name in ("mask", "score", "scale", "sinks", "batch_start", "head_start")
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
    if call.kind == SDPA and _dispatch_has_kernel_for_dispatch_key("aten::scaled_dot_product_attention", "CPU"):
        return (
            choose(problem)[0],
            "replaced by regard (replace_sdpa), which counts the calls that it leaves to torch",
            False,
        )
    if call.kind == SDPA:
        rest = {name: value for name, value in call.given.items() if name not in ("q", "k", "v")}
        kernel = torch.nn.attention.SDPBackend(torch._fused_sdp_choice(call.q, call.k, call.v, **rest)).name
        return f"SDPA {kernel.lower().removesuffix('_attention')}", "the kernel that torch chose", kernel == "MATH"
    if call.kind == FLEX:
        return "flex, not compiled", "without torch.compile it builds the matrix", True
    return "written out", "the model computes its attention by separate operations, which build the matrix", True


def _copied(value):
    return value.detach().cpu() if is_tensor(value) else value
