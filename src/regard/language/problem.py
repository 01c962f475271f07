"""Problem: what one call of attention asks, checked: its arrays in input_arrays.py, all else in arguments.py.

The dimension key, used in docstrings and as suffixes everywhere:

    B batch · H query heads · G key/value heads (H % G == 0) · Q query rows · K key rows · D score depth · E value depth

Arrays are (…, heads, rows, depth); missing leading axes count as 1. The axes before the heads are the batch: those of k
and v broadcast to those of q, axis by axis, as NumPy's do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..common.arrays import device_of
from ..common.dtypes import real_of
from ..common.errors import Reason, Refused
from .callables import as_mask, as_score
from .checks.arguments import (
    Arguments,
    check_reads,
    checked_dropout,
    checked_rule,
    checked_scale,
    checked_sinks,
    checked_start,
    follow_tensors,
)
from .checks.arrays import checked_array, disagreements, four_axes, refuse_gradients
from .dropout import Dropout
from .expr import Const, Expr, Table, tables_of
from .expr import score as the_score

__all__ = ["Gradients", "Problem"]


class Gradients(NamedTuple):
    """What a backward pass gives: one array per input; `tables` has an entry for every table whose gradient was asked
    for.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    tables: dict[Table, np.ndarray]
    sinks: np.ndarray | None


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """One call, checked: arrays as (B, heads, rows, depth) views, the rules as expressions.

    q (B, H, Q, D) · k (B, G, K, D) · v (B, G, K, E) · query_start (B,) position of row 0 · sinks (H, S) or None ·
    dropout: which weights fall out, or None · lead: the leading axes the caller used, for shaping the result.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: Expr | None
    score: Expr | None
    scale: float
    query_start: np.ndarray
    sinks: np.ndarray | None
    dropout: Dropout | None
    lead: tuple[int, ...]

    @property
    def dims(self) -> dict[str, int]:
        """B, H, G, Q, K, D, E by name."""
        B, H, Q, D = self.q.shape
        return {"B": B, "H": H, "G": self.k.shape[1], "Q": Q, "K": self.k.shape[2], "D": D, "E": self.v.shape[3]}

    @property
    def dtype(self) -> np.dtype:
        return self.q.dtype

    @property
    def real(self) -> np.dtype:
        """What sums are made in, and lse: float32, or float64 for float64 arrays."""
        return real_of(self.dtype)

    def __repr__(self):
        sizes = " ".join(f"{letter}={size}" for letter, size in self.dims.items())
        starts = sorted(set(self.query_start.tolist()))
        shown: dict[str, Any] = {
            "mask": self.mask,
            "score": self.score,
            "scale": round(self.scale, 6),
            "query_start": starts,
        }
        shown |= {} if self.sinks is None else {"sinks": f"{self.sinks.shape[1]} per head"}
        shown |= {} if self.dropout is None else {"dropout": self.dropout.rate, "seed": self.dropout.seed}
        return f"Problem({sizes} {self.dtype}, {', '.join(f'{name}: {value}' for name, value in shown.items())})"

    @classmethod
    def of(cls, q: Any, k: Any, v: Any, *, where="attention", gradients=False, device="cpu", **arguments) -> Problem:
        """The checked problem, or `Refused` with all reasons at once.

        v=None asks about weights only: the values then count as a single column of zeros. arguments: the fields of
        `Arguments`, by name. gradients: whether the caller gives gradients to the tensors that want them; otherwise
        they are refused. device: where the call is computed; tensors that rules read lie there, or on the CPU.
        """
        asked = Arguments(**arguments)
        reasons: list[Reason] = []
        if not gradients:
            for name, value in (("q", q), ("k", k), ("v", v)):
                refuse_gradients(name, value, reasons)
        q_, k_ = checked_array("q", q, reasons), checked_array("k", k, reasons)
        v_ = checked_array("v", v, reasons) if v is not None else None
        if q_ is None or k_ is None or (v is not None and v_ is None):
            raise Refused(where, reasons)
        lead = q_.shape[:-2] if q_.ndim > 2 else ()
        if v_ is None:
            v_ = np.broadcast_to(np.zeros((), k_.dtype), (*k_.shape[:-1], 1))
        reasons += disagreements(q_.shape, k_.shape, v_.shape, (q_.dtype, k_.dtype, v_.dtype), v is not None)
        if reasons:
            raise Refused(where, reasons)
        q4, k4, v4 = (four_axes(array, q_.shape[:-3]) for array in (q_, k_, v_))
        B, H, Q, D = q4.shape
        K = k4.shape[2]
        start = checked_start(asked.query_start, B, Q, K, reasons)
        number = checked_scale(asked.scale, D, reasons)
        sink = checked_sinks(asked.sinks, H, reasons)
        falling = checked_dropout(asked.dropout, asked.seed, reasons)
        rule = checked_rule(asked.mask, as_mask, "mask", (B, H, Q, K), start, reasons)
        logit = checked_rule(asked.score, as_score, "score", (B, H, Q, K), start, reasons)
        reading = [part for part in (rule, logit) if part is not None and part.tables]
        follow_tensors(reading, reasons)
        if reading and 0 not in (B, H, Q, K):
            check_reads(reading, (B, H, Q, K), start, reasons)
        given = logit.tables if gradients and logit is not None else ()
        refuse_gradients("scale", asked.scale, reasons)
        if not gradients:
            refuse_gradients("sinks", asked.sinks, reasons)
        for name, held in tables_of(*reading).items():
            if device_of(held.source) not in ("cpu", device):
                reasons.append(
                    Reason(
                        f"table {name!r} is on a different device",
                        given=device_of(held.source),
                        expected=f"{device}, or the CPU",
                        fix="move it to the device of q: tensor.to(q.device)",
                    )
                )
            if held not in given:
                refuse_gradients(f"table {name!r}", held.source, reasons)
        if reasons:
            raise Refused(where, reasons)
        if isinstance(rule, Const) and rule.value is True:
            rule = None
        if logit is the_score:
            logit = None
        return cls(q4, k4, v4, rule, logit, number, start, sink, falling, lead)
