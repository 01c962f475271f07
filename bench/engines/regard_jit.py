"""regard, called by its public functions: NumPy arrays, a mask and a score."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.api.attention import attention, attention_with_lse
from regard.api.backward import attention_backward
from regard.api.statistics import attention_stats
from regard.language.measures import edges, pooled

from ..cases import CELLS, Inputs
from . import Form


def forms(inputs: Inputs) -> list[Form]:
    return [{"gradients": gradients, "statistics": statistics}.get(inputs.case.task, forward)(inputs)]


def forward(inputs: Inputs) -> Form:
    def run():
        return attention(inputs.q, inputs.k, inputs.v, mask=inputs.mask, score=inputs.score, engine="jit")

    return Form("", run, lambda out: (out.astype(np.float32),))


def gradients(inputs: Inputs) -> Form:
    q, k, v, dout = inputs.q, inputs.k, inputs.v, inputs.dout
    rules: dict[str, Any] = {"mask": inputs.mask, "score": inputs.score, "engine": "jit"}

    def run():
        out, lse = attention_with_lse(q, k, v, **rules)
        return attention_backward(dout, q, k, v, out=out, lse=lse, **rules)[:3]

    return Form("", run, lambda found: tuple(array.astype(np.float32) for array in found))


def statistics(inputs: Inputs) -> Form:
    """Entropy, distance, the weight that each key receives, and a map."""
    case = inputs.case
    rows, columns = min(CELLS, case.Q), min(CELLS, case.K)
    of: list[Any] = ["entropy", "distance", "received", pooled(rows, columns)]

    def run():
        return attention_stats(inputs.q, inputs.k, of=of, mask=inputs.mask, score=inputs.score, engine="jit")

    def read(found) -> tuple[np.ndarray, ...]:
        """Entropy per row, distance per row divided by the number of keys, and the sums of the rows of the map and of
        the received weights.
        """
        bands = (found.pooled.mean * np.diff(edges(case.K, columns))).sum(-1)
        return found.entropy, found.distance.mean / case.K, bands, found.received.sum(-1, dtype=np.float64) / case.Q

    return Form("", run, read)
