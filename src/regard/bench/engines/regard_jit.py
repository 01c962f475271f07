"""regard, called as its users call it: NumPy arrays, a mask and a score."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...api.attention import attention, attention_with_lse
from ...api.backward import attention_backward
from ...api.statistics import attention_stats
from ...language.measures import edges, pooled
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
    """Entropy, distance, what each key receives, and a map."""
    case = inputs.case
    rows, columns = min(CELLS, case.Q), min(CELLS, case.K)
    of: list[Any] = ["entropy", "distance", "received", pooled(rows, columns)]

    def run():
        return attention_stats(inputs.q, inputs.k, of=of, mask=inputs.mask, score=inputs.score, engine="jit")

    def read(found) -> tuple[np.ndarray, ...]:
        """Per row the entropy and the distance as a share of the keys; per row of the map and per row of the matrix its
        total.
        """
        bands = (found.pooled.mean * np.diff(edges(case.K, columns))).sum(-1)
        return found.entropy, found.distance.mean / case.K, bands, found.received.sum(-1, dtype=np.float64) / case.Q

    return Form("", run, read)
