"""A recorded attention call, from which any part of its weights can be computed.

p[h, i, j] = exp(score(i, j) − lse[h, i]) where the mask allows, 0 elsewhere
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ...api.statistics import attention_stats
from ...common.caching import Memo
from ...common.dtypes import real_of
from ...common.errors import Refused, refuse
from ...engines import choice
from ...language.analysis import evaluate, substituted
from ...language.expr import Expr, head, key, query
from ...language.measures import Mass, Measure
from ...language.tree.interning import walk
from .axis import Axis
from .detectors import means, reads_token
from .labels import size
from .projections import LayerProjections

UNMEASURED = np.empty((0, 0))  # the lse of a call that `figures.with_figures` has not completed yet

Part = slice | Sequence[int | str] | np.ndarray | int | str | None


@dataclass(frozen=True, eq=False)
class Overview:
    """The matrix of every head, pooled to R × C cells.

    Args:
        share: (H, R, C) float32: the mean over a cell's rows of the sum over its keys, so that pooled rows sum to 1.
        largest: (H, R, C) float32: the largest weight in the cell.
        exact: how it was computed: "exact", or for example "sampled 1 row of 16".

    Examples:
        >>> import numpy as np, regard as rg
        >>> call = rg.look(np.ones((1, 2, 4)), k=np.ones((1, 2, 4))).calls[0]
        >>> call.overview.share.tolist()
        [[[0.5, 0.5], [0.5, 0.5]]]
    """

    share: np.ndarray
    largest: np.ndarray
    exact: str = "exact"


@dataclass(frozen=True, eq=False)
class Call:
    """One attention call of one batch entry.

    A call has either q and k, from which any weight is computed as exp(score − lse), or given weights. `regard.look`
    records calls.

    Args:
        name: the path of the layer in the model.
        layer: the number of the layer, or None.
        queries: the name of the axis of the rows. "queries" are rows at some positions of the key axis.
        keys: the name of the axis of the columns.
        lse: (H, Q) ln Σ exp(score) of each row, including the sinks.
        q: (H, Q, D) queries.
        k: (G, K, D) keys.
        mask: an expression over head, query and key, true where the row may attend; None allows every key. With
            `given`, the pairs that may have weight.
        score: an expression over score, head, query and key; None leaves the score unchanged.
        scale: the factor of q·k.
        start: the key position of row 0.
        sinks: (H, S) additional logits in the denominator, or None.
        engine: the engine that computed the call in the model.
        given: (H, Q, K) weights, instead of q and k.
        v: (G, K, E) values, if they were stored.
        x: (Q, d_model) the input of the layer, if it was stored.
        out: (H, Q, E) the output of the call in the model, if it was stored.
        projections: the matrices of the layer, as far as they are known, or None. They are not stored in folders.
        rows: figures of every row by name, (H, Q) each: entropy in nats, maximum, distance in positions, …
        received: (H, K) the sum of the weights of each key over the rows.
        lengths: (H, K) the length of what a weight of 1 on each key adds to the output: ‖v‖, or ‖v W_o‖ if the
            output projection of the head is known, as notes["lengths"] says.
        overview: the pooled matrix of every head.
        notes: plain JSON: the settings of the layer (scale, softcap, window, groups), dtype, seconds, …

    Raises:
        Refused: neither `given` nor both q and k, or both.

    Examples:
        >>> import numpy as np, regard as rg
        >>> call = rg.look(np.ones((2, 3, 8)), k=np.ones((1, 3, 8)), mask=rg.causal()).calls[0]
        >>> call
        <Call 'attention': 3 keys × 3 keys, 2 heads over 1>
        >>> call.weights(rows=1, heads=0)
        array([[[0.5, 0.5, 0. ]]])
    """

    name: str
    layer: int | None
    queries: str
    keys: str
    lse: np.ndarray
    q: np.ndarray | None = None
    k: np.ndarray | None = None
    mask: Expr | None = None
    score: Expr | None = None
    scale: float = 1.0
    start: int = 0
    sinks: np.ndarray | None = None
    engine: str = ""
    given: np.ndarray | None = None
    v: np.ndarray | None = None
    x: np.ndarray | None = None
    out: np.ndarray | None = None
    projections: LayerProjections | None = None
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)
    received: np.ndarray | None = None
    lengths: np.ndarray | None = None
    overview: Overview | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    axes: ClassVar[tuple[Axis, Axis] | None] = None  # of the rows and of the keys; a run tells them to its calls
    _repr_html_: ClassVar[Callable[[Call], str]]  # the HTML that notebooks show; regard.lens sets it

    def __repr__(self) -> str:
        kept = "weights" if self.given is not None else f"{self.shape[0]} heads over {self.groups}"
        sizes = " × ".join(map(size, (self.queries, self.keys), self.shape[1:]))
        return f"<Call {self.name!r}: {sizes}, {kept}>"

    def __post_init__(self) -> None:
        if (self.given is None) == (self.q is None or self.k is None):
            raise refuse(
                "Call",
                "pass either given weights, or q and k",
                f"{self.name}",
                "one of the two",
                "pass q= and k=, or given=",
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, Q, K): heads, query rows and key rows."""
        if self.given is not None:
            return self.given.shape
        assert self.q is not None and self.k is not None
        return (*self.q.shape[:2], self.k.shape[1])

    @property
    def groups(self) -> int:
        """The number G of key/value heads; H / G query heads share each of them."""
        return self.shape[0] if self.k is None else self.k.shape[0]

    @property
    def aligned(self) -> bool:
        """Whether the rows are positions of the key axis; False in cross-attention."""
        return self.queries in (self.keys, "queries")

    @functools.cached_property
    def figures(self) -> dict[str, np.ndarray]:
        """The figures of every head by name, (H,) float64: the mean of `rows` over the rows that are not fully masked.

        The spread leaves out rows with one key, which are neither spread nor concentrated; `previous` leaves out rows
        that have no previous key, or may not attend to it; measures leave out rows without a key of theirs. NaN if no
        row remains. In cross-attention, figures that depend on the row's own position are left out.
        """
        return means(self)

    def weights(self, rows: Part = None, keys: Part = None, heads: Part = None) -> np.ndarray:
        """The weights of some heads, rows and keys, computed in float64 from q, k and lse.

        Args:
            rows: query rows: a slice, an index or a word of the text, or several of these; None is all.
            keys: key positions, likewise.
            heads: heads, likewise.

        Returns:
            (heads, rows, keys) float64; an index keeps its axis, of length 1. A row that attends to NaN or +infinity
            has NaN.

        Raises:
            Refused: positions outside the matrix, and words that occur not once.

        Examples:
            >>> import numpy as np, regard as rg
            >>> call = rg.look(np.ones((2, 3, 8)), k=np.ones((2, 3, 8)), mask=rg.causal()).calls[0]
            >>> call.weights(rows=[1], heads=0)
            array([[[0.5, 0.5, 0. ]]])
        """
        h, i, j = self._places(rows, keys, heads)
        if self.given is not None:
            return np.asarray(self.given[np.ix_(h, i, j)], np.float64)
        scores, below = self._scored(h, i, j), np.asarray(self.lse[np.ix_(h, i)], np.float64)[:, :, None]
        # A fully masked row has lse −inf; a row that attends to NaN or +inf has NaN as weights.
        below = np.where(np.isneginf(below), 0, np.where(np.isposinf(below), np.nan, below))
        with np.errstate(over="ignore", invalid="ignore"):
            found = scores - below
            np.exp(found, out=found)
        if np.isnan(below).any():
            found[np.isneginf(scores)] = 0
        if self.mask is not None:
            found[~self._allowed(h, i, j)] = 0
        return found

    @functools.cached_property
    def readers(self) -> np.ndarray:
        """How many rows the mask lets attend to each key, (H, K)."""
        return readers(self.mask, self.shape, self.start)

    def others(self, rows: Part = None, keys: Part = None, heads: Part = None) -> np.ndarray:
        """The mean weight that the other rows have on each key. A weight well above it is specific to its row.

        others[h, i, j] = (Σ p[h, :, j] − p[h, i, j]) / (rows that may attend to j, without i)

        Args:
            rows: query rows: a slice, an index or a word of the text, or several of these; None is all.
            keys: key positions, likewise.
            heads: heads, likewise.

        Returns:
            (heads, rows, keys) float64; NaN where no other row may attend to the key.

        Raises:
            Refused: positions outside the matrix, and words that occur not once.

        Examples:
            >>> import numpy as np, regard as rg
            >>> call = rg.look(np.ones((1, 3, 8)), k=np.ones((1, 3, 8)), mask=rg.causal()).calls[0]
            >>> call.weights(rows=1).round(2), call.others(rows=1).round(2)
            (array([[[0.5, 0.5, 0. ]]]), array([[[0.67, 0.33, 0.33]]]))
        """
        h, i, j = self._places(rows, keys, heads)
        received = self.weights(heads=h, keys=j).sum(1) if self.received is None else self.received[np.ix_(h, j)]
        own, free = self.weights(i, j, h), self._allowed(h, i, j)
        count = self.readers[np.ix_(h, j)][:, None, :] - free
        rest = np.maximum(received.astype(np.float64)[:, None, :] - own, 0)  # received is rounded to float32
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count > 0, rest / count, np.nan)

    def stats(self, of: str | Measure | Iterable[str | Measure]) -> Any:
        """Statistics of the weights, in memory that grows with the rows and keys, not with their product.

        Args:
            of: the measures, as for `attention_stats`: names, and `rg.mass(keys)`, `rg.top(n)`, `rg.pooled(rows,
                columns)`. Rules over tokens read `run.axes[call.keys].token`.

        Returns:
            What `attention_stats` returns, for one batch entry.

        Raises:
            Refused: a call with given weights, rules over `regard.lens.token`, which belongs to no run, and measures
                that `attention_stats` refuses.

        Examples:
            >>> import numpy as np, regard as rg
            >>> call = rg.look(np.ones((1, 3, 8)), k=np.ones((1, 3, 8)), mask=rg.causal()).calls[0]
            >>> call.stats(rg.mass(rg.key == 0, name="start"))["start"].round(2)
            array([[1.  , 0.5 , 0.33]])
        """
        if self.given is not None:
            raise self._only_weights("stats")
        measures = tuple(of) if isinstance(of, Iterable) and not isinstance(of, str) else (of,)
        if any(isinstance(each, Mass) and reads_token(each.keys) for each in measures):
            raise refuse(
                "stats",
                "a rule over the tokens of no run",
                "regard.lens.token",
                f"the tokens of the {self.keys!r} axis of the run",
                f"write the rule with token = run.axes[{self.keys!r}].token, or pass it to look(measures=)",
            )
        return attention_stats(self.q, self.k, of=measures, query_start=self.start, **rules_of(self))

    def scores(self, rows: Part = None, keys: Part = None, heads: Part = None) -> np.ndarray:
        """The scores before mask and softmax: `logits` after the score rule.

        Args:
            rows: query rows: a slice, an index or a word of the text, or several of these; None is all.
            keys: key positions, likewise.
            heads: heads, likewise.

        Returns:
            (heads, rows, keys) float64.

        Raises:
            Refused: positions outside the matrix, words that occur not once, and a call with given weights.

        Examples:
            >>> import numpy as np, regard as rg
            >>> call = rg.look(np.ones((1, 2, 4)), k=np.ones((1, 2, 4)), score=rg.softcap(1.0)).calls[0]
            >>> call.scores(rows=0).round(3)
            array([[[0.964, 0.964]]])
        """
        if self.given is not None:
            raise self._only_weights("scores")
        return self._scored(*self._places(rows, keys, heads))

    def logits(self, rows: Part = None, keys: Part = None, heads: Part = None) -> np.ndarray:
        """scale · q·k, before the score rule.

        Args:
            rows: query rows: a slice, an index or a word of the text, or several of these; None is all.
            keys: key positions, likewise.
            heads: heads, likewise.

        Returns:
            (heads, rows, keys) float64.

        Raises:
            Refused: positions outside the matrix, words that occur not once, and a call with given weights.

        Examples:
            >>> import numpy as np, regard as rg
            >>> call = rg.look(np.ones((1, 2, 4)), k=np.ones((1, 2, 4))).calls[0]
            >>> call.logits(rows=0)
            array([[[2., 2.]]])
        """
        if self.given is not None:
            raise self._only_weights("logits")
        return self._logits(*self._places(rows, keys, heads))

    def allowed(self, rows: Part = None, keys: Part = None, heads: Part = None) -> np.ndarray:
        """Where the mask allows rows to attend.

        Args:
            rows: query rows: a slice, an index or a word of the text, or several of these; None is all.
            keys: key positions, likewise.
            heads: heads, likewise.

        Returns:
            (heads, rows, keys) booleans.

        Raises:
            Refused: positions outside the matrix, and words that occur not once.

        Examples:
            >>> import numpy as np, regard as rg
            >>> call = rg.look(np.ones((1, 2, 4)), k=np.ones((1, 2, 4)), mask=rg.causal()).calls[0]
            >>> call.allowed(rows=0)
            array([[[ True, False]]])
        """
        return self._allowed(*self._places(rows, keys, heads))

    def _places(self, rows: Part, keys: Part, heads: Part) -> list[np.ndarray]:
        """The heads, rows and keys of a part as positions; see `places`."""
        axes = self.axes or (None, None)
        return places(self.shape, heads, *(_numbered(part, of) for part, of in zip((rows, keys), axes, strict=True)))

    def along(self, rows: Axis, keys: Axis) -> Call:
        """The call with the tokens of its rows and keys, so that parts may be words."""
        if self.axes == (rows, keys):
            return self
        call = self if self.axes is None else replace(self)
        object.__setattr__(call, "axes", (rows, keys))
        return call

    def _only_weights(self, where: str) -> Refused:
        what, expected = "only the weights of this call are known", "a call with q and k"
        return refuse(where, what, self.name, expected, "record the model")

    def _logits(self, h, i, j) -> np.ndarray:
        assert self.q is not None and self.k is not None
        group = self.shape[0] // self.groups
        q = np.asarray(self.q[np.ix_(h, i)], np.float64)
        k = np.asarray(self.k[np.ix_(h // group, j)], np.float64)
        with np.errstate(all="ignore"):
            return self.scale * (q @ np.swapaxes(k, 1, 2))

    def _scored(self, h, i, j) -> np.ndarray:
        logits = self._logits(h, i, j)
        if self.score is None:
            return logits
        assert self.q is not None
        found = evaluate(self.score, self._variables(h, i, j) | {"score": logits}, real_of(self.q.dtype))
        return np.broadcast_to(np.asarray(found, np.float64), logits.shape)

    def _allowed(self, h, i, j) -> np.ndarray:
        seen = np.bool_(True) if self.mask is None else evaluate(self.mask, self._variables(h, i, j))
        return np.broadcast_to(seen, (len(h), len(i), len(j)))

    def _variables(self, h, i, j) -> dict[str, np.ndarray]:
        return {
            "batch": np.zeros((1, 1, 1), np.int64),
            "head": h[:, None, None],
            "query": self.start + i[None, :, None],
            "key": j[None, None, :],
        }


def rules_of(call: Call) -> dict[str, Any]:
    """The rules of a call, as arguments of `attention`."""
    return {name: getattr(call, name) for name in ("mask", "score", "scale", "sinks")}


def _numbered(part: Any, axis: Axis | None) -> Any:
    """A part with positions in the place of words. Refused: words that occur not once."""
    if not isinstance(part, str):
        words = isinstance(part, Sequence) and any(isinstance(each, str) for each in part)
        return [_numbered(each, axis) for each in part] if words else part
    if axis is None:
        raise refuse("weights", "a word in a call of no run", repr(part), "positions", "pass its number")
    found = axis.positions(part)
    if len(found) == 1:
        return found[0]
    places = ", ".join(map(str, found[:20]))
    what, given = ("several such tokens", f"{part!r} at {places}") if found else ("no such token", repr(part))
    expected = f"a word that the {axis.name!r} axis has once, or positions"
    fix = f"pass one of the positions: {places}" if found else "check the spelling"
    raise refuse("weights", what, given, expected, fix)


def places(shape: tuple[int, int, int], heads: Any, rows: Any, keys: Any) -> list[np.ndarray]:
    """The heads, rows and keys of a part as positions; shape: (H, Q, K). Refused: positions outside the matrix."""
    found = []
    for name, part, count in zip(("heads", "rows", "keys"), (heads, rows, keys), shape, strict=True):
        try:
            found.append(np.atleast_1d(np.arange(count)[slice(None) if part is None else part]))
        except (IndexError, TypeError, ValueError) as error:
            raise refuse(
                "weights",
                f"{name} outside the matrix",
                f"{name}={part!r}: {error}",
                f"positions among {count}",
                "count from 0, or from the end with negative numbers",
            ) from error
    return found


_counts: Memo[np.ndarray] = Memo(8)


def readers(mask: Expr | None, shape: tuple[int, int, int], start: int = 0) -> np.ndarray:
    """The number of rows that may attend to each key, (H, K).

    shape: (H, Q, K) · start: the key position of row 0. The keys are counted as if they were rows: the mask with rows
    and keys exchanged allows as many.

    >>> from regard.language.expr import key, query
    >>> readers(key <= query, (1, 4, 4)).tolist()
    [[4, 3, 2, 1]]
    """
    H, Q, K = shape
    if mask is None:
        return np.full((H, K), Q)
    return keys_of(substituted(mask, {query: key + start, key: query}), (H, K, Q), 0)


def keys_of(mask: Expr, shape: tuple[int, int, int], start: int = 0) -> np.ndarray:
    """The number of keys to which each row may attend, (H, Q)."""
    counted = _counts((mask,), (shape, start), lambda: _counted(mask, shape, start))  # layers have the same mask
    return np.broadcast_to(counted, shape[:2])


def _counted(mask: Expr, shape: tuple[int, int, int], start: int) -> np.ndarray:
    """The same, (H, Q), or (1, Q) if heads do not differ."""
    H, Q, K = shape
    heads = H if any(node is head for node in walk(mask)) else 1
    rows, keys = np.zeros((heads, Q, 1), np.float32), np.zeros((1, K, 1), np.float32)
    engine = choice.of_one_call(heads * Q * K)
    found = attention_stats(rows, keys, of="counts", mask=mask, query_start=start, engine=engine)
    return found.counts.attended.astype(np.int64)
