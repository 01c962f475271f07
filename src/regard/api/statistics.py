"""Statistics of the weights without the matrix: what is asked, by which engine, and the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsFloat

from ..common.errors import did_you_mean
from ..engines import dispatch
from ..language.checks.arguments import Arguments
from ..language.measures import Measure

__all__ = ["Statistics", "attention_stats"]


class Statistics:
    """The answers by name: `found.entropy`, `found["entropy"]`, or by the measure itself: `found[first]`."""

    def __init__(self, answers: dict[str, Any]):
        self._answers = answers

    def __getitem__(self, measure: str | Measure) -> Any:
        name = measure.name if isinstance(measure, Measure) else measure
        if name not in self._answers:
            raise KeyError(_unknown(str(name), self._answers))
        return self._answers[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._answers:
            raise AttributeError(_unknown(name, {} if name.startswith("_") else self._answers))
        return self._answers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def __dir__(self):
        return [*super().__dir__(), *self._answers]

    def __repr__(self):
        return f"Statistics({', '.join(f'{name}: {_shown(answer)}' for name, answer in self._answers.items())})"


def _unknown(name: str, answers: dict[str, Any]) -> str:
    return f"{name!r} was not requested: {did_you_mean(name, answers)}"


def _shown(answer) -> str:
    if isinstance(answer, tuple):
        parts = zip(type(answer).__annotations__, answer, strict=True)
        return f"{type(answer).__name__}({', '.join(f'{name} {_shown(part)}' for name, part in parts)})"
    return str(list(answer.shape))


def attention_stats(
    q: Any,
    k: Any,
    *,
    of: Any,
    mask: Any = None,
    score: Any = None,
    scale: SupportsFloat | None = None,
    query_start: Any = None,
    sinks: Any = None,
    engine: str = "auto",
) -> Statistics:
    """Exact statistics of the attention weights, in memory that grows with the rows and not with the matrix.

    P = softmax(score(scale · q kᵀ) where mask), and what `of` asks about it.

    q (…, H, Q, D) · k (…, G, K, D), NumPy arrays or torch tensors; mask, score, scale, query_start and sinks as for
    `attention`.
    of: one measure or several:

    ================== ===================================================== ===================================
    "lse"              ln Σ exp(score), as `attention_with_lse` gives it     (…, H, Q), nats
    "entropy"          −Σ p ln p                                             (…, H, Q), nats
    "maximum"          the largest weight and its key, the first if several  weight, key (…, H, Q)
    "distance"         mean and variance of query − key under the weights    mean, variance (…, H, Q), positions
    "range"            smallest and largest score that the row attends       minimum, maximum (…, H, Q)
    "counts"           attended keys; those with a NaN, with a +inf score    attended, nan, inf (…, H, Q) int64
    "received"         attention that each key receives, Σ p over the rows   (…, H, K)
    mass(keys)         weight on a set of keys, Σ p over it                  (…, H, Q)
    top(n)             the n largest weights and their keys                  weight, key (…, H, Q, n)
    pooled(rows, cols) mean and maximum of P in each cell of a map           mean, maximum (…, H, rows, cols)
    ================== ===================================================== ===================================

    Sinks count in the denominator, so the weights of a row sum to less than 1, and so do masses. The entropy is −Σ p ln
    p of these weights, over the keys; distances are what they would be without sinks. A row that attends nothing has
    lse −inf, key −1, range (inf, −inf) and otherwise 0. A row that attends a NaN or +inf is NaN except in range and
    counts, with key −1.

    `received` and `pooled` read q and k a second time; everything else takes one pass together. Several maps take a
    pass each. Refused, with all reasons at once: measures that are not known, maps finer than the matrix, and what
    `attention` refuses.

    Source: Clark et al. 2019 (entropy, distance and mass of heads); the streaming sums are those of Dao et al. 2022
    with more terms.

    >>> import numpy as np, regard as rg
    >>> q = k = np.zeros((2, 100, 8), np.float32)  # equal scores: every row looks at all it may see, evenly
    >>> first = rg.mass(rg.key < 4, name="first")
    >>> found = rg.attention_stats(q, k, of=["entropy", "distance", first], mask=rg.causal())
    >>> found.entropy[0, 99].round(4), found.distance.mean[0, 99].round(4), found[first][0, 99].round(4)
    (np.float32(4.6052), np.float32(49.5), np.float32(0.04))
    """
    asked = Arguments(mask, score, scale, query_start, sinks)
    return Statistics(dispatch.statistics(q, k, of, asked, engine))
