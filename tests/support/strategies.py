"""Hypothesis strategies that draw valid problems: any shape, stride, mask, score, start and sinks that attention must
take.

A test says `@given(problems())` and calls `rg.attention(**case.kwargs)`; a failing case prints itself.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import regard as rg
from regard.language.expr import Expr, Var, lift


@dataclass(frozen=True)
class Dims:
    B: int
    G: int
    H: int
    Q: int
    K: int
    D: int
    E: int


@dataclass(frozen=True)
class Case:
    """The arguments of one call of attention, and how they were laid out in memory."""

    kwargs: dict[str, Any]
    layout: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        def shown(name, value):
            if not isinstance(value, np.ndarray):
                return repr(value)
            return f"{value.dtype} {list(value.shape)} {self.layout.get(name) or value.ravel()[:8].tolist()}"

        lines = [f"{name}: {shown(name, value)}" for name, value in self.kwargs.items() if value is not None]
        return "Case(\n  " + "\n  ".join(lines) + "\n)"

    def _repr_pretty_(self, printer, cycle) -> None:
        """Hypothesis would print every number."""
        printer.text(repr(self))


# ---- arrays ----------------------------------------------------------------------------------------------------------

LAYOUTS = ("plain", "transposed", "fortran", "sliced", "negative", "broadcast", "misaligned")


def among(*options):
    return st.sampled_from(options)


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """The same numbers (the first of them repeated, for "broadcast") with other strides or another alignment."""
    if layout == "transposed":  # rows in front of heads, as a projection leaves them
        return array.swapaxes(-2, -3).copy().swapaxes(-2, -3) if array.ndim > 2 else array.T.copy().T
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "sliced":  # every second element of an array that is NaN between
        wide = np.full([2 * size for size in array.shape], np.nan, array.dtype)
        every_second = wide[(slice(None, None, 2),) * array.ndim]
        every_second[...] = array
        return every_second
    if layout == "negative":
        backwards = (slice(None, None, -1),) * array.ndim
        return array[backwards].copy()[backwards]
    if layout == "broadcast":
        axis = 0 if array.shape[0] > 1 else array.ndim - 2
        return np.broadcast_to(array.take([0], axis), array.shape) if array.shape[axis] else array
    if layout == "misaligned":
        room = np.zeros(array.nbytes + 1, np.uint8)
        shifted = room[1:].view(array.dtype).reshape(array.shape)
        shifted[...] = array
        return shifted
    return array


layouts = st.sampled_from(LAYOUTS)


@st.composite
def normal(draw, shape, dtype) -> np.ndarray:
    """Normal numbers from a drawn seed: the shape shrinks, the noise does not have to."""
    return np.random.default_rng(draw(st.integers(0, 999))).standard_normal(shape).astype(dtype)


@st.composite
def whole(draw, shape, most: int) -> np.ndarray:
    """Integers in 0 … most."""
    return np.random.default_rng(draw(st.integers(0, 999))).integers(0, most + 1, shape)


@st.composite
def broadcastable(draw, dims: Dims) -> tuple[int, ...]:
    """A shape that broadcasts to (B, H, Q, K) and has an element, with any number of leading axes left out."""
    full = [max(size, 1) for size in (dims.B, dims.H, dims.Q, dims.K)]
    shape = [draw(among(1, size)) for size in full]
    return tuple(shape[draw(st.integers(0, 2)) :])


# ---- integer expressions ---------------------------------------------------------------------------------------------

POSITIONS = (rg.query, rg.key, rg.query, rg.key, rg.batch, rg.head)


def integers(dims: Dims, depth: int = 2) -> st.SearchStrategy[Expr]:
    """An integer rule over positions; values stay small, so that 32 bits hold them."""
    position = among(*POSITIONS)
    if depth == 0:
        return position | st.integers(-5, 40).map(lift)
    x, divisor = integers(dims, depth - 1), among(1, 2, 3, 5, 8, 16, -2, -3)
    return st.one_of(
        position,
        st.just(rg.query - rg.key),
        st.builds(operator.add, x, x),
        st.builds(operator.mul, st.integers(-3, 3), x),
        st.builds(operator.floordiv, x, divisor),
        st.builds(operator.mod, x, divisor),
        x.map(abs),
        st.builds(lambda x, low, size: rg.clip(x, low, low + size), x, st.integers(-4, 8), st.integers(0, 20)),
        st.builds(rg.where, comparisons(dims, depth - 1), x, x),
        st.builds(clamping, st.integers(1, 12).flatmap(lambda size: whole(size, 6)), st.just("lookup"), x),
    )


def clamping(array: np.ndarray, name: str, x: Expr) -> Expr:
    """A read of a short array; only a plain position has to say that it may lie beyond the last entry."""
    return rg.table(array, name)[rg.clip(x, 0, len(array) - 1) if isinstance(x, Var) else x]


# ---- masks -----------------------------------------------------------------------------------------------------------


@st.composite
def comparisons(draw, dims: Dims, depth: int = 2) -> Expr:
    """x < y and its five sisters over integers, sometimes over a float table."""
    x, y = draw(integers(dims, depth)), draw(integers(dims, depth))
    if draw(st.integers(0, 7)) == 0:
        x, y = clamping(draw(normal(5, np.float32)), "height", x), 0.1
    sign = draw(among("lt", "le", "gt", "ge", "eq", "ne"))
    return getattr(lift(x), f"__{sign}__")(y)


def factories(dims: Dims) -> st.SearchStrategy[Expr]:
    """One of the masks that regard names."""
    small, keys = st.integers(1, 12), max(dims.K, 1)
    per_batch = st.integers(0, 40) | whole((dims.B,), 40)
    counts = st.lists(st.integers(0, 15), max_size=5)
    ids = among((keys,), (dims.B, keys)).flatmap(lambda shape: whole(shape, 3))
    lead = among((), (dims.H,), (dims.B, dims.H), (dims.B, 1))
    cells = st.builds(lambda lead, rows, columns: (*lead, rows, columns), lead, small, small)
    return st.one_of(
        st.builds(rg.everything),
        st.builds(rg.causal),
        st.builds(rg.window, st.none() | small, st.none() | st.integers(0, 6)),
        st.builds(rg.prefix, per_batch),
        st.builds(rg.documents, ids | ids.map(np.sort)),
        counts.map(lambda counts: rg.documents(lengths=[*counts, max(dims.K - sum(counts), 0)])),
        st.builds(rg.lengths, per_batch, st.none() | per_batch),
        st.builds(rg.dilated, small),
        st.builds(rg.strided, small),
        st.builds(rg.global_tokens, st.integers(0, 4) | st.lists(st.integers(0, 30), max_size=3)),
        st.builds(
            rg.blocks,
            cells.flatmap(lambda shape: whole(shape, 1)).map(lambda cell: cell == 1),
            small | st.tuples(small, small),
        ),
        broadcastable(dims)
        .flatmap(lambda shape: whole(shape, 2))
        .map(lambda seen: rg.dense(seen > 0, dims.K - dims.Q)),
    )


@st.composite
def masks(draw, dims: Dims, depth: int = 2) -> Expr:
    """Masks composed with & | ^ ~ from the factories and from raw comparisons."""
    kind = draw(
        st.sampled_from(("factory", "comparison") if depth == 0 else ("factory", "comparison", "&", "&", "|", "^", "~"))
    )
    if kind == "factory":
        return draw(factories(dims))
    if kind == "comparison":
        return draw(comparisons(dims))
    x = draw(masks(dims, depth - 1))
    if kind == "~":
        return ~x
    y = draw(masks(dims, depth - 1))
    return x & y if kind == "&" else x | y if kind == "|" else x ^ y


# ---- scores ----------------------------------------------------------------------------------------------------------


@st.composite
def offsets(draw, dims: Dims) -> Expr:
    """A number of size about 1 that depends on positions and tables, not on the score."""
    kind = draw(among("table", "heads", "wave", "decay", "slope", "floor", "constant"))
    x = draw(integers(dims, 1))
    if kind == "table":
        return clamping(draw(normal(draw(st.integers(1, 12)), np.float32)), "height", x)
    if kind == "heads":
        return rg.table(draw(normal((dims.H, 6), np.float64)), "per_head")[rg.head, x % 6]
    if kind == "wave":
        return draw(among(rg.sin, rg.cos))(0.3 * x) + rg.atan(rg.to_float(x))
    if kind == "decay":
        return rg.exp2(-0.25 * abs(x)) + rg.exp(-abs(x))
    if kind == "slope":
        return rg.sqrt(1 + abs(x)) / 4 - rg.log(2.0 + abs(x)) + rg.log2(1.0 + abs(x)) / 8
    if kind == "floor":
        return draw(among(rg.floor, rg.ceil, rg.trunc, rg.round_even))((x % 7) / 4) + rg.sign(x)
    return lift(draw(among(0, 1, 0.5, -1.25)))


@st.composite
def bends(draw, x: Expr) -> Expr:
    """A continuous function of a score that keeps its size."""
    return draw(
        among(
            lambda: rg.softcap(3.0, x),
            lambda: 2 * rg.tanh(x),
            lambda: rg.sigmoid(x) * x,
            lambda: rg.relu(x) - 0.1 * x,
            lambda: rg.softplus(x),
            lambda: rg.sqrt(1 + x * x),
            lambda: rg.log1p(abs(x)),
            lambda: rg.sin(x) + rg.cos(x),
            lambda: rg.exp2(rg.clip(x, -3, 2)),
            lambda: rg.expm1(rg.minimum(x, 1.0)),
            lambda: rg.erf(x) + 0.5 * x,
            lambda: rg.where(x > 0, x, 0.25 * x),
            lambda: rg.atan(x),
            lambda: rg.tan(rg.tanh(x)),
            lambda: x / (1 + abs(x)),
            lambda: rg.maximum(x, -1),
            lambda: rg.log(1 + rg.exp(rg.clip(x, -8, 8))),
            lambda: rg.rsqrt(1 + x * x),
            lambda: rg.pow(1.5 + rg.tanh(x), 2.5),
            lambda: x**3 / (1 + x * x),
        )
    )()


@st.composite
def scores(draw, dims: Dims, steps: int = 2) -> Expr:
    """Scores composed from regard's own, from functions of the score and from reads at computed places."""
    x: Expr = rg.score
    for _ in range(draw(st.integers(0, steps))):
        name = draw(
            among("softcap", "alibi", "bias", "gate", "relative", "t5_buckets", "bend", "offset", "scaled", "where")
        )
        if name == "softcap":
            x = rg.softcap(draw(among(1.5, 4.0, 30.0)), x)
        elif name == "alibi":
            x = rg.alibi(draw(among(dims.H, rg.alibi_slopes(dims.H).astype(np.float64) / 3)), x)
        elif name in ("bias", "gate"):
            array = draw(normal(draw(broadcastable(dims)), draw(among(np.float32, np.float64))))
            x = getattr(rg, name)(array, x, query_start=dims.K - dims.Q)
        elif name == "relative":
            lead = draw(among((), (dims.H,)))
            x = rg.relative(draw(normal((*lead, 2 * draw(st.integers(0, 9)) + 1), np.float32)), x)
        elif name == "t5_buckets":
            buckets = draw(normal((draw(among(8, 16, 32)), dims.H), np.float32))
            x = rg.t5_buckets(buckets, bidirectional=draw(st.booleans()), max_distance=draw(among(20, 128)), score=x)
        elif name == "bend":
            x = draw(bends(x))
        elif name == "offset":
            x = x + draw(offsets(dims))
        elif name == "scaled":
            x = x * draw(offsets(dims))
        else:
            x = rg.where(draw(masks(dims, 0)), x, draw(offsets(dims) | bends(x)))
    # A removed key stays removed, so −inf comes last: a function of −inf may be NaN.
    return rg.where(draw(masks(dims, 1)), x, float("-inf")) if draw(st.integers(0, 4)) == 0 else x


