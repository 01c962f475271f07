"""The arguments of a call besides its arrays, with all checks of them."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ...common.arrays import address, is_float, outline, read_array
from ...common.errors import Reason, Refused, refuse
from ..added_masks import how_to_pass
from ..dropout import Dropout
from ..expr import Expr, Read, Var, batch, head, key, query, walk
from ..expr import table as as_table
from ..masks import dense
from ..scores import bias
from ..selected_keys import Selected
from ..tree.syntax import Syntax
from .arrays import shape_text
from .numbers import LIMIT, Starts, shortly, small


def how_to_fit(array: np.ndarray, name: str, shape: tuple[int, int, int, int]) -> str:
    """The fix for a mask or a score of the wrong axes: what people pass most often has a name or an index.

    >>> how_to_fit(np.ones((2, 7), bool), "mask", (2, 4, 5, 7))
    'pass mask=rg.padding(mask)'
    >>> how_to_fit(np.ones((2, 5, 7)), "score", (2, 4, 5, 7))
    'pass score=score[:, None]'
    """
    code = _reshaped(array.shape, name, shape)
    condition, integer = array.dtype.kind == "b", array.dtype.kind in "iu"
    if name == "mask" and array.shape == (shape[0],) and integer:
        return "pass mask=rg.lengths(mask) if it is the number of real keys of each batch entry"
    if name == "mask" and array.shape == (shape[0], shape[3]):
        if condition or (integer and ((array == 0) | (array == 1)).all()):
            return "pass mask=rg.padding(mask)" + ("" if condition else ', if 1 means "may attend"')
        code = "mask[:, None, None]"
    if code is None:
        return f"index it yourself: table(array)[query, key] in a {name} expression"
    if name == "mask" and not condition:
        return how_to_pass(array, code, added="score=", condition="mask=")
    return f"pass {name}={code}"


def _reshaped(given: tuple[int, ...], name: str, shape: tuple[int, int, int, int]) -> str | None:
    """The array with its axes in place, as code; None where they are ambiguous."""
    B, H, Q, K = shape
    places = {
        (B, K): "[:, None, None]",
        (B, Q, K): "[:, None]",
        (B, 1, K): "[:, None]",
        (B * H, Q, K): f".reshape({B}, {H}, {Q}, {K})",
        (B, Q): "[:, None, :, None]",
        (H, K): "[:, None]",
        (H, Q): "[..., None]",
        (Q,): "[:, None]",
    }
    if given in places:
        return name + places[given]
    turned = (*given[:-2], *given[:-3:-1])
    fits = len(turned) <= 4 and all(a in (1, b) for a, b in zip(turned[::-1], shape[::-1], strict=False))
    if given[-2:] == (K, Q) and (fits or turned in places):
        return f"{name}.swapaxes(-1, -2){'' if fits else places[turned]}"
    return None


class Arguments(NamedTuple):
    """The unchecked arguments of a call besides q, k and v, as in `regard.attention`."""

    mask: Any = None
    score: Any = None
    scale: Any = None
    query_start: Any = None
    sinks: Any = None
    dropout: Any = 0.0
    seed: Any = None
    batch_start: Any = None
    head_start: Any = None


def checked_start(value, B: int, Q: int, K: int, reasons: list[Reason]) -> np.ndarray:
    """The position of row 0 on the key axis, per batch entry; by default the rows are the last Q of the K keys."""
    if value is None:
        return _last_rows(B, K - Q)
    array = small(value)
    whole = array.dtype.kind in "iu" or not array.size  # an empty list is a list of floats to NumPy
    fits = whole and (array.ndim == 0 or array.shape == (B,))
    if not fits or np.any(np.abs(array.astype(object)) >= LIMIT - max(Q, 1)):
        reasons.append(
            Reason(
                "query_start is not a position",
                f"{value!r}",
                f"an integer, or one per batch entry ({B})",
                "omit it to align the last query with the last key",
            )
        )
        return np.zeros(B, np.int64)
    return np.broadcast_to(array.astype(np.int64), (B,)).copy()


@functools.lru_cache(256)
def _last_rows(B: int, start: int) -> np.ndarray:
    found = np.full(B, start, np.int64)
    found.flags.writeable = False  # calls of one shape share it
    return found


def _number(value) -> float:
    """The number of a scalar; NaN if it is none."""
    array = small(value)
    return float(array) if array.ndim == 0 and array.dtype.kind in "iuf" else math.nan


def checked_scale(value, D: int, reasons: list[Reason]) -> float:
    if value is None:
        return 1 / math.sqrt(D) if D else 1.0  # without depth every q·k is 0
    number = _number(value)
    if not math.isfinite(number):
        reasons.append(Reason("scale is not a number", shortly(value), "a finite number", "omit it for 1/√D"))
    elif abs(number) > float(np.finfo(np.float32).max):
        reasons.append(
            Reason(
                "scale is beyond float32", shortly(value), f"at most {np.finfo(np.float32).max:.3g}", "omit it for 1/√D"
            )
        )
    return number


def checked_sinks(value, H: int, reasons: list[Reason]) -> np.ndarray | None:
    if value is None:
        return None
    array = small(value)
    if not is_float(array.dtype) or array.shape[:1] != (H,) or array.ndim > 2:
        reasons.append(
            Reason(
                "sinks do not fit the heads",
                f"{array.dtype} {shape_text(array)}",
                f"floats ({H},) or ({H}, n)",
                "pass floats: one logit per query head, or several",
            )
        )
        return None
    return array if array.ndim == 2 else array[:, None]


def checked_dropout(rate, seed, starts: Starts, reasons: list[Reason]) -> Dropout | None:
    """The dropout of the call, or None. A rate of 0 needs no seed."""
    if seed is None and type(rate) is float and rate == 0:
        return None
    number = _number(rate)
    if not 0 <= number < 1:
        reasons.append(Reason("dropout is not a rate", shortly(rate), "a number in [0, 1)", "omit it for no dropout"))
    whole = small(0 if seed is None else seed)
    if whole.ndim or whole.dtype.kind not in "iu" or not 0 <= int(whole) < 2**64:
        reasons.append(
            Reason(
                "seed is not valid",
                shortly(seed),
                "an integer in [0, 2**64)",
                "pass seed=0, and a different seed in every training step",
            )
        )
    elif seed is None and number > 0:
        reasons.append(
            Reason(
                "dropout needs a seed",
                f"dropout={rate!r}, seed=None",
                "a seed, which determines the dropped weights",
                "pass seed=…, a different one in every training step",
            )
        )
    elif number > 0:
        return Dropout(number, int(whole), starts.batch or 0, starts.head or 0)
    return None


def is_bare(value) -> bool:
    """Whether a mask or score is an array, which is indexed within the call, and not a rule."""
    return not (value is None or isinstance(value, Syntax | str | bool | np.bool_) or callable(value))


def checked_rule(value, read, name: str, shape, start: np.ndarray, reasons: list[Reason]) -> Expr | None:
    """A mask or score as an expression; a bare array broadcasts over rows and keys, so its shape is checked here."""
    try:
        if not is_bare(value):
            return read(value)
        array = outline(value, name)
        given = array.shape
        if len(given) > 4 or any(a not in (1, b) for a, b in zip(given[::-1], shape[::-1], strict=False)):
            reasons.append(
                Reason(
                    f"the {name} array does not fit",
                    f"{given}",
                    f"something that broadcasts to (B, H, Q, K) = {shape}",
                    how_to_fit(read_array(value, name), name, shape),
                )
            )
            return None
        if 0 in given:  # no pairs
            return None
        if len(set(start.tolist())) > 1:
            reasons.append(
                Reason(
                    f"a bare {name} array cannot follow query_start",
                    f"query_start {start.tolist()}",
                    "one start for all batch entries",
                    f"read it in a {name} expression, as in table(array)[query - table(query_start)[batch], key]",
                )
            )
            return None
        build = dense if name == "mask" else bias
        return read(build(value, query_start=int(start[0]) if len(start) else 0))
    except Refused as refused:
        reasons.extend(refused.reasons)
        return None


def follow_tensors(rules: list[Expr], reasons: list[Reason]) -> None:
    """Updates tables whose tensors have new memory since the rule was built: tensor.data = …, module.to(…)."""
    for held in {held for rule in rules for held in rule.tables}:
        for source in held.sources:
            if not source.is_cpu or source.data_ptr() == address(held.array):
                continue
            now = as_table(source, held.name)
            if (now.kind, now.array.ndim) != (held.kind, held.array.ndim):
                reasons.append(
                    Reason(
                        f"the {held.name} table changed its dtype kind or number of axes",
                        f"{now.array.dtype} {shape_text(now.array)}",
                        f"{held.array.ndim} axes of {held.kind}",
                        "build the rule again",
                    )
                )
            else:
                held.array = now.array


class Numbered(NamedTuple):
    """The batch entries or the heads of a call: the variable, the word for them, how many there are, and the number of
    the first one, or None.
    """

    axis: str
    entries: str
    held: int
    first: int | None

    def misfits(self, name: str, given: str, size: int, more: bool) -> list[Reason]:
        """Why a table that has this many of them does not fit. more: it may have more than the call, as a buffer for
        the largest batch has; with a first one it always may.
        """
        axis, entries, held, first = self
        if first is None and (size < held or (size > held and not more)):
            part = f", or pass {axis}_start=… if these are {held} of them" if size > held else ""
            return [
                Reason(
                    f"{name} has {size} entries for {held} {entries}",
                    given,
                    f"{held} along that axis",
                    f"check the array, or index it with clip({axis}, …){part}",
                )
            ]
        if first is not None and size < first + held:
            return [
                Reason(
                    f"{name} has {size} entries for {entries} {first} … {first + held - 1}",
                    f"{given}, {axis}_start={first}",
                    f"{first + held} or more along that axis: those of the whole",
                    f"pass the table of all {entries}, or omit {axis}_start to count those of this call from 0",
                )
            ]
        return []


def check_reads(rules: list[Expr], shape, start: np.ndarray, starts: Starts, reasons: list[Reason]) -> None:
    """Appends a reason for every read at a plain position that is outside its table; computed indices are clamped.

    What regard's masks read of a call that is the whole has one entry for each batch entry or head; that of a part, and
    a caller's own table, may have more.
    """
    B, H, Q, K = shape
    last = min(K, int(start.max()) + Q)  # rows beyond the keys read the last entry
    numbered = {
        batch: Numbered("batch", "batch entries", B, starts.batch),
        head: Numbered("head", "heads", H, starts.head),
    }
    least = {key: (K, "keys"), query: (last, "query positions")}
    for table in {id(table): table for rule in rules for table in rule.tables}.values():
        if isinstance(table, Selected):
            reasons += table.misfits(Q, K, start)
    known = set()  # every axis of a table has one reason, also where a rule reads many of its elements
    for read in (node for node in walk(*rules) if isinstance(node, Read)):
        name, sizes = f"the {read.table.name} table", read.table.shape
        given = f"`{read}` of {list(sizes)}"
        for axis, (part, size) in enumerate(zip(read.index, sizes, strict=True)):
            if not isinstance(part, Var) or (read.table.digest, axis, id(part)) in known:
                continue
            known.add((read.table.digest, axis, id(part)))
            if part in numbered:
                reasons += numbered[part].misfits(name, given, size, more=not read.table.frozen)
            if part in least and size < least[part][0]:
                wanted, entries = least[part]
                reasons.append(
                    Reason(
                        f"{name} covers {size} of {wanted} {entries}",
                        given,
                        f"{wanted} entries or more along that axis",
                        f"extend the array, or repeat its last entry explicitly: clip({part!r}, 0, {size - 1})",
                    )
                )


def picked(rows, keys, dims: dict[str, int]) -> list[np.ndarray]:
    """Selected rows and keys of the matrix as positions, counted from 0; None is all of them."""
    found = []
    for name, chosen, size in (("rows", rows, dims["Q"]), ("keys", keys, dims["K"])):
        try:
            part = np.arange(size)[slice(None) if chosen is None else chosen]
            if part.ndim > 1:  # the result of a boolean or nested lists
                raise IndexError("it has more than one axis")
        except (IndexError, TypeError, ValueError) as error:
            raise refuse(
                "attention_weights",
                f"{name} outside the matrix",
                f"{name}={chosen!r}: {error}",
                f"positions among {size}",
                "count from 0, or from the end with negative numbers",
            ) from error
        found.append(part)
    return found
