"""Attention as an operator of torch: the arguments of `regard.attention`, also under torch.compile, torch.func and
autocast.
"""

from __future__ import annotations

from typing import Any, SupportsFloat, SupportsIndex

import torch

from ..api.attention import attention as eager_attention
from ..api.attention import attention_with_lse as eager_with_lse
from ..api.torch_operator import Operands, named, run, seed_tensor
from ..common.types import Engine
from ..language.checks.arguments import Arguments
from ..language.expr import Expr, batch, head, key, lift, query
from ..language.expr import score as the_score

__all__ = ["attention", "attention_with_lse"]


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    score: Any = None,
    scale: SupportsFloat | None = None,
    query_start: Any = None,
    sinks: Any = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
    engine: Engine = "auto",
) -> torch.Tensor:
    """Exact attention of tensors: `regard.attention`, as an operator that torch can compile, transform and cast.

    out = softmax(score(scale · q kᵀ) where mask) v

    q (…, H, Q, D) · k (…, G, K, D) · v (…, G, K, E) -> out (…, H, Q, E); everything else as for `regard.attention`, and
    seed may be a tensor with one whole number. Under autocast q, k and v are cast as torch casts those of its own
    attention.

    Under torch.compile a rule is part of the program: build it beforehand or with rg.causal(), rg.window(n) and
    operators inside, from numbers; arrays that it reads must exist before. A tensor given as mask= or score= is an
    input like any other. torch.vmap calls it for each entry by itself.

    >>> import torch, regard as rg
    >>> q = k = v = torch.eye(3)
    >>> attention(q, k, v, mask=rg.causal()).round(decimals=2)[0]
    tensor([1., 0., 0.])
    """
    q, k, v = _cast(q, k, v)
    asked = Arguments(mask, score, scale, query_start, sinks, dropout, seed)
    if _transformed():
        return _run(q, k, v, asked, engine)[0]
    return eager_attention(q, k, v, **asked._replace(seed=_number(seed))._asdict(), engine=engine)


def attention_with_lse(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    score: Any = None,
    scale: SupportsFloat | None = None,
    query_start: Any = None,
    sinks: Any = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
    engine: Engine = "auto",
) -> tuple[torch.Tensor, torch.Tensor]:
    """`attention`, and the logarithm of each row's denominator: (out (…, H, Q, E), lse (…, H, Q)), both with gradients.

    lse = ln(Σ exp(score) over the allowed keys + Σ exp(sinks)), in nats.

    >>> import torch
    >>> out, lse = attention_with_lse(*torch.zeros(3, 4, 8))
    >>> lse.exp().round()
    tensor([4., 4., 4., 4.])
    """
    q, k, v = _cast(q, k, v)
    asked = Arguments(mask, score, scale, query_start, sinks, dropout, seed)
    if _transformed():
        out, sums = _run(q, k, v, asked, engine)
        return out, sums[0]
    return eager_with_lse(q, k, v, **asked._replace(seed=_number(seed))._asdict(), engine=engine)


def _transformed() -> bool:
    """Whether this call is read, transformed or watched instead of just run, so that it must be one operation of
    torch.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )


def _run(q, k, v, asked: Arguments, engine):
    """(out, sums) of the operator."""
    tables: list[torch.Tensor] = []
    mask = named(_rule(asked.mask, batch, head, query, key), tables)
    score = named(_rule(asked.score, the_score, batch, head, query, key), tables)
    start = None if asked.query_start is None else torch.as_tensor(asked.query_start)
    seed = asked.seed
    if seed is not None and not isinstance(seed, torch.Tensor):
        seed = seed_tensor(seed)
    call = Operands(q, k, v, asked.sinks, tables, start, seed, mask, score, asked.scale, asked.dropout, engine)
    if not torch._C._are_functorch_transforms_active():
        return torch.ops.regard.attention(*call)
    return run(call)


def _rule(rule: Any, *symbols: Expr):
    """A rule as an expression or a tensor."""
    if rule is None or isinstance(rule, Expr | torch.Tensor):
        return rule
    return lift(rule(*symbols)) if callable(rule) else torch.as_tensor(rule)


def _cast(*given):
    """Queries, keys and values in the dtype of autocast."""
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
    """A seed that stands in a tensor."""
    return int(seed) if isinstance(seed, torch.Tensor) else seed