# ---- the whole call --------------------------------------------------------------------------------------------------


@st.composite
def problems(draw, dtypes=(np.float32, np.float64), rows: int = 40, depth: int = 70) -> Case:
    """The arguments of one valid call: q, k, v with any layout, a mask, a score, a scale, a start and sinks."""
    count = st.integers(1, 3)
    G = draw(count)
    D, E = (draw(st.integers(1, depth)) for _ in range(2))
    dims = Dims(draw(count), G, G * draw(count), draw(st.integers(0, rows)), draw(st.integers(0, rows)), D, E)
    dtype = draw(st.sampled_from(dtypes))
    shared = draw(st.booleans()) and draw(st.booleans())  # one entry of keys and values for the whole batch
    entries = 1 if shared else dims.B
    shapes = {"q": (dims.B, dims.H, dims.Q, D), "k": (entries, G, dims.K, D), "v": (entries, G, dims.K, E)}
    bare = 2 if dims.B == dims.H == 1 else 3 if dims.B == 1 else 4
    axes = draw(st.integers(bare, 4))
    arrays, layout = {}, {}
    for name, shape in shapes.items():
        layout[name] = draw(layouts)
        arrays[name] = laid_out(draw(normal(shape[4 - axes :], dtype)), layout[name])
    starts = st.integers(-10, 50)
    start = draw(st.none() | st.just(0) | starts | st.lists(starts, min_size=dims.B, max_size=dims.B).map(np.array))
    sink_shape = draw(among(None, (dims.H,), (dims.H, 3)))
    return Case(
        {
            **arrays,
            "mask": draw(st.none() | masks(dims)),
            "score": draw(st.none() | scores(dims)),
            "scale": draw(among(None, 0.5, -0.25, 0.0)),
            "query_start": start,
            "sinks": None if sink_shape is None else draw(normal(sink_shape, dtype)),
        },
        layout,
    )


# ---- what nobody wishes for ------------------------------------------------------------------------------------------

HOSTILE = (np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-30, 1e-40, -0.0)


@st.composite
def hostile(draw, array: np.ndarray) -> np.ndarray:
    """A copy in which some rows hold NaN, infinities, huge numbers or denormals."""
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    bad = rng.random(array.shape[:-1]) < draw(among(0.02, 0.1, 0.4))
    value = draw(st.sampled_from(HOSTILE))
    place = bad[..., None] & (rng.random(array.shape) < draw(among(0.1, 1.0)))
    with np.errstate(over="ignore"):
        return np.where(place, np.array(value).astype(array.dtype), array)


dropouts = st.fixed_dictionaries({"dropout": among(0.01, 0.3, 0.5, 0.99), "seed": st.integers(0, 2**64 - 1)})
