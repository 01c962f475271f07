"""Attention, attention with lse, and selected weights."""

from __future__ import annotations

from typing import Any, Never, SupportsFloat, SupportsIndex

import numpy as np

from ..common.arrays import traced_by_jax
from ..common.call_hooks import compiling, exporting_to_onnx, intercepted, torch_if_imported, watched
from ..common.compiled import outside_programs
from ..common.public import ArrayLike, ArrayT, Engine, Index
from ..common.text.keywords import reject_unknown, without_unknown
from ..engines import direct, dispatch
from ..language.callables import Mask, Score
from ..language.checks.arguments import Arguments


@without_unknown
def attention(
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    *,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    query_start: SupportsIndex | ArrayLike | None = None,
    batch_start: SupportsIndex | None = None,
    head_start: SupportsIndex | None = None,
    sinks: ArrayLike | None = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
    engine: Engine = "auto",
    **unknown: Never,
) -> ArrayT:
    """Exact attention: for each query row, the weighted mean of the values that it may attend to.

    out = softmax(score(scale · q kᵀ) where mask) v, over the keys of each row.

    Memory grows with Q, not with Q·K. A fully masked row gives 0. Tensors that require gradients get them: q, k, v,
    sinks, and the arrays that the score reads; q, k and v on the CPU also have second derivatives.

    Args:
        q: (…, H, Q, D) queries, a NumPy array or a torch tensor: float32, float64, float16 or bfloat16 (of torch or
            ml_dtypes).
        k: (…, G, K, D) keys in the dtype of `q`; H is a multiple of G (grouped-query attention).
        v: (…, G, K, E) values in the dtype of `q`.
        mask: which keys a row may attend to: an expression, a callable mask(b, h, q, kv), or booleans that broadcast to
            (B, H, Q, K), where true means "may attend". None allows every key.
        score: changes the logits: an expression, a callable score(s, b, h, q, kv), or floats that broadcast to
            (B, H, Q, K) and are added. None leaves them unchanged.
        scale: the factor of q·k, by default 1/√D.
        query_start: the position of the first row on the key axis, one integer or (B,); by default K - Q, which aligns
            the last row with the last key.
        batch_start: the number of the first batch entry, if the call computes some entries of a larger one: rules,
            tables and dropout count from it. None is 0, and the call is then the whole.
        head_start: the same for the query heads. None is 0.
        sinks: extra logits in the denominator, (H,) or (H, n). None adds nothing.
        dropout: the rate in [0, 1) at which weights are dropped; the others are multiplied by 1 / (1 - dropout).
        seed: an integer in [0, 2**64), required with dropout. The dropout mask is a deterministic function of the seed
            and the positions.
        engine: "auto", "jit", "reference" or "sdpa"; for tensors on a GPU "auto", "sdpa", "flex" or "tiles".

    Returns:
        (…, H, Q, E) in the type and dtype of `q`. Sums are float32, for float64 inputs float64.

    Raises:
        Refused: shapes do not fit, a dtype is not supported, a mask or score is not a rule of the right kind, or the
            engine does not support the call. Every problem is listed.

    Source:
        Vaswani et al. 2017 (the equation); Dao et al. 2022 (computation in tiles).

    Examples:
        >>> import numpy as np, regard as rg
        >>> q = k = v = np.eye(3, dtype=np.float32)
        >>> rg.attention(q, k, v, mask=rg.causal()).round(2).tolist()[0]
        [1.0, 0.0, 0.0]
    """
    if unknown:
        reject_unknown(attention, unknown)
    given = mask, score, scale, query_start, sinks, dropout, seed, batch_start, head_start
    attend = direct.attend_arrays if type(q) is np.ndarray else direct.attend
    found = None if compiling() else attend(q, k, v, *given, engine)
    if found is not None:
        return found
    return _way(q, k, v, mask, score, sinks, query_start)(q, k, v, Arguments(*given), engine)[0]


@without_unknown
def attention_with_lse(
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    *,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    query_start: SupportsIndex | ArrayLike | None = None,
    batch_start: SupportsIndex | None = None,
    head_start: SupportsIndex | None = None,
    sinks: ArrayLike | None = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
    engine: Engine = "auto",
    **unknown: Never,
) -> tuple[ArrayT, ArrayT]:
    """Attention, and the log-sum-exp of each row.

    lse = ln(Σ exp(score) over the allowed keys + Σ exp(sinks)), and the weights are exp(score - lse).

    Args:
        q: (…, H, Q, D) queries, as for `attention`.
        k: (…, G, K, D) keys.
        v: (…, G, K, E) values.
        mask: which keys a row may attend to, as for `attention`.
        score: changes the logits, as for `attention`.
        scale: the factor of q·k, by default 1/√D.
        query_start: the position of the first row on the key axis, by default K - Q.
        batch_start: the number of the first batch entry in a larger call, as for `attention`.
        head_start: the number of the first query head in a larger call, as for `attention`.
        sinks: extra logits in the denominator, (H,) or (H, n).
        dropout: the rate at which weights are dropped; lse does not depend on it.
        seed: an integer in [0, 2**64), required with dropout.
        engine: as for `attention`.

    Returns:
        out (…, H, Q, E) in the dtype of `q`, and lse (…, H, Q) in nats: float32, for float64 inputs float64. The lse of
        a fully masked row without sinks is −inf.

    Raises:
        Refused: as for `attention`.

    Examples:
        >>> import numpy as np, regard as rg
        >>> out, lse = rg.attention_with_lse(*np.zeros((3, 4, 8), np.float32))
        >>> bool(np.allclose(lse, np.log(4)))
        True
    """
    if unknown:
        reject_unknown(attention_with_lse, unknown)
    arguments = Arguments(mask, score, scale, query_start, sinks, dropout, seed, batch_start, head_start)
    return _way(q, k, v, mask, score, sinks, query_start)(q, k, v, arguments, engine, lse=True)


