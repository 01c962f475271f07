"""Attention of tensors as a torch operator, with support for torch.compile, torch.func and autocast."""

from __future__ import annotations

from typing import Any, SupportsFloat, SupportsIndex

import torch

from ..api.attention import attention as eager_attention
from ..api.attention import attention_with_lse as eager_with_lse
from ..api.torch_operator import Operands, named, run, seed_tensor
from ..common.types import ArrayLike, Engine
from ..language.callables import Mask, Score
from ..language.checks.arguments import Arguments
from ..language.expr import Expr, batch, head, key, lift, query
from ..language.expr import score as the_score

__all__ = ["attention", "attention_with_lse"]


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    query_start: SupportsIndex | ArrayLike | None = None,
    sinks: ArrayLike | None = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | torch.Tensor | None = None,
    engine: Engine = "auto",
) -> torch.Tensor:
    """Computes exact attention of tensors, with support for torch.compile, torch.func and autocast.

    out = softmax(score(scale · q kᵀ) where mask) v

    Under torch.compile a mask or score expression is part of the program: build it before the compiled function, or
    inside it from numbers with rg.causal(), rg.window(n) and operators; arrays that it reads must exist before. A
    tensor passed as `mask` or `score` is an ordinary input of the program. torch.vmap calls the operator once for each
    entry. Under autocast, `q`, `k` and `v` are cast as torch casts the inputs of its own attention.

    Args:
        q: (…, H, Q, D) queries: float32, float64, float16 or bfloat16.
        k: (…, G, K, D) keys; H is a multiple of G.
        v: (…, G, K, E) values.
        mask: an expression such as rg.causal(), a callable mask(b, h, q, kv), or booleans that broadcast to
            (B, H, Q, K); true means "may attend". None allows every key.
        score: an expression, a callable score(s, b, h, q, kv), or floats that are added to the logits and broadcast
            to (B, H, Q, K). None leaves the logits unchanged.
        scale: the factor of q·k; None means 1/√D.
        query_start: the key position of the first query row, one integer or one per batch entry; None means K − Q.
        sinks: (H,) or (H, n) logits that are added to the denominator only.
        dropout: the probability, from 0 to below 1, that a weight is dropped; the others are scaled by
            1 / (1 − dropout).
        seed: the integer 0 … 2**64 − 1 that determines which weights are dropped, or a tensor with one integer.
            Required when `dropout` is above 0.
        engine: "auto", "jit", "reference" or "sdpa"; on a GPU "auto", "sdpa", "flex" or "tiles".

    Returns:
        (…, H, Q, E) in the dtype of `q`; 0 in fully masked rows. Differentiable in `q`, `k`, `v`, `sinks` and the
        tensors that `score` reads.

    Raises:
        Refused: the shapes do not fit, a dtype is not supported, or an argument is invalid; the error lists every
            problem.

    Source:
        Vaswani et al. 2017 (the formula); Dao et al. 2022 (computation in tiles).

    Examples:
        >>> import torch, regard as rg
        >>> from regard.torch import attention
        >>> q = k = v = torch.eye(3)
        >>> attention(q, k, v, mask=rg.causal()).round(decimals=2)[0]
        tensor([1., 0., 0.])
    """
    q, k, v = _cast(q, k, v)
    arguments = Arguments(mask, score, scale, query_start, sinks, dropout, seed)
    if _transformed():
        return _run(q, k, v, arguments, engine)[0]
    return eager_attention(q, k, v, **arguments._replace(seed=_number(seed))._asdict(), engine=engine)


def attention_with_lse(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    query_start: SupportsIndex | ArrayLike | None = None,
    sinks: ArrayLike | None = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | torch.Tensor | None = None,
    engine: Engine = "auto",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes attention and, for each row, the log-sum-exp of its scores.

    lse = ln(Σ exp(score) over the allowed keys + Σ exp(sinks))

    Args:
        q: (…, H, Q, D) queries: float32, float64, float16 or bfloat16.
        k: (…, G, K, D) keys; H is a multiple of G.
        v: (…, G, K, E) values.
        mask: an expression, a callable or booleans, as for `attention`; None allows every key.
        score: an expression, a callable or floats to add, as for `attention`; None leaves the logits unchanged.
        scale: the factor of q·k; None means 1/√D.
        query_start: the key position of the first query row, one integer or one per batch entry; None means K − Q.
        sinks: (H,) or (H, n) logits that are added to the denominator only.
        dropout: the probability that a weight is dropped.
        seed: the integer that determines which weights are dropped, or a tensor with one integer.
        engine: the engine to use, as for `attention`.

    Returns:
        out (…, H, Q, E) in the dtype of `q`, and lse (…, H, Q) in nats, float32 or, for float64 inputs, float64; lse
        is −inf in fully masked rows without sinks. Both are differentiable.

    Raises:
        Refused: the shapes do not fit, a dtype is not supported, or an argument is invalid; the error lists every
            problem.

    Examples:
        >>> import torch
        >>> from regard.torch import attention_with_lse
        >>> out, lse = attention_with_lse(*torch.zeros(3, 4, 8))
        >>> lse.exp().round()
        tensor([4., 4., 4., 4.])
    """
    q, k, v = _cast(q, k, v)
    arguments = Arguments(mask, score, scale, query_start, sinks, dropout, seed)
    if _transformed():
        out, sums, _ = _run(q, k, v, arguments, engine)
        return out, sums[0]
    return eager_with_lse(q, k, v, **arguments._replace(seed=_number(seed))._asdict(), engine=engine)


def _transformed() -> bool:
    """Whether torch compiles, transforms or intercepts this call, so that it must be a single torch operator."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )


def _run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, arguments: Arguments, engine: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(out, sums, lost) of the operator."""
    tables: list[torch.Tensor] = []
    mask = named(_rule(arguments.mask, batch, head, query, key), tables)
    score = named(_rule(arguments.score, the_score, batch, head, query, key), tables)
    start = None if arguments.query_start is None else torch.as_tensor(arguments.query_start)
    seed = arguments.seed
    if seed is not None and not isinstance(seed, torch.Tensor):
        seed = seed_tensor(seed)
    call = Operands(
        q, k, v, arguments.sinks, tables, start, seed, mask, score, arguments.scale, arguments.dropout, engine
    )
    if not torch._C._are_functorch_transforms_active():
        return torch.ops.regard.attention(*call)
    return run(call)


def _rule(rule: Any, *symbols: Expr):
    """A mask or score as an expression or a tensor."""
    if rule is None or isinstance(rule, Expr | torch.Tensor):
        return rule
    return lift(rule(*symbols)) if callable(rule) else torch.as_tensor(rule)


def _cast(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values in the dtype of autocast, where it is enabled."""
    if not torch._C._is_any_autocast_enabled():
        return given
    kind = given[0].device.type if isinstance(given[0], torch.Tensor) else "cpu"
    if not torch.is_autocast_enabled(kind):
        return given
    dtype = torch.get_autocast_dtype(kind)
    return tuple(
        each.to(dtype) if isinstance(each, torch.Tensor) and each.dtype != torch.float64 else each for each in given
    )


def _number(seed):
    """The seed as an integer, also if it was passed in a tensor."""
    return int(seed) if isinstance(seed, torch.Tensor) else seed
