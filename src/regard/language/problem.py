"""Problem: what one call of attention asks. Every check of the arguments is here, and only here.

The dimension key, used in docstrings and as suffixes everywhere:

    B batch · H query heads · G key/value heads (H % G == 0) · Q query rows · K key rows · D score depth · E value depth

Arrays are (…, heads, rows, depth); missing leading axes count as 1. The axes before the heads are the batch: those of k
and v broadcast to those of q, axis by axis, as NumPy's do.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..common.arrays import address, device_of, is_float, is_tensor, outline, read_array
from ..common.dtypes import LISTED, real_of, row_of, torch_dtypes
from ..common.errors import Reason, Refused
from .callables import as_mask, as_score
from .dropout import Dropout
from .expr import Const, Expr, Read, Table, Var, batch, head, key, query, tables_of, walk
from .expr import score as the_score
from .expr import table as as_table
from .masks import LIMIT

__all__ = ["Gradients", "Problem"]

Sizes = tuple[int, ...]


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
    def of(
        cls,
        q: Any,
        k: Any,
        v: Any,
        *,
        mask=None,
        score=None,
        scale=None,
        query_start=None,
        sinks=None,
        dropout=0.0,
        seed=None,
        where="attention",
        gradients=False,
        device="cpu",
    ) -> Problem:
        """The checked problem, or `Refused` with all reasons at once.

        v=None asks about weights only: the values then count as a single column of zeros. gradients: whether the caller
        gives gradients to the tensors that want them; otherwise they are refused. device: where the call is computed;
        tensors that rules read lie there, or on the CPU.
        """
        reasons: list[Reason] = []
        if not gradients:
            for name, value in (("q", q), ("k", k), ("v", v)):
                _wants_gradients(name, value, reasons)
        q_, k_ = _array("q", q, reasons), _array("k", k, reasons)
        v_ = _array("v", v, reasons) if v is not None else None
        if q_ is None or k_ is None or (v is not None and v_ is None):
            raise Refused(where, reasons)
        lead = q_.shape[:-2] if q_.ndim > 2 else ()
        if v_ is None:
            v_ = np.broadcast_to(np.zeros((), k_.dtype), (*k_.shape[:-1], 1))
        reasons += _disagreements(q_.shape, k_.shape, v_.shape, (q_.dtype, k_.dtype, v_.dtype), v is not None)
        if reasons:
            raise Refused(where, reasons)
        q4, k4, v4 = (_four_axes(array, q_.shape[:-3]) for array in (q_, k_, v_))
        B, H, Q, D = q4.shape
        K = k4.shape[2]
        start = _query_start(query_start, B, Q, K, reasons)
        number = _scale(scale, D, reasons)
        sink = _sinks(sinks, H, reasons)
        falling = _dropout(dropout, seed, reasons)
        rule = _rule(mask, as_mask, "mask", (B, H, Q, K), start, reasons)
        logit = _rule(score, as_score, "score", (B, H, Q, K), start, reasons)
        reading = [part for part in (rule, logit) if part is not None and part.tables]
        _follow(reading, reasons)
        if reading and 0 not in (B, H, Q, K):
            _check_reads(reading, (B, H, Q, K), start, reasons)
        given = logit.tables if gradients and logit is not None else ()
        _wants_gradients("scale", scale, reasons)
        if not gradients:
            _wants_gradients("sinks", sinks, reasons)
        for name, held in tables_of(*reading).items():
            if device_of(held.source) not in ("cpu", device):
                reasons.append(
                    Reason(
                        f"table {name!r} lies on another device",
                        given=device_of(held.source),
                        expected=f"{device}, or the CPU",
                        fix="move it to the device of q: tensor.to(q.device)",
                    )
                )
            if held not in given:
                _wants_gradients(f"table {name!r}", held.source, reasons)
        if reasons:
            raise Refused(where, reasons)
        if isinstance(rule, Const) and rule.value is True:
            rule = None
        if logit is the_score:
            logit = None
        return cls(q4, k4, v4, rule, logit, number, start, sink, falling, lead)


def _sizes(sizes: Sizes) -> str:
    return f"({', '.join(map(str, sizes))})"


def _shape(array: np.ndarray) -> str:
    return _sizes(array.shape)


def _array(name: str, value, reasons: list[Reason]) -> np.ndarray | None:
    """The argument as a NumPy array that shares its memory, or None with a reason added."""
    if is_tensor(value) and not (value.is_cpu and value.dtype in torch_dtypes()):
        reasons.append(
            Reason(
                f"{name} cannot be read",
                given=f"{value.dtype} on {value.device}",
                expected=f"{LISTED} on the CPU",
                fix=f"convert it: {name}.float().cpu()",
            )
        )
        return None
    try:
        array = read_array(value, name)
    except Refused as refused:
        reasons.extend(replace(reason, what=f"{name}: {reason.what}") for reason in refused.reasons)
        return None
    if row_of(array.dtype) is None:
        reasons.append(
            Reason(
                f"{name} has a dtype that attention does not take",
                given=f"{array.dtype} {_shape(array)}",
                expected=LISTED,
                fix=f"convert it: {name}.astype(np.float32)",
            )
        )
        return None
    if array.ndim < 2:
        reasons.append(
            Reason(
                f"{name} has too few axes",
                given=_shape(array),
                expected="(…, heads, rows, depth), at least (rows, depth)",
                fix=f"add an axis: {name}[None, :]",
            )
        )
        return None
    return array


def _wants_gradients(name: str, value, reasons: list[Reason]) -> None:
    """A tensor that waits for a gradient which this call would not give it is a reason to refuse."""
    if not getattr(value, "requires_grad", False):
        return
    import torch

    if torch.is_grad_enabled():
        reasons.append(
            Reason(
                f"{name} wants gradients",
                given=f"{name}.requires_grad is True",
                expected="a tensor without: there is no gradient for it here",
                fix="wrap the call in torch.no_grad(), or pass tensor.detach()",
            )
        )


def _heads(sizes: Sizes) -> int:
    return sizes[-3] if len(sizes) > 2 else 1


def _four_axes(array: np.ndarray, batch: tuple[int, ...]) -> np.ndarray:
    """(…, heads, rows, depth) as (B, heads, rows, depth), the axes before the heads broadcast to those of the
    queries.
    """
    if array.ndim == 4 and array.shape[:1] == batch:
        return array
    if array.ndim == 3 and not batch:
        return array[None]
    inner = (_heads(array.shape), *array.shape[-2:])
    B = math.prod(batch)
    if math.prod(array.shape[:-3]) == B:
        return array.reshape(B, *inner)
    if math.prod(array.shape[:-3]) == 1:  # one entry for the whole batch stays a view
        return np.broadcast_to(array.reshape(1, *inner), (B, *inner))
    return np.broadcast_to(array, (*batch, *inner)).reshape(B, *inner)


def _broadcasts(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    pairs = itertools.zip_longest(reversed(given), reversed(wanted), fillvalue=1)
    return all(own in (1, size) for own, size in pairs)


@functools.lru_cache(256)
def _disagreements(q: Sizes, k: Sizes, v: Sizes, dtypes: tuple[np.dtype, ...], with_values: bool) -> tuple[Reason, ...]:
    """Every disagreement between the shapes, not just the first."""
    reasons: list[Reason] = []
    shown = f"q {_sizes(q)}, k {_sizes(k)}" + (f", v {_sizes(v)}" if with_values else "")
    layout = "the layout is (batch, heads, rows, depth)"
    if len(set(dtypes)) > 1:
        reasons.append(
            Reason(
                "the arrays differ in dtype",
                given=", ".join(sorted(map(str, set(dtypes)))),
                expected="one dtype for q, k and v",
                fix="convert them to the same dtype",
            )
        )
    D = q[-1]
    if k[-1] != D:
        reasons.append(
            Reason(
                "q and k differ in depth",
                given=shown,
                expected=f"D = {D} for both",
                fix=f"check the last axis; {layout}",
            )
        )
    if D == 0 or v[-1] == 0:
        reasons.append(
            Reason(
                "an array has no depth",
                given=shown,
                expected="a last axis of at least 1",
                fix=f"check the last axis; {layout}",
            )
        )
    if k[-2] != v[-2]:
        reasons.append(
            Reason(
                "k and v differ in rows",
                given=shown,
                expected="one value row per key row",
                fix=f"check axis -2; {layout}",
            )
        )
    H, G = _heads(q), _heads(k)
    if _heads(v) != G:
        reasons.append(
            Reason(
                "k and v differ in heads",
                given=shown,
                expected="as many value heads as key heads",
                fix=f"check axis -3; {layout}",
            )
        )
    if bool(H) != bool(G) or (G and H % G):
        reasons.append(
            Reason(
                "key heads do not divide query heads",
                given=f"{shown}: H={H}, G={G}",
                expected="H to be a multiple of G",
                fix=f"repeat k and v to {H} heads, or check that axis -3 is heads: {layout}",
            )
        )
    batch = q[:-3]
    for name, sizes in (("k", k), ("v", v)) if with_values else (("k", k),):
        if _broadcasts(sizes[:-3], batch):
            continue
        if len(batch) < 2 and len(sizes) < 5:
            expected, mend = f"B = {math.prod(batch)}, or 1", f"check axis 0; {layout}"
        else:
            expected = f"before the heads {batch}, or 1 in place of any of them"
            mend = f"check the axes before -3; {layout}, and batch may be several axes"
        reasons.append(Reason(f"q and {name} differ in batch", given=shown, expected=expected, fix=mend))
    for name, sizes in (("q", q), ("k", k)):
        if sizes[-2] >= LIMIT:
            reasons.append(
                Reason(f"{name} has too many rows", given=shown, expected="fewer than 2**31 rows", fix="split the call")
            )
    if math.prod(q[:-1]) * v[-1] * 8 >= 2**63:
        reasons.append(
            Reason("the result is too large", given=shown, expected="fewer than 2**63 bytes", fix="split the call")
        )
    return tuple(reasons)


def _small(value) -> np.ndarray:
    """A short argument as an array; what NumPy cannot read becomes an object, which no check lets pass."""
    try:
        return read_array(value, "argument")
    except Refused:
        return np.array(None)


def _query_start(value, B: int, Q: int, K: int, reasons: list[Reason]) -> np.ndarray:
    """Where row 0 stands on the key axis, per batch entry; by default the rows are the last Q of the K keys."""
    if value is None:
        return _last_rows(B, K - Q)
    array = _small(value)
    array = (
        array.astype(np.int64) if array.shape == (B,) == (0,) else array
    )  # an empty list is a list of floats to NumPy
    fits = array.dtype.kind in "iu" and (array.ndim == 0 or array.shape == (B,))
    if not fits or np.any(np.abs(array.astype(object)) >= LIMIT - max(Q, 1)):
        reasons.append(
            Reason(
                "query_start is not a position",
                given=f"{value!r}",
                expected=f"an integer, or one per batch entry ({B})",
                fix="leave it out to align the last query with the last key",
            )
        )
        return np.zeros(B, np.int64)
    return np.broadcast_to(array.astype(np.int64), (B,)).copy()


@functools.lru_cache(256)
def _last_rows(B: int, start: int) -> np.ndarray:
    found = np.full(B, start, np.int64)
    found.flags.writeable = False  # calls of one shape share it
    return found


def _scale(value, D: int, reasons: list[Reason]) -> float:
    if value is None:
        return 1 / math.sqrt(D)
    given = _small(value)
    number = float(given) if given.ndim == 0 and given.dtype.kind in "iuf" else math.nan
    if not math.isfinite(number):
        reasons.append(
            Reason(
                "scale is not a number", given=_shortly(value), expected="a finite number", fix="leave it out for 1/√D"
            )
        )
    elif abs(number) > float(np.finfo(np.float32).max):
        reasons.append(
            Reason(
                "scale is beyond float32",
                given=_shortly(value),
                expected=f"at most {np.finfo(np.float32).max:.3g}",
                fix="leave it out for 1/√D",
            )
        )
    return number


def _shortly(value) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:80] + " …"


def _sinks(value, H: int, reasons: list[Reason]) -> np.ndarray | None:
    if value is None:
        return None
    array = _small(value)
    if not is_float(array.dtype) or array.shape[:1] != (H,) or array.ndim > 2:
        reasons.append(
            Reason(
                "sinks do not fit the heads",
                given=f"{array.dtype} {_shape(array)}",
                expected=f"floats ({H},) or ({H}, n)",
                fix="give one logit per query head, or several",
            )
        )
        return None
    return array if array.ndim == 2 else array[:, None]


def _dropout(rate, seed, reasons: list[Reason]) -> Dropout | None:
    """The pairs that fall out; None where nothing does. A rate of 0 needs no seed."""
    if seed is None and type(rate) is float and rate == 0:
        return None
    given = _small(rate)
    share = float(given) if given.ndim == 0 and given.dtype.kind in "iuf" else math.nan
    if not 0 <= share < 1:
        reasons.append(
            Reason(
                "dropout is not a share of the weights",
                given=_shortly(rate),
                expected="a number from 0 to below 1",
                fix="leave it out for no dropout",
            )
        )
    whole = _small(0 if seed is None else seed)
    if whole.ndim or whole.dtype.kind not in "iu" or not 0 <= int(whole) < 2**64:
        reasons.append(
            Reason(
                "seed is not a seed",
                given=_shortly(seed),
                expected="an integer, 0 … 2**64 - 1",
                fix="give seed=0, and another in every step",
            )
        )
    elif seed is None and share > 0:
        reasons.append(
            Reason(
                "dropout needs a seed",
                given=f"dropout={rate!r}, seed=None",
                expected="a seed: it alone decides what falls out",
                fix="give seed=…, another in every training step",
            )
        )
    elif share > 0:
        return Dropout(share, int(whole))
    return None


def _rule(value, read, name: str, shape, start: np.ndarray, reasons: list[Reason]) -> Expr | None:
    """A mask or score as an expression; a bare array is laid over rows and keys, so its shape is checked here."""
    try:
        if value is None or isinstance(value, Expr | str | bool | np.bool_) or callable(value):
            return read(value)
        given = outline(value, name).shape
        if len(given) > 4 or any(a not in (1, b) for a, b in zip(given[::-1], shape[::-1], strict=False)):
            reasons.append(
                Reason(
                    f"the {name} array does not fit",
                    given=f"{given}",
                    expected=f"something that broadcasts to (B, H, Q, K) = {shape}",
                    fix=f"index it yourself: table(array)[query, key] in a {name} expression",
                )
            )
            return None
        if 0 in given:  # there is no pair of a row and a key to speak of
            return None
        if len(set(start.tolist())) > 1:
            reasons.append(
                Reason(
                    f"a bare {name} array cannot follow query_start",
                    given=f"query_start {start.tolist()}",
                    expected="one start for all batch entries",
                    fix=f"index it yourself in a {name} expression",
                )
            )
            return None
        from . import masks, scores

        build = masks.dense if name == "mask" else scores.bias
        return read(build(value, query_start=int(start[0]) if len(start) else 0))
    except Refused as refused:
        reasons.extend(refused.reasons)
        return None


def _follow(rules: list[Expr], reasons: list[Reason]) -> None:
    """Tables stay with their tensors, which may have been given other memory since: tensor.data = …, module.to(…)."""
    for held in {held for rule in rules for held in rule.tables}:
        for source in held.sources:
            if not source.is_cpu or source.data_ptr() == address(held.array):
                continue
            now = as_table(source, held.name)
            if (now.kind, now.array.ndim) != (held.kind, held.array.ndim):
                reasons.append(
                    Reason(
                        f"the {held.name} table became another kind of array",
                        given=f"{now.array.dtype} {_shape(now.array)}",
                        expected=f"{held.array.ndim} axes of {held.kind}",
                        fix="build the rule anew",
                    )
                )
            else:
                held.array = now.array


def _check_reads(rules: list[Expr], shape, start: np.ndarray, reasons: list[Reason]) -> None:
    """Reads at a plain position must find an entry there: clamping is for computed indices, where it is seen and
    meant.
    """
    B, H, Q, K = shape
    last = min(K, int(start.max()) + Q)  # rows beyond the keys read the last entry
    exact, least = (
        {batch: (B, "batch entries"), head: (H, "heads")},
        {key: (K, "keys"), query: (last, "query positions")},
    )
    for read in (node for node in walk(*rules) if isinstance(node, Read)):
        name, sizes = f"the {read.table.name} table", read.table.array.shape
        given = f"`{read}` of {list(sizes)}"
        for part, size in zip(read.index, sizes, strict=True):
            if not isinstance(part, Var):
                continue
            if part in exact and size != exact[part][0]:
                wanted, entries = exact[part]
                reasons.append(
                    Reason(
                        f"{name} has {size} entries for {wanted} {entries}",
                        given=given,
                        expected=f"{wanted} along that axis",
                        fix=f"check the array, or index it with clip({part!r}, …)",
                    )
                )
            if part in least and size < least[part][0]:
                wanted, entries = least[part]
                reasons.append(
                    Reason(
                        f"{name} covers {size} of {wanted} {entries}",
                        given=given,
                        expected=f"{wanted} entries or more along that axis",
                        fix=f"extend the array, or repeat its last entry in words: clip({part!r}, 0, {size - 1})",
                    )
                )