@outside_programs
def attention_weights(
    q: ArrayT,
    k: ArrayT,
    *,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    query_start: SupportsIndex | ArrayLike | None = None,
    batch_start: SupportsIndex | None = None,
    head_start: SupportsIndex | None = None,
    sinks: ArrayLike | None = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
    rows: Index | None = None,
    keys: Index | None = None,
) -> ArrayT:
    """The exact attention weights of selected rows and keys, without the rest of the matrix.

    weights[i, j] = exp(score(i, j) - lse(i)). A row of the full matrix sums to 1; with sinks to less than 1, with
    dropout to 1 on average, and to 0 if it is fully masked. Memory grows with the selected rows and keys.

    Args:
        q: (…, H, Q, D) queries, as for `attention`.
        k: (…, G, K, D) keys.
        mask: which keys a row may attend to, as for `attention`.
        score: changes the logits, as for `attention`.
        scale: the factor of q·k, by default 1/√D.
        query_start: the position of the first row on the key axis, by default K - Q.
        batch_start: the number of the first batch entry in a larger call, as for `attention`.
        head_start: the number of the first query head in a larger call, as for `attention`.
        sinks: extra logits in the denominator, (H,) or (H, n).
        dropout: the rate at which weights are dropped.
        seed: an integer in [0, 2**64), required with dropout.
        rows: any index of one axis: a slice, a list, booleans, or an integer, which drops the axis. None is all rows.
        keys: the same for the keys.

    Returns:
        (…, H, rows, keys) in the type and dtype of `q`.

    Raises:
        Refused: as for `attention`, or rows or keys outside the matrix.

    Examples:
        >>> import numpy as np, regard as rg
        >>> q = k = np.zeros((100_000, 8), np.float32)
        >>> round(float(rg.attention_weights(q, k, mask=rg.causal(), rows=9, keys=0)), 6)
        0.1
    """
    return dispatch.weights(
        q, k, Arguments(mask, score, scale, query_start, sinks, dropout, seed, batch_start, head_start), rows, keys
    )


@watched("regard.attention")
def _call(q: Any, k: Any, v: Any, arguments: Arguments, engine: str, *, lse: bool = False) -> Any:
    return dispatch.attend(q, k, v, arguments, engine, lse=lse, autograd=AUTOGRAD)


def _way(q: Any, *others: Any) -> Any:
    """How the call is made: now, or recorded by a program of torch or of JAX."""
    if _is_recorded(q):
        return _recorded
    return _called_back if traced_by_jax(q, *others) else _call


def _called_back(*call, lse: bool = False) -> Any:
    """The call as a callback of a program of JAX."""
    from .jax_callback import call_back

    return call_back(*call, lse=lse)


def _is_recorded(q: Any) -> bool:
    """Whether the call has to be one operator of torch; a tensor of the meta device has no numbers to compute with."""
    return (intercepted(q) and not q.is_nested) or getattr(q, "is_meta", False)


def _recorded(q: Any, k: Any, v: Any, arguments: Arguments, engine: str, *, lse: bool = False) -> Any:
    """The call as one operator of torch, for whatever looks at its operators."""
    from .torch_operator import recorded

    if exporting_to_onnx():
        if compiling():  # after the first attempt of the exporter failed; it raises the error of the first one
            torch_if_imported()._dynamo.graph_break(msg="regard: attention is exported without torch.compile")
        from .torch_operator.onnx import export

        return export(q, k, v, arguments, engine, lse), None
    if getattr(q, "is_meta", False) and not compiling():
        recorded = watched("regard.attention")(recorded)
    return recorded(q, k, v, arguments, engine)


def _checked(*call) -> tuple[Any, Any]:
    """The call as an operator of torch, which registers it with autograd."""
    from . import torch_operator

    return torch_operator.attend(*call)


def _again(*call) -> Any:
    """A call of a known kind, registered with autograd."""
    from . import torch_operator

    return torch_operator.again(*call)


AUTOGRAD = dispatch.Autograd(_checked, _again)
