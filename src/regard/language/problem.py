"""Problem: the checked arguments of one call of attention.

The dimension key of all docstrings and names:

    B batch · H query heads · G key/value heads (H % G == 0) · Q query rows · K key rows · D score depth · E value depth

Arrays are (…, heads, rows, depth); missing leading axes count as 1. The axes before the heads are the batch: those of k
and v broadcast to those of q, axis by axis, as NumPy's do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

import numpy as np

from ..common.arrays import device_of
from ..common.dtypes import real_of
from ..common.errors import Reason, Refused, alike, refuse_all
from ..common.public import ArrayT
from .callables import as_mask, as_score
from .captured import simplify
from .checks.arguments import (
    Arguments,
    check_reads,
    checked_dropout,
    checked_rule,
    checked_scale,
    checked_sinks,
    checked_start,
    follow_tensors,
    is_bare,
)
from .checks.arrays import checked_array, disagreements, four_axes, refuse_gradients
from .checks.numbers import Starts, checked_starts, counted
from .dropout import Dropout
from .expr import Const, Expr, Table, tables_of
from .expr import score as the_score
from .selected_keys import fitted


class Gradients(NamedTuple, Generic[ArrayT]):
    """The result of a backward pass: one gradient per input, and `tables` with one for each requested table."""

    q: ArrayT
    k: ArrayT
    v: ArrayT
    tables: dict[Table, ArrayT]
    sinks: ArrayT | None


class Saved(NamedTuple):
    """The result of a forward pass, saved for the backward pass of the same engine.

    out (B, H, Q, E) · sums (3, B, H, Q): lse, then top and total of the compiled engine, where a weight is
    2**(exponent · (s - top)) / total with s in units of the kernel · lost (B, H, Q, E) int16, contiguous: what rounding
    took from out, as the upper half of a float32, so that gradients do not have the error of that rounding; None if out
    is not rounded, and if only out is known.
    """

    out: np.ndarray
    sums: np.ndarray
    lost: np.ndarray | None = None
    engine: str = "jit"


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """The checked arguments of one call: arrays as (B, heads, rows, depth) views, rules as expressions.

    q (B, H, Q, D) · k (B, G, K, D) · v (B, G, K, E) · query_start (B,) position of row 0 · sinks (H, S) or None ·
    dropout: its rate and seed, or None · lead: the caller's leading axes, for the shape of the result · starts: what
    batch entry 0 and head 0 are in a larger call. mask, score and dropout contain the starts, so they count from 0.
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
    starts: Starts

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
        """The dtype of sums and lse: float32, or float64 for float64 arrays."""
        return real_of(self.dtype)

    def __repr__(self):
        sizes = " ".join(f"{name}={size}" for name, size in self.dims.items())
        starts = sorted(set(self.query_start.tolist()))
        shown: dict[str, Any] = {
            "mask": self.mask,
            "score": self.score,
            "scale": round(self.scale, 6),
            "query_start": starts,
        }
        shown |= {f"{name}_start": first for name, first in self.starts._asdict().items() if first}
        shown |= {} if self.sinks is None else {"sinks": f"{self.sinks.shape[1]} per head"}
        shown |= {} if self.dropout is None else {"dropout": self.dropout.rate, "seed": self.dropout.seed}
        return f"Problem({sizes} {self.dtype}, {', '.join(f'{name}: {value}' for name, value in shown.items())})"

    @classmethod
    def of(cls, q: Any, k: Any, v: Any, *, where="attention", gradients=False, device="cpu", **arguments) -> Problem:
        """The checked problem; raises `Refused`, which lists every problem.

        v=None is a call for weights only: the values are then a single column of zeros. arguments: the fields of
        `Arguments`, by name. gradients: whether the caller computes gradients for tensors that require them; otherwise
        such tensors are rejected. device: where the call is computed; tensors that rules read must be on it or on the
        CPU.
        """
        given = Arguments(**arguments)
        reasons: list[Reason] = []
        if not gradients:
            for name, value in (("q", q), ("k", k), ("v", v)):
                refuse_gradients(name, value, reasons)
        q_, k_ = checked_array("q", q, reasons), checked_array("k", k, reasons)
        v_ = checked_array("v", v, reasons) if v is not None else None
        if q_ is None or k_ is None or (v is not None and v_ is None):
            raise Refused(where, alike(reasons))
        lead = q_.shape[:-2] if q_.ndim > 2 else ()
        if v_ is None:
            v_ = np.broadcast_to(np.zeros((), k_.dtype), (*k_.shape[:-1], 1))
        reasons += disagreements(q_.shape, k_.shape, v_.shape, (q_.dtype, k_.dtype, v_.dtype), v is not None)
        if reasons:
            raise Refused(where, alike(reasons))
        q4, k4, v4 = (four_axes(array, q_.shape[:-3]) for array in (q_, k_, v_))
        B, H, Q, D = q4.shape
        K = k4.shape[2]
        start = checked_start(given.query_start, B, Q, K, reasons)
        scale = checked_scale(given.scale, D, reasons)
        sinks = checked_sinks(given.sinks, H, reasons)
        starts = checked_starts(given.batch_start, given.head_start, B, H, reasons)
        dropout = checked_dropout(given.dropout, given.seed, starts, reasons)
        rule = checked_rule(given.mask, as_mask, "mask", (B, H, Q, K), start, reasons)
        logit = checked_rule(given.score, as_score, "score", (B, H, Q, K), start, reasons)
        reading = [part for part in (rule, logit) if part is not None and part.tables]
        follow_tensors(reading, reasons)
        bare_mask, bare_score = is_bare(given.mask), is_bare(given.score)
        written = [] if bare_mask or rule is None else [rule]
        written += [] if bare_score or logit is None else [logit]
        if reading and 0 not in (B, H, Q, K):
            check_reads(written, (B, H, Q, K), start, starts, reasons)
        differentiated = logit.tables if gradients and logit is not None else ()
        learned = "pass scale=1.0 and score=score * scale, or scale.detach() if it is not learned"
        refuse_gradients("scale", given.scale, reasons, learned)
        if not gradients:
            refuse_gradients("sinks", given.sinks, reasons)
        for name, table in tables_of(*reading).items():
            if device_of(table.source) not in ("cpu", device):
                reasons.append(
                    Reason(
                        f"table {name!r} is on a different device",
                        device_of(table.source),
                        f"{device}, or the CPU",
                        "move it to the device of q: tensor.to(q.device)",
                    )
                )
            if table not in differentiated:
                refuse_gradients(f"table {name!r}", table.source, reasons)
        refuse_all(where, reasons)
        if rule is not None and not bare_mask:
            rule = fitted(counted(rule, starts), K)
        if logit is not None and not bare_score:
            logit = counted(logit, starts)
        if reading and 0 not in (B, H, Q, K):
            low, high = int(start.min()), int(start.max()) + Q - 1
            spans = ("batch", 0, B - 1), ("head", 0, H - 1), ("query", low, high), ("key", 0, K - 1)
            rule, logit = (None if each is None else simplify(each, spans) for each in (rule, logit))
        if isinstance(rule, Const) and rule.value is True:
            rule = None
        if logit is the_score:
            logit = None
        return cls(q4, k4, v4, rule, logit, scale, start, sinks, dropout, lead, starts)


class Tangents(NamedTuple):
    """A direction in which the arguments of a problem change: arrays in its axes, or None for no change."""

    q: np.ndarray | None
    k: np.ndarray | None
    v: np.ndarray | None
    tables: dict[Table, np.ndarray]
    sinks: np.ndarray | None

    @classmethod
    def of(cls, batch: tuple[int, ...], q, k, v, tables: dict[Table, np.ndarray], sinks) -> Tangents:
        """The direction of arrays in the caller's axes; batch: those of q before the heads."""
        q, k, v = (None if each is None else four_axes(each, batch) for each in (q, k, v))
        return cls(q, k, v, tables, sinks if sinks is None or sinks.ndim == 2 else sinks[:, None])
