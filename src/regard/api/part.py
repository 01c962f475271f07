"""Attention over some of the keys, before the division by the denominator, and how such parts merge into a call."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, SupportsFloat, SupportsIndex, overload

import numpy as np

from ..common.arrays import device_of, elsewhere, is_tensor, like, read_array
from ..common.compiled import outside_programs
from ..common.dtypes import FLOATS
from ..common.errors import Reason, Refused, refuse
from ..common.public import ArrayLike, ArrayT
from ..engines import dispatch
from ..language.callables import Mask, Score
from ..language.checks.arguments import Arguments, checked_sinks
from ..language.checks.arrays import refuse_gradients
from ..language.problem import Problem


@dataclass(frozen=True, eq=False, repr=False)
class Part(Generic[ArrayT]):
    """Attention of some rows over some keys, undivided: the result of `attention_part`, and of `merge`.

    m = max s,  l = Σ exp(unit · (s - m)),  O = Σ exp(unit · (s - m)) · v;  then out = O / l and lse = unit · m + ln l

    It holds E + 2 numbers per row and head, whatever the number of keys, and is what has to be sent from where keys
    are stored to where the result is needed.

    Args:
        maximum: m, (…, H, Q), the largest s; −inf in a row that attends to no key.
        total: l, (…, H, Q); 0 in such a row.
        values: O, (…, H, Q, E).
        unit: what converts s to nats. Without a score and with a positive scale, s is q·k and the unit is the scale;
            otherwise s is the score and the unit is 1.
        dtype: the name of the dtype of q, k and v. m, l and O are float32, and float64 for float64.

    Raises:
        Refused: arrays, a unit or a dtype that do not belong to one part.

    Examples:
        >>> import numpy as np, regard as rg
        >>> part = rg.attention_part(*np.zeros((3, 8, 64, 16), np.float32), mask=rg.causal())
        >>> part
        Part(rows [8, 64], depth 16, float32)
        >>> part.total[0, :3]
        array([1., 2., 3.], dtype=float32)
    """

    maximum: ArrayT
    total: ArrayT
    values: ArrayT
    unit: float
    dtype: str

    def __post_init__(self) -> None:
        arrays = self.maximum, self.total, self.values
        row = FLOATS.get(self.dtype) if isinstance(self.dtype, str) else None
        unit = self.unit if isinstance(self.unit, float | int | np.number) else math.nan
        real = all(hasattr(each, "shape") and hasattr(each, "dtype") for each in arrays)
        shapes = [list(each.shape) for each in arrays] if real else []
        kinds = {str(each.dtype).removeprefix("torch.") for each in arrays} if real else set()
        fit = real and row is not None and shapes[0] == shapes[1] == shapes[2][:-1] != [] and kinds == {row.sums}
        if not fit or not 0 < unit < math.inf:
            names = "maximum", "total", "values"
            given = [f"{name} {shape}" for name, shape in zip(names, shapes)]
            given += (
                [f"dtypes {', '.join(sorted(kinds))}"] if real else [", ".join(type(each).__name__ for each in arrays)]
            )
            raise refuse(
                "Part",
                "these do not belong to one part",
                f"{', '.join(given)}; unit {self.unit!r}, dtype {self.dtype!r}",
                f"arrays (…, H, Q), (…, H, Q) and (…, H, Q, E) of {row.sums if row else 'float32'}; "
                f"a positive unit; dtype one of {', '.join(FLOATS)}",
                "keep what attention_part returned as it is, also when it is sent to another process",
            )
        object.__setattr__(self, "unit", float(unit))

    def __repr__(self) -> str:
        *rows, depth = self.values.shape
        return f"Part(rows {rows}, depth {depth}, {self.dtype})"

    @outside_programs
    def result(self, sinks: ArrayLike | None = None) -> tuple[ArrayT, ArrayT]:
        """Divides: out and lse of attention over the keys of this part.

        out = O / L,  lse = unit · m + ln L,  L = l + Σ exp(sink - unit · m)

        Args:
            sinks: extra logits in the denominator, (H,) or (H, n). They belong to all keys, so they are given here.

        Returns:
            out (…, H, Q, E) in the dtype of the call, and lse (…, H, Q) in nats.

        Raises:
            Refused: sinks that do not fit the heads, and tensors that require gradients.

        Examples:
            >>> import numpy as np, regard as rg
            >>> q = k = v = np.ones((8, 64, 16), np.float32)
            >>> out, lse = rg.attention_part(q, k, v).result(sinks=np.zeros(8, np.float32))
            >>> out.shape, lse.shape
            ((8, 64, 16), (8, 64))
        """
        reasons: list[Reason] = []
        state, lead = _state(self)
        checked = checked_sinks(sinks, state[0].shape[1], reasons)
        refuse_gradients("sinks", sinks, reasons)
        _refuse_gradients("the part", self, reasons)
        if reasons:
            raise Refused("Part.result", reasons)
        out, lse = dispatch.divide(state, self.unit, checked, FLOATS[self.dtype].numpy)
        return like(self.values, out.reshape(*lead, out.shape[3])), like(self.values, lse.reshape(lead))


@outside_programs
def attention_part(
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    *,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    query_start: SupportsIndex | ArrayLike | None = None,
    batch_start: SupportsIndex | None = None,
    head_start: SupportsIndex | None = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
) -> Part[ArrayT]:
    """Attention over some of the keys, to be merged with that over the others by `merge`.

    m = max s,  l = Σ exp(s - m),  O = Σ exp(s - m) · v;  `Part` says in which unit s is

    Sums over keys are a binary tree over pieces of 1024 positions (law 11). So the merged result is bit-identical to a
    single call if part i covers the keys from i · size to (i + 1) · size, where size is 1024 · 2ⁿ: begin with position
    0, and keep parts without keys. Parts between any other borders agree to a rounding.

    In each call, keys count from 0. A process that stores some of the keys passes arrays in which they are at their
    positions; rows of k and v that no query attends to are not read, so they may be uninitialized.

    Args:
        q: (…, H, Q, D) queries, as for `attention`.
        k: (…, G, K, D) keys.
        v: (…, G, K, E) values.
        mask: which keys a row may attend to, as for `attention`; `(rg.key >= first) & (rg.key < last)` selects those
            of a part; the others are not visited.
        score: changes the logits, as for `attention`.
        scale: the factor of q·k, by default 1/√D.
        query_start: the position of the first row on the key axis, by default K - Q.
        batch_start: the number of the first batch entry in a larger call, as for `attention`.
        head_start: the number of the first query head in a larger call, as for `attention`.
        dropout: the rate at which weights are dropped.
        seed: an integer in [0, 2**64), required with dropout.

    Returns:
        A `Part`. Sinks are given to `Part.result`, because they belong to all keys.

    Raises:
        Refused: as for `attention`; also tensors that require gradients or are not on the CPU, and arrays of depth 0.

    Source:
        Milakov and Gimelshein 2018 (softmax of parts); Shyam et al. 2024 (decoding by a tree of parts).

    Examples:
        >>> import numpy as np, regard as rg
        >>> q, k, v = np.random.default_rng(0).standard_normal((3, 8, 4096, 16), dtype=np.float32)
        >>> q = q[:, -1:]
        >>> parts = [rg.attention_part(q, k, v, mask=half) for half in (rg.key < 2048, rg.key >= 2048)]
        >>> out, lse = rg.merge(parts).result()
        >>> bool((out == rg.attention(q, k, v)).all())
        True
    """
    if elsewhere(q):
        raise refuse(
            "attention_part",
            "parts are computed on the CPU only",
            f"a tensor on {device_of(q)}",
            "arrays or tensors in CPU memory",
            "use attention_with_lse, and merge its pairs (out, lse)",
        )
    arguments = Arguments(mask, score, scale, query_start, None, dropout, seed, batch_start, head_start)
    problem: Problem = Problem.of(q, k, v, **arguments._asdict(), where="attention_part")
    state, unit = dispatch.attend_partly(problem)
    return _part(state, (*problem.lead, problem.dims["Q"]), unit, problem.dtype.name, q)


def merged(parts: list[Part]) -> Part:
    """The part over all keys of these parts, merged as a binary tree of them."""
    reasons: list[Reason] = []
    for number, part in enumerate(parts):
        _refuse_gradients(f"part {number}", part, reasons)
    for what, found, expected in (
        ("shape", [tuple(part.values.shape) for part in parts], "the same rows of the same heads"),
        ("dtype", [part.dtype for part in parts], "parts of one call"),
        ("kind", ["tensors" if is_tensor(part.values) else "arrays" for part in parts], "all arrays or all tensors"),
        ("unit of their scores", [part.unit for part in parts], "parts with the same scale, all or none with a score"),
    ):
        different = dict.fromkeys(map(str, found))
        if len(different) > 1:
            given = ", ".join(different)
            fix = "compute every part with the same arguments, except for its mask, k and v"
            reasons.append(Reason(f"the parts differ in {what}", given, expected, fix))
    if reasons:
        raise Refused("merge", reasons)
    states = [_state(part)[0] for part in parts]
    first = parts[0]
    state = dispatch.merge_states(states, first.unit)
    return _part(state, tuple(first.maximum.shape), first.unit, first.dtype, first.values)


def _refuse_gradients(name: str, part: Part, reasons: list[Reason]) -> None:
    """Appends a reason if one of the arrays of a part requires gradients."""
    arrays = part.maximum, part.total, part.values
    refuse_gradients(name, next((each for each in arrays if getattr(each, "requires_grad", False)), None), reasons)


def _state(part: Part) -> tuple[tuple[np.ndarray, ...], tuple[int, ...]]:
    """The arrays of a part with axes (B, H, Q), and their leading axes as the caller has them."""
    lead = tuple(part.maximum.shape)
    heads, rows = (1, 1, *lead)[-2:]
    arrays = [read_array(each, "Part") for each in (part.maximum, part.total, part.values)]
    shape = (int(np.prod(lead[:-2])), heads, rows)
    return (*(each.reshape(shape) for each in arrays[:2]), arrays[2].reshape(*shape, part.values.shape[-1])), lead


def _part(state: tuple[np.ndarray, ...], lead: tuple[int, ...], unit: float, dtype: str, given: Any) -> Part:
    """A part of arrays in the type of `given`."""
    maximum, total, values = (like(given, array) for array in state)
    depth = values.shape[-1]
    return Part(maximum.reshape(lead), total.reshape(lead), values.reshape(*lead, depth), unit, dtype)


@overload
def merge(parts: Iterable[Part[ArrayT]]) -> Part[ArrayT]: ...


@overload
def merge(parts: Iterable[tuple[ArrayT, ArrayT]]) -> tuple[ArrayT, ArrayT]: ...


@outside_programs
def merge(parts: Iterable[Any]) -> Any:
    """Attention over all keys, from the results for disjoint sets of keys.

    lse = ln Σ exp(lseᵢ),  out = Σ exp(lseᵢ - lse) · outᵢ;  of parts (m, l, O):  m = max mᵢ,  l = Σ exp(mᵢ - m) · lᵢ,
    O = Σ exp(mᵢ - m) · Oᵢ

    Sums are a binary tree over the parts in the given order: 0 and 1, 2 and 3, …, then pairs of these, and so on. Pairs
    (out, lse) of `attention_with_lse` are summed in float64 and rounded once; their order changes the rounding only.
    Parts of `attention_part` are summed by a compiled kernel with the operations of attention itself; see there for
    which parts are bit-identical to a single call. All parts must have the same q, scale and score, which merge cannot
    check.

    A pair without allowed keys (lse −∞) has no effect, whatever its out contains; a NaN or infinity that was attended
    to propagates. Tensors that require gradients get them, from pairs. Pass sinks to one pair only: every lse includes
    the sinks of its call, so merging would count them again; with parts, pass them to `Part.result`.

    Args:
        parts: pairs of out (…, H, Q, E) and lse (…, H, Q) in nats, as `attention_with_lse` returns them; or results of
            `attention_part` in the order of their keys. All NumPy arrays or all torch tensors.

    Returns:
        out (…, H, Q, E) and lse (…, H, Q) in the types and dtypes of the pairs; or a `Part`.

    Raises:
        Refused: `parts` is empty, or its members differ in shape, dtype or kind. Every problem is listed.

    Source:
        Milakov and Gimelshein 2018 (softmax of parts); Dao et al. 2023 (decoding over parts of the keys).

    Examples:
        >>> import numpy as np, regard as rg
        >>> q, k, v = np.random.default_rng(0).standard_normal((3, 8, 64, 16))
        >>> first = rg.attention_with_lse(q, k[:, :40], v[:, :40])
        >>> rest = rg.attention_with_lse(q, k[:, 40:], v[:, 40:])
        >>> out, lse = rg.merge([first, rest])
        >>> bool(np.allclose(out, rg.attention(q, k, v)))
        True
    """
    if isinstance(parts, Part) or not isinstance(parts, Iterable):
        raise refuse(
            "merge",
            "this is not a list of parts",
            type(parts).__name__,
            "one or more pairs (out, lse), or results of attention_part",
            "put them in a list",
        )
    pairs: list[Any] = list(parts)
    if pairs and all(isinstance(each, Part) for each in pairs):
        return merged(pairs)
    _check(pairs)
    out, lse = pairs[0]
    if is_tensor(out):
        import torch

        found = _merged(torch, [tuple(array.to(torch.float64) for array in pair) for pair in pairs])
        return found[0].to(out.dtype), found[1].to(lse.dtype)
    with np.errstate(all="ignore"):
        found = _merged(np, [tuple(np.asarray(array).astype(np.float64) for array in pair) for pair in pairs])
        return found[0].astype(np.asarray(out).dtype), found[1].astype(np.asarray(lse).dtype)


def _merged(library, parts) -> tuple[Any, Any]:
    """The merge in float64, with functions that NumPy and torch both have."""
    top = parts[0][1]
    for _, lse in parts[1:]:
        top = library.maximum(top, lse)
    nothing = top == -np.inf
    top = library.where(nothing, 0.0, top)  # −∞ − (−∞) would be NaN
    sums = []
    for out, lse in parts:
        empty = lse == -np.inf
        # Replaced before the exponential too: gradients are computed for both branches of a where.
        share = library.where(empty, 0.0, library.exp(library.where(empty, 0.0, lse) - library.where(empty, 0.0, top)))
        values = library.where(empty[..., None], 0.0, out)
        # An infinity whose share rounds to 0 was attended to, and must propagate.
        sums.append((library.where(library.isfinite(values), share[..., None] * values, values), share))
    while len(sums) > 1:
        pairs = [(one[0] + other[0], one[1] + other[1]) for one, other in zip(sums[::2], sums[1::2])]
        sums = pairs + sums[2 * len(pairs) :]
    weighted, total = sums[0]
    total = library.where(nothing, 1.0, total)
    return weighted / total[..., None], library.where(nothing, -np.inf, top + library.log(total))


def _check(parts: list) -> None:
    """Raises `Refused` with every reason why the parts cannot be merged."""
    if not parts:
        raise refuse(
            "merge",
            "parts is empty",
            "an empty list",
            "one or more pairs (out, lse)",
            "pass results of attention_with_lse, or of attention_part",
        )
    reasons = []
    if any(isinstance(part, Part) for part in parts):
        which = [str(number) for number, part in enumerate(parts) if isinstance(part, Part)]
        reasons.append(
            Reason(
                "parts and pairs (out, lse) cannot be merged with each other",
                f"results of attention_part at {', '.join(which)} of {len(parts)}",
                "one kind",
                "merge the parts first, and pass the pair that Part.result returns",
            )
        )
    kinds = set()
    for number, part in enumerate(parts):
        if isinstance(part, Part):
            continue
        pair = isinstance(part, tuple | list) and len(part) == 2
        if not pair or not all(hasattr(array, "shape") and hasattr(array, "dtype") for array in part):
            reasons.append(
                Reason(
                    f"part {number} is not a pair of arrays",
                    type(part).__name__,
                    "(out, lse)",
                    "pass results of attention_with_lse",
                )
            )
            continue
        out, lse = part
        kinds.add(tuple(f"{'a tensor' if is_tensor(array) else 'an array'} of {array.dtype}" for array in part))
        if any("float" not in str(array.dtype) for array in part):
            reasons.append(
                Reason(
                    f"part {number} is not floating-point",
                    f"out {out.dtype}, lse {lse.dtype}",
                    "floats",
                    "pass results of attention_with_lse",
                )
            )
        if tuple(out.shape[:-1]) != tuple(lse.shape) or not out.shape:
            reasons.append(
                Reason(
                    f"part {number}: lse does not fit out",
                    f"out {tuple(out.shape)}, lse {tuple(lse.shape)}",
                    f"lse {tuple(out.shape[:-1])}: one number per row",
                    "pass both results unchanged",
                )
            )
    shapes = {tuple(part[0].shape) for part in parts} if not reasons else set()
    if len(shapes) > 1:
        reasons.append(
            Reason(
                "the parts differ in shape",
                ", ".join(map(str, sorted(shapes))),
                "the same rows of the same heads",
                "broadcast the shared parts: np.broadcast_to(out, …)",
            )
        )
    if len(kinds) > 1:
        shown = "; ".join(sorted(f"out {out}, lse {lse}" for out, lse in kinds))
        reasons.append(
            Reason("the parts differ in dtype or kind", shown, "the same for all parts", "convert them first")
        )
    if reasons:
        raise Refused("merge", reasons)
