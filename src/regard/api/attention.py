"""The functions people call: attention, with lse, and chosen weights."""

from __future__ import annotations

from typing import Any, SupportsFloat, SupportsIndex

from ..common.call_hooks import watched
from ..engines import dispatch
from ..language.checks.arguments import Arguments

__all__ = ["attention", "attention_weights", "attention_with_lse"]


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
    engine: str = "auto",
) -> Any:
    """Exact attention: each query row's weighted mean of the values it may see.

    out = softmax(score(scale · q kᵀ) where mask) v, over the keys of each row.

    q (…, H, Q, D) · k (…, G, K, D) · v (…, G, K, E), NumPy arrays or torch tensors, H a multiple of G -> out (…, H, Q,
    E) in their dtype: float32, float64, float16 or bfloat16 (torch's, or ml_dtypes'). Sums and lse are float32, for
    float64 float64.
    mask: an expression, a callable mask(b, h, q, kv), or booleans that broadcast to (B, H, Q, K); true means "may
    attend".
    score: an expression, a callable score(s, b, h, q, kv), or floats that are added to the logits.
    scale: of q·k, by default 1/√D. query_start: the position of the first row on the key axis, by default K - Q.
    sinks: extra logits in the denominator, (H,) or (H, n). engine: "auto", "jit", "reference" or "sdpa"; for tensors
    on a graphics card "auto", "sdpa", "flex" or "tiles".
    dropout: the share of weights that fall out, the others growing by 1 / (1 - dropout); seed alone decides which (0 …
    2**64 - 1).

    Tensors that want gradients get them: q, k, v, sinks, and what the score reads (once: a second derivative is
    refused).

    Refused, with all reasons at once: shapes that do not fit, dtypes that are no floats, rules of the wrong kind. A row
    that may attend nothing gives 0.

    Source: Vaswani et al. 2017 (the formula); Dao et al. 2022 (computed in tiles, so that memory grows with Q, not
    Q·K).

    >>> import numpy as np, regard as rg
    >>> q = k = v = np.eye(3, dtype=np.float32)
    >>> rg.attention(q, k, v, mask=rg.causal()).round(2).tolist()[0]
    [1.0, 0.0, 0.0]
    """
    asked = Arguments(mask, score, scale, query_start, sinks, dropout, seed)
    return _call(q, k, v, asked, engine)[0]


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
    engine: str = "auto",
) -> tuple[Any, Any]:
    """Attention and, per row, the logarithm of its denominator.

    lse = ln(Σ exp(score) over the allowed keys + Σ exp(sinks)); −inf for a row that may attend nothing and has no sink.

    Arguments as for `attention` -> (out (…, H, Q, E), lse (…, H, Q)). lse is in nats; weights are exp(score - lse).

    >>> import numpy as np, regard as rg
    >>> out, lse = rg.attention_with_lse(*np.zeros((3, 4, 8), np.float32))
    >>> bool(np.allclose(lse, np.log(4)))
    True
    """
    asked = Arguments(mask, score, scale, query_start, sinks, dropout, seed)
    return _call(q, k, v, asked, engine, lse=True)


def attention_weights(
    q: Any,
    k: Any,
    *,
    mask: Any = None,
    score: Any = None,
    scale: SupportsFloat | None = None,
    query_start: Any = None,
    sinks: Any = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
    rows: Any = None,
    keys: Any = None,
) -> Any:
    """The exact weights of a chosen rectangle of the attention matrix, without the rest.

    weights[i, j] = exp(score(i, j) - lse(i)); each row of the whole matrix sums to 1 (less with sinks; 0 if it may see
    nothing; on average 1 with dropout).

    q (…, H, Q, D) · k (…, G, K, D) -> (…, H, rows, keys) in q's dtype. rows, keys: anything that indexes an axis
    (slice, list, boolean array; an integer drops its axis); None is all. Memory grows with the chosen rows and keys.

    >>> import numpy as np, regard as rg
    >>> q = k = np.zeros((100_000, 8), np.float32)
    >>> round(float(rg.attention_weights(q, k, mask=rg.causal(), rows=9, keys=0)), 6)
    0.1
    """
    return dispatch.weights(q, k, Arguments(mask, score, scale, query_start, sinks, dropout, seed), rows, keys)


@watched("regard.attention")
def _call(q, k, v, asked: Arguments, engine, *, lse=False) -> tuple[Any, ...]:
    return dispatch.attend(q, k, v, asked, engine, lse=lse, differentiate=_differentiate)


def _differentiate(*call) -> tuple[Any, Any]:
    """The call as an operator of torch, which then knows its gradients."""
    from . import torch_operator

    return torch_operator.attend(*call)
