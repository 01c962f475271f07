"""Statistics of the attention weights, without the matrix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, SupportsFloat, SupportsIndex

from ..common.compiled import outside_programs
from ..common.errors import did_you_mean
from ..common.public import ArrayLike, ArrayT, Engine
from ..engines import dispatch
from ..language.callables import Mask, Score
from ..language.checks.arguments import Arguments
from ..language.measures import Measure


class Statistics:
    """The results of `attention_stats`, by name (`stats.entropy`, `stats["entropy"]`) or by measure (`stats[first]`).

    Args:
        answers: the result of every requested measure, by name: an array, or a named tuple of arrays.

    Examples:
        >>> import numpy as np, regard as rg
        >>> stats = rg.attention_stats(*np.zeros((2, 3, 4), np.float32), of=["lse", rg.mass(rg.key == 0, "first")])
        >>> stats
        Statistics(lse: [3], first: [3])
        >>> list(stats), stats["first"].sum()
        (['lse', 'first'], np.float32(1.0))
    """

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


@outside_programs
def attention_stats(
    q: ArrayT,
    k: ArrayT,
    *,
    of: str | Measure | Iterable[str | Measure] = (),
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    query_start: SupportsIndex | ArrayLike | None = None,
    batch_start: SupportsIndex | None = None,
    head_start: SupportsIndex | None = None,
    sinks: ArrayLike | None = None,
    engine: Engine = "auto",
) -> Statistics:
    """Exact statistics of the attention weights, in memory that grows with the rows and not with the matrix.

    P = softmax(score(scale · q kᵀ) where mask). The measures of P that `of` accepts, and their results:

    ================== ===================================================== ===================================
    "lse"              ln Σ exp(score), as in `attention_with_lse`           (…, H, Q), nats
    "entropy"          −Σ p ln p                                             (…, H, Q), nats
    "maximum"          the largest weight and its key, the first if several  weight, key (…, H, Q)
    "distance"         mean and variance of query − key under the weights    mean, variance (…, H, Q), positions
    "range"            smallest and largest score of the allowed keys        minimum, maximum (…, H, Q)
    "counts"           allowed keys; those with a NaN, with a +inf score     attended, nan, inf (…, H, Q) int64
    "received"         attention that each key receives, Σ p over the rows   (…, H, K)
    mass(keys)         weight on a set of keys, Σ p over it                  (…, H, Q)
    top(n)             the n largest weights and their keys                  weight, key (…, H, Q, n)
    pooled(rows, cols) mean and maximum of P in each cell of a map           mean, maximum (…, H, rows, cols)
    ================== ===================================================== ===================================

    Sinks count in the denominator, so with sinks weights and masses of a row sum to less than 1, and the entropy is
    −Σ p ln p of these weights; the distance does not depend on sinks. A fully masked row has lse −inf, key −1, range
    (inf, −inf) and otherwise 0. A row that attends to a NaN or +inf score is NaN with key −1, except in range and
    counts. `received` and each `pooled` map read q and k a second time; all other measures share one pass.

    Args:
        q: (…, H, Q, D) queries, as for `attention`.
        k: (…, G, K, D) keys.
        of: one or more measures, which have to be named: names, or results of `mass`, `top` and `pooled`.
        mask: which keys a row may attend to, as for `attention`.
        score: changes the logits, as for `attention`.
        scale: the factor of q·k, by default 1/√D.
        query_start: the position of the first row on the key axis, by default K - Q.
        batch_start: the number of the first batch entry in a larger call, as for `attention`.
        head_start: the number of the first query head in a larger call, as for `attention`.
        sinks: extra logits in the denominator, (H,) or (H, n).
        engine: as for `attention`.

    Returns:
        The results by the names of the measures, in the type of `q`. Floats are float32, for float64 inputs float64;
        keys are int64.

    Raises:
        Refused: as for `attention`; also unknown measures, measures of the same name, or a map finer than the matrix.

    Source:
        Clark et al. 2019 (entropy, distance and mass of heads); Dao et al. 2022 (streaming sums).

    Examples:
        >>> import numpy as np, regard as rg
        >>> q = k = np.zeros((2, 100, 8), np.float32)  # equal scores: uniform weights over the allowed keys
        >>> first = rg.mass(rg.key < 4, name="first")
        >>> stats = rg.attention_stats(q, k, of=["entropy", "distance", first], mask=rg.causal())
        >>> stats.entropy[0, 99].round(4), stats.distance.mean[0, 99].round(4), stats[first][0, 99].round(4)
        (np.float32(4.6052), np.float32(49.5), np.float32(0.04))
    """
    arguments = Arguments(mask, score, scale, query_start, sinks, batch_start=batch_start, head_start=head_start)
    return Statistics(dispatch.statistics(q, k, of, arguments, engine))
