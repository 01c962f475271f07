"""Which calls of a model are recorded, their axes, where they are stored, up to a size limit, and their provenance."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fnmatch
import hashlib
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...common.errors import Reason, Refused, refuse
from ...common.text.units import counted
from ...language.expr import Expr
from ..runs import figures
from ..runs.axis import Axis
from ..runs.call import UNMEASURED, Call
from ..runs.detectors import ROWS, of_tokens
from ..runs.effects import Effects
from ..runs.projections import NAMES, LayerProjections
from ..runs.run import Run, Step
from ..storage.folder import Writer
from ..storage.manifest import shown, size_of
from .passes import Growing

UNKNOWN = "unknown_output_projection"  # the note that says why W_o is not known
COMPARED = 1 << 18  # weights: larger calls are compared with the model in some rows only
ROUNDING = 0.02  # the largest change of a weight that rounding of 16-bit scores may cause
BEFORE = 16  # the most tokens, such as a class token and registers, that a model puts before the patches
VISION = ("vision", "visual", "image", "vit", "pixel")
SENSES = {"image": VISION, "sound": ("audio", "speech", "sound")}


@dataclass(frozen=True)
class PatchGrid:
    """An image as a grid of (rows, columns) patches."""

    grid: tuple[int, int]
    image: bytes

    def axis(self, size: int) -> Axis | None:
        """The axis of `size` positions, or None if it does not fit. Positions beyond the patches, such as a class token
        and registers, come first.
        """
        rows, columns = self.grid
        more = size - rows * columns
        if not 0 <= more <= BEFORE:
            return None
        before = ["[CLS]", *(f"[REG {i}]" for i in range(1, more))][:more]
        words = (*before, *(f"{row},{column}" for row in range(rows) for column in range(columns)))
        return Axis("patches", words, (True,) * more + (False,) * (rows * columns), self.grid, self.image)


class Axes:
    """The axes that are known before the model runs. A call that fits none of them gets an axis of plain positions.

    needed: whether a known axis that fits no call is an error.

    Known names: "text"; "source" and "target" of an encoder–decoder; "patches".
    """

    def __init__(self, known: dict[str, Axis], patches: PatchGrid | None = None, needed: bool = False):
        self.known = dict(known)
        self.patches = patches
        self.needed = tuple(known) if needed else ()
        self.used: dict[str, Axis] = {}

    def place(self, call: Call) -> tuple[str, str]:
        """The names of the query axis and the key axis of a call."""
        _, Q, K = call.shape
        if "windows" in call.notes:
            return self._windows(Q, call.notes["windows"]), self._windows(K, call.notes["windows"])
        queries = self._named(Q, call.name)
        if not call.aligned:  # keys of another text, the likeliest first
            return queries, self._named(K, "", sorted(self.known, key=lambda name: name == queries))
        return queries, queries if Q == K else self._named(K, call.name)

    def of_layer(self, name: str, size: int) -> Axis:
        """The axis of the rows of a layer, if they are as many as this."""
        return self.used[self._named(size, name)]

    def _preferred(self, words: str) -> list[str]:
        """The names of the axes, the likeliest first."""
        names = list(self.known)
        if self.patches is not None and len(names) > 1:
            seeing = any(word in words for word in VISION)
            return sorted(names, key=lambda name: (name == "patches") != seeing)
        if "target" in names:
            reading = "encoder" in words and "decoder" not in words
            return sorted(names, key=lambda name: (name == "target") == reading)
        return names

    def _windows(self, size: int, count: int) -> str:
        """An axis of positions within windows; the windows are concatenated."""
        name = f"{counted(count, 'window')} of {size // count}"
        words = [f"{window}:{place}" for window in range(count) for place in range(size // count)]
        self.used.setdefault(name, Axis.of(words, name=name))
        return name

    def _named(self, size: int, layer: str, preferred: Sequence[str] = ()) -> str:
        words = layer.lower()
        if self.patches is not None and "patches" not in self.known and (axis := self.patches.axis(size)) is not None:
            self.known["patches"] = self.used["patches"] = axis
            return "patches"
        for name in preferred or self._preferred(words):
            if len(self.known[name]) == size:
                self.used[name] = self.known[name]
                return name
        of = [f"of the {sense}" for sense, marks in SENSES.items() if any(mark in words for mark in marks)]
        name = " ".join([counted(size, "position"), *of[:1]])
        self.used.setdefault(name, Axis.of(size, name=name))
        return name


VALUES = 64_000_000  # bytes: up to this size v, x and out are stored unless `values` is set
MATRICES = 256_000_000  # bytes: the matrices of the layers stay with the run up to this size


@dataclass(frozen=True)
class RecordingOptions:
    """Which calls to record, and where to store them.

    layers: numbers or name patterns · entry: the batch entry · values: whether v, x and out are stored; None stores
    them if they are small · limit: the most bytes · into, overwrite: the folder that calls are written to one by one ·
    measures: own sets of keys · effects: of `regard.effects` for the same input · hashed: whether the facts have the
    hash of the weights, which is read from all of them · matrices: the most bytes of the matrices of the layers that
    stay with the run · most: `limit` in bytes.
    """

    layers: Sequence[int | str] | None = None
    entry: int = 0
    values: bool | None = None
    limit: int | str = "2GB"
    into: str | Path | None = None
    overwrite: bool = False
    measures: Mapping[str, Expr] = field(default_factory=dict)
    effects: Effects | None = None
    hashed: bool = True
    matrices: int = field(default_factory=lambda: MATRICES)
    most: int = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "most", size_of(self.limit, "look"))
        if isinstance(self.entry, bool) or not isinstance(self.entry, int) or self.entry < 0:
            raise refuse(
                "look",
                "entry is not a batch entry",
                f"entry={self.entry!r}",
                "an integer, counted from 0",
                "leave it out for the first",
            )

    def selects(self, name: str, number: int | None) -> bool:
        return self.layers is None or any(fits(part, name, number) for part in self.layers)


@dataclass(eq=False)
class Keeper:
    """Stores calls in the order in which they are made.

    alike: how many calls will have the size of the first call of a layer; it predicts the size of the run · rows: the
    number of rows once passes are joined, 0 for a single pass · unselected: the names of layers that are not selected ·
    left_out: calls that cannot be stored, with the reason.
    """

    options: RecordingOptions
    axes: Axes
    alike: Callable[[str], int]
    rows: int = 0
    writer: Writer | None = None
    calls: list[Call] = field(default_factory=list)
    growing: dict[tuple[str, int], Growing] = field(default_factory=dict)
    names: set[tuple[str, int | None]] = field(default_factory=set)
    held: int = 0
    matrices: int = 0
    values: bool | None = None
    unselected: set[str] = field(default_factory=set)
    left_out: list[dict[str, str]] = field(default_factory=list)

    def add(self, call: Call, weights: np.ndarray | None = None, nth: int = 0) -> None:
        """Stores an admitted call; during generation it is stored once the later passes are joined to it.

        weights (H, Q, K): the model's own, if it computes them · nth: the number of the call in its layer and pass.
        """
        self.names.add((call.name, call.layer))
        if not self.rows:
            self._keep(call, weights)
        elif (call.name, nth) in self.growing:
            self.growing[call.name, nth].add(call, weights)
        else:
            self.growing[call.name, nth] = Growing(call, weights)

    def run(self, name: str, text: str, steps: Sequence[Step], more: dict[str, Any]) -> Run:
        """The run of all stored calls. Refused: no calls, or none of a selected layer."""
        for each in self.growing.values():
            self._keep(*each.joined())
        self._complain(name)
        known = {**facts(), **more, "entry": self.options.entry, "left_out": self.left_out, "values": bool(self.values)}
        if unknown := [each for each in self.calls if UNKNOWN in each.notes]:
            known[f"{UNKNOWN}s"] = [{"call": each.name, "reason": each.notes[UNKNOWN]} for each in unknown]
        if self.options.effects is not None:
            known["effects"] = self.options.effects.fact
        if self.options.layers is not None:
            known["layers"] = list(self.options.layers)
        if self.writer is not None:
            return self.writer.finish(name, text, self.axes.used, steps, known)
        return Run(name, text, self.axes.used, tuple(self.calls), tuple(steps), known)

    def _keep(self, call: Call, weights: np.ndarray | None) -> None:
        queries, keys = self.axes.place(call)
        axis = self.axes.used[keys]
        sets = of_tokens(axis, self.options.measures) if queries == keys else {}
        placed = dataclasses.replace(call, queries=queries, keys=keys)
        call = completed(placed, weights, np.array(axis.special), bool(self.values), sets)
        if self.writer is None:
            self.calls.append(self._with_matrices(call))
        else:
            self.calls.append(self.writer.add(dataclasses.replace(call, projections=None)))

    def _with_matrices(self, call: Call) -> Call:
        """The call with copies of the matrices of its layer, or why it has none."""
        if call.projections is None:
            return call
        self.matrices += call.projections.nbytes
        fits_in = self.matrices <= self.options.matrices
        found = call.projections.copied() if fits_in else LayerProjections(missing=dict.fromkeys(NAMES, TOO_MANY))
        return dataclasses.replace(call, projections=found)

    def admit(self, call: Call) -> None:
        """Refuses before the memory or the disk is full: from the first call on, by the predicted size of the run."""
        if self.values is None:
            times = max(1, self.alike(call.name)) * max(1.0, self.rows / max(call.shape[1], 1))
            self.values = self.options.values
            if self.values is None:
                self.values = stored_bytes(call, True) * times <= min(VALUES, self.options.most)
            self._check(call, int(stored_bytes(call, self.values) * times), "about ")
        self.held += stored_bytes(call, self.values)
        self._check(call, self.held, "more than ")

    def _check(self, call: Call, size: int, word: str) -> None:
        """Refuses a run of this size if it is larger than the limit."""
        if size <= self.options.most:
            return
        _, Q, K = call.shape
        fix = "choose layers, as in layers=[0, 5], or raise limit="
        raise refuse(
            "look",
            "the run would be larger than the limit",
            f"{word}{shown(size)}: {shown(stored_bytes(call, bool(self.values)))} for {call.name} with "
            f"{counted(Q, 'row')} and {counted(K, 'key')}",
            f"at most {shown(self.options.most)}",
            fix + (", or pass values=False" if self.values else ""),
        )

    def _complain(self, name: str) -> None:
        seen = self.names | {(each["call"].split(": ")[0], None) for each in self.left_out}
        reasons = []
        for part in self.options.layers or ():
            if not any(fits(part, *each) for each in seen):
                others = ", ".join(sorted(self.unselected | {each for each, _ in seen})[:8])
                reasons.append(
                    Reason(
                        "no such layer",
                        f"{part!r}",
                        f"a number, a name or a pattern such as '*.attn', of: {others}",
                        "choose among these",
                    )
                )
        if (effects := self.options.effects) is not None and self.calls:
            texts = [axis.tokens for axis in self.axes.known.values() if axis.grid is None or axis.image]
            numbered = Axis.of(len(effects.tokens)).tokens  # of a module, whose tokens are not known
            blocks = tuple(f"{layer}." for layer in effects.layers)  # or layers
            if not any(f"{each.name}.".startswith(blocks) for each in self.calls) or (
                texts and effects.tokens not in (*texts, numbered)
            ):
                given = f"layers {', '.join(effects.layers)[:80]}, tokens {' '.join(effects.tokens)[:80]}"
                expected = "effects of the same model, layers and text"
                reasons.append(Reason("effects of something else", given, expected, "compute them with regard.effects"))
        for axis in set(self.axes.needed) - set(self.axes.used) if self.calls else ():
            sizes = " or ".join(sorted(self.axes.used))
            reasons.append(
                Reason(
                    "the tokens fit no call",
                    f"{len(self.axes.known[axis])} tokens",
                    sizes,
                    "pass one token for every row or key",
                )
            )
        if not self.calls and not reasons:
            why = "; ".join(sorted({each["reason"] for each in self.left_out})) or UNSEEN
            reasons.append(
                Reason(
                    "no attention calls",
                    f"{name}: {why}",
                    "attention through regard, torch or the attention interface of transformers, or a softmax "
                    "between two matrix products",
                    "pass the weights themselves with weights=",
                )
            )
        if reasons:
            raise Refused("look", reasons)


TOO_MANY = f"the matrices of all recorded layers have more than {shown(MATRICES)}: record fewer layers"
UNSEEN = "no attention call was observed"


def fits(part: int | str, name: str, number: int | None) -> bool:
    """Whether `part`, a number or a pattern, selects the layer of this name and number."""
    return part == number if isinstance(part, int) else fnmatch.fnmatchcase(name, part)


def layer_selection(
    layers: Sequence[int | str] | int | str | None, where: str = "look"
) -> tuple[int | str, ...] | None:
    """The numbers and names of the selected layers; None selects all. Refused: anything else."""
    if layers is None:
        return None
    listed = (layers,) if isinstance(layers, int | str) else tuple(layers)
    wrong = [part for part in listed if isinstance(part, bool) or not isinstance(part, int | str)]
    if wrong or not listed:
        raise refuse(
            where,
            "layers is not a selection of layers",
            f"layers={layers!r}",
            "numbers, names, or patterns such as '*.attn'",
            "leave it out for all layers",
        )
    return listed


@contextlib.contextmanager
def keeping(options: RecordingOptions, axes: Axes, alike: Callable[[str], int], rows: int = 0) -> Iterator[Keeper]:
    """A keeper that writes into `options.into`, if set; after an error the incomplete files are removed."""
    keeper = Keeper(options, axes, alike, rows)
    if options.into is None:
        yield keeper
        return
    with Writer(options.into, options.most, overwrite=options.overwrite) as keeper.writer:
        yield keeper


def facts() -> dict[str, Any]:
    """The versions of the imported libraries, the date, and how exact the numbers are."""
    names = ("regard", "numpy", "torch", "transformers")
    found = {name: getattr(sys.modules[name], "__version__", "") for name in names if name in sys.modules}
    return {
        "versions": {"python": platform.python_version(), **found},
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "exact": "figures and lse are sums over all keys",
    }


def hash_of(weights: Iterable[tuple[str, str, np.ndarray]]) -> str:
    """SHA-256 of weights (name, dtype, array), sorted by name: names, dtypes, shapes and bytes."""
    found = hashlib.sha256()
    for name, dtype, array in sorted(weights, key=lambda weight: weight[0]):
        found.update(f"{name} {dtype} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def unmeasured(name: str, layer: int | None, cross: bool = False, **fields: Any) -> Call:
    """A call from its q, k and rules, before its axes are named and its figures are computed. cross: whether its keys
    are of another text than its rows.
    """
    return Call(name, layer, queries="", keys="another text" if cross else "", lse=UNMEASURED, **fields)


def stored_bytes(call: Call, values: bool) -> int:
    """The bytes of the completed call, including its figures."""
    H, Q, K = call.shape
    held = [call.q, call.k, call.sinks, *((call.v, call.x, call.out) if values else ())]
    numbers = 4 * H * ((len(ROWS) + 2) * Q + 2 * K + 2 * min(figures.CELLS, Q) * min(figures.CELLS, K))
    return numbers + sum(part.nbytes for part in held if part is not None)


def completed(
    call: Call, weights: np.ndarray | None, special: np.ndarray, values: bool, sets: Mapping[str, Expr]
) -> Call:
    """The call, whose axes are known, with its figures, compared with the output and the weights of the model.

    special (K,): special tokens · sets: further sets of keys.
    """
    call = _measured(call, weights, special, sets)
    call = dataclasses.replace(call, notes={**call.notes, **checked(call)})
    if call.projections is not None and (why := call.projections.missing.get("o")):
        call = dataclasses.replace(call, notes={**call.notes, UNKNOWN: why})
    return call if values else dataclasses.replace(call, v=None, x=None, out=None, projections=None)


def _measured(call: Call, weights: np.ndarray | None, special: np.ndarray, sets: Mapping[str, Expr]) -> Call:
    """The call with its figures. If the rules do not reproduce the weights of the model, the weights are stored."""
    why = call.notes.get("unread")
    w_o = None if call.projections is None or call.projections.o is None else call.projections.o.w
    if why is None:
        found = figures.with_figures(call, special, sets, w_o)
        if weights is None or _gives(found, weights):
            return found
        if call.sinks is None and (sinks := _constant(found, weights)) is not None:
            return _measured(dataclasses.replace(call, sinks=sinks), weights, special, sets)
        why = "the recorded rules do not reproduce the weights that the model used"
    notes = {**call.notes, "unread": why}
    bare = dataclasses.replace(call, q=None, k=None, score=None, scale=1.0, sinks=None, given=weights, notes=notes)
    return figures.with_figures(bare, special, sets, w_o)


def _constant(call: Call, weights: np.ndarray) -> np.ndarray | None:
    """The logarithm (H, 1) of what is added to the sum of a softmax, where weights (H, Q, K) sum to less than 1 by one
    number for every row of a head, such as the 1 of softmax₁; None without one.
    """
    share = np.asarray(weights, np.float64).sum(-1)
    with np.errstate(all="ignore"):
        numbers = call.lse + np.log((1 - share) / share)
    near = bool(np.isfinite(numbers).all()) and np.ptp(numbers, axis=1).max() <= ROUNDING
    return numbers.mean(1, keepdims=True) if near else None


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
