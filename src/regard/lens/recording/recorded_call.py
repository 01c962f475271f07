"""A recorded attention call before completion, and its completion: axes, figures, and a comparison with the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...common.text.units import counted
from ...language.expr import Expr
from ..runs import figures
from ..runs.call import UNMEASURED, Call
from ..runs.detectors import ROWS

UNKNOWN = "unknown_output_projection"  # the note that says why W_o is not known
COMPARED = 1 << 18  # weights: larger calls are compared with the model in some rows only
ROUNDING = 0.02  # the largest change of a weight that rounding of 16-bit scores may cause


@dataclass(frozen=True, eq=False)
class Recorded:
    """A call that is not `completed` yet, with what only the recording needs.

    nth: its number among the calls that the layer makes in one pass · cross: whether its keys are of another text than
    its rows · weights (H, Q, K): the model's own, if it computes them.
    """

    call: Call
    nth: int = 0
    cross: bool = False
    weights: np.ndarray | None = None

    @property
    def qkv(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q, k and v; every recorded call has them."""
        q, k, v = self.call.q, self.call.k, self.call.v
        assert q is not None and k is not None and v is not None
        return q, k, v

    def nbytes(self, values: bool) -> int:
        """The bytes of the completed call, including its figures."""
        call, (H, Q, K) = self.call, self.call.shape
        held = [call.q, call.k, call.sinks, *((call.v, call.x, call.out) if values else ())]
        counted = 4 * H * ((len(ROWS) + 2) * Q + 2 * K + 2 * min(figures.CELLS, Q) * min(figures.CELLS, K))
        return counted + sum(part.nbytes for part in held if part is not None)


def unmeasured(name: str, layer: int | None, **fields: Any) -> Call:
    """A call from its q, k and rules, before its axes are named and its figures are computed."""
    return Call(name, layer, queries="", keys="", lse=UNMEASURED, **fields)


def completed(
    recorded: Recorded, queries: str, keys: str, special: np.ndarray, values: bool, sets: Mapping[str, Expr]
) -> Call:
    """The call with its axes and figures, compared with the output of the model. special (K,): special tokens · sets:
    further sets of keys.
    """
    placed = dataclasses.replace(recorded.call, queries=queries, keys=keys)
    call = _measured(placed, recorded, special, sets)
    call = dataclasses.replace(call, notes={**call.notes, **checked(call)})
    if call.projections is not None and (why := call.projections.missing.get("o")):
        call = dataclasses.replace(call, notes={**call.notes, UNKNOWN: why})
    return call if values else dataclasses.replace(call, v=None, x=None, out=None, projections=None)


def _measured(call: Call, recorded: Recorded, special: np.ndarray, sets: Mapping[str, Expr]) -> Call:
    """The call with its figures. If the rules do not reproduce the weights of the model, the weights are stored."""
    why, weights = call.notes.get("unread"), recorded.weights
    w_o = None if call.projections is None or call.projections.o is None else call.projections.o.w
    if why is None:
        found = figures.with_figures(call, special, sets, w_o)
        if weights is None or _gives(found, weights):
            return found
        why = "the recorded rules do not reproduce the weights that the model used"
    notes = {**call.notes, "unread": why}
    bare = dataclasses.replace(call, q=None, k=None, score=None, scale=1.0, sinks=None, given=weights, notes=notes)
    return figures.with_figures(bare, special, sets, w_o)


def _gives(call: Call, weights: np.ndarray) -> bool:
    """Whether the call's weights equal the model's, up to the rounding of scores in the model's dtype; fully masked
    rows are not compared.
    """
    H, Q, K = call.shape
    assert call.q is not None
    step = max(1, COMPARED // max(H * K, 1))
    unit = _unit(call.q)
    for first in range(0, Q, step):
        rows = slice(first, first + step)
        seeing = call.allowed(rows=rows).any(-1)
        apart = np.abs(call.weights(rows=rows) - np.asarray(weights[:, rows], np.float64)).max(-1)
        with np.errstate(invalid="ignore"):
            most = np.maximum(np.abs(call.rows["low"][:, rows]), np.abs(call.rows["high"][:, rows]))
            if not (apart <= np.minimum(8 * unit * (1 + most), ROUNDING))[seeing].all():
                return False
    return True


def checked(call: Call) -> dict[str, Any]:
    """The difference between Σ p v and the output of the model, as a share of the largest absolute output.

    Long calls are compared in some rows only.
    """
    H, Q, K = call.shape
    if call.out is None or call.v is None or call.notes.get("dropout"):  # the dropout mask is not recorded
        return {}
    count = max(1, min(Q, COMPARED // max(H * K, 1)))
    at = np.arange(count) * Q // count
    with np.errstate(all="ignore"):
        weights = call.weights(rows=at)
        v = np.repeat(np.asarray(call.v, np.float64), H // len(call.v), 0)
        expected, actual = weights @ np.where(np.isfinite(v), v, 0), np.asarray(call.out[:, at], np.float64)
        seeing = call.allowed(rows=at).any(-1)
        apart = np.abs(expected - actual)[seeing]
        most = max(np.abs(actual[seeing]).max(initial=0), 1e-30)
        found: dict[str, Any] = {"compared": "all rows" if count == Q else f"{count} of {counted(Q, 'row')}"}
        if apart.size:
            found["difference"] = float(apart.max() / most) if np.isfinite(apart).all() else None
        if not seeing.all():
            average = np.broadcast_to(v.mean(1, keepdims=True), actual.shape)
            found["empty"] = _empty(actual[~seeing], average[~seeing], 8 * _unit(call.v) * float(np.abs(v).max()))
    return found


def _unit(values: np.ndarray) -> float:
    """The relative rounding error of the model's dtype."""
    return float(np.finfo(np.float32).eps) if values.dtype.itemsize > 2 else 2.0**-8


def _empty(actual: np.ndarray, average: np.ndarray, rounding: float) -> str:
    """The model's output for fully masked rows. average: the mean of all values."""
    if np.isnan(actual).any():
        return "NaN"
    if not actual.any():
        return "0"
    return "an average of values" if np.abs(actual - average).max() <= rounding else "something else"
