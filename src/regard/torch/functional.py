"""Attention of tensors as a torch operator, with support for torch.compile, torch.func and autocast."""

from __future__ import annotations

from typing import Never, SupportsFloat, SupportsIndex

import torch

from ..api import torch_operator  # noqa: F401 - registers the operators, which saved programs need
from ..api.attention import AUTOGRAD
from ..api.attention import attention as regard_attention
from ..api.attention import attention_with_lse as regard_with_lse
from ..common.call_hooks import intercepted, watchers
from ..common.public import ArrayLike, Engine
from ..common.text.keywords import reject_unknown, without_unknown
from ..engines import dispatch
from ..language.callables import Mask, Score
from ..language.checks.arguments import Arguments


@without_unknown
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    query_start: SupportsIndex | ArrayLike | None = None,
    batch_start: SupportsIndex | None = None,
    head_start: SupportsIndex | None = None,
    sinks: ArrayLike | None = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | torch.Tensor | None = None,
    engine: Engine = "auto",
    **unknown: Never,
) -> torch.Tensor:
    """Computes exact attention of tensors, with support for torch.compile, torch.func and autocast.

    out = softmax(score(scale · q kᵀ) where mask) v

    The operator is `torch.ops.regard.attention`; `rg.attention` becomes it as well where torch compiles, transforms,
    traces or exports a call. Masks and scores may be built outside the compiled function or inside it, from numbers,
    arrays and tensors, or be callables that capture them. torch.vmap calls the operator once for each entry. Under
    autocast, `q`, `k` and `v` are cast as torch casts the inputs of its own attention; `rg.attention` does not cast.

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
        batch_start: the number of the first batch entry, if the call computes some entries of a larger one: rules,
            tables and dropout count from it. An integer, or a tensor with one. None is 0, and the call is the whole.
        head_start: the same for the query heads.
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
    reject_unknown(attention, unknown)
    q, k, v = in_autocast(q, k, v)
    arguments = Arguments(mask, score, scale, query_start, sinks, dropout, seed, batch_start, head_start)
    return regard_attention(q, k, v, **arguments._asdict(), engine=engine)


@without_unknown
def attention_with_lse(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    query_start: SupportsIndex | ArrayLike | None = None,
    batch_start: SupportsIndex | None = None,
    head_start: SupportsIndex | None = None,
    sinks: ArrayLike | None = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | torch.Tensor | None = None,
    engine: Engine = "auto",
    **unknown: Never,
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
        batch_start: the number of the first batch entry in a larger call, as for `attention`.
        head_start: the number of the first query head in a larger call, as for `attention`.
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
    reject_unknown(attention_with_lse, unknown)
    q, k, v = in_autocast(q, k, v)
    arguments = Arguments(mask, score, scale, query_start, sinks, dropout, seed, batch_start, head_start)
    return regard_with_lse(q, k, v, **arguments._asdict(), engine=engine)


def attention_rows_first(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, arguments: Arguments, engine: Engine = "auto", where="attention"
) -> torch.Tensor:
    """(B, Q, H, E), contiguous, as models read it, of q (B, H, Q, D), k (B, G, K, D) and v (B, G, K, E)."""
    q, k, v = in_autocast(q, k, v)
    if intercepted(q) or watchers:
        return regard_attention(q, k, v, **arguments._asdict(), engine=engine).transpose(1, 2).contiguous()
    return dispatch.attend(q, k, v, arguments, engine, rows_first=True, where=where, autograd=AUTOGRAD)[0]


def in_autocast(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
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
