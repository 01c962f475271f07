"""What layers share: argument checks, heads, RMSNorm, dropout seeds, weights; the base class of layers at positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn.functional import rms_norm

from ...api.kv_cache import KVCache
from ...common.compiled import outside_programs
from ...common.errors import Reason, Refused
from ...language.analysis import evaluate, substituted
from ...language.expr import Expr, batch, key, query, table, tables_of
from ...language.expr import score as the_score
from ...language.masks import count
from ..cache import TensorCache
from ..positions import Position
from ..positions.position import fitting


class Checks:
    """Collects the problems of a constructor or call named `where`; `done` raises `Refused` with all of them."""

    def __init__(self, where: str):
        self.where = where
        self.reasons: list[Reason] = []

    def size(self, name: str, value, least: int = 1) -> int:
        """The value if it is an integer of `least` or more; otherwise adds a reason and returns `least`."""
        try:
            return count(value, self.where, name, least)
        except Refused as refused:
            self.reasons += refused.reasons
            return least

    def rate(self, name: str, value) -> float:
        """The value as a dropout rate, from 0 to below 1; otherwise adds a reason and returns 0."""
        valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
        self.need(
            valid,
            f"{name} is not a probability below 1",
            f"{name}={value!r}",
            "a number from 0 to below 1",
            "omit it for no dropout",
        )
        return float(value) if valid else 0.0

    def rows(self, x: torch.Tensor, width: int) -> None:
        """Adds a reason unless x is (B, n, width)."""
        self.need(
            x.ndim == 3 and x.shape[-1] == width,
            "x does not fit the layer",
            f"{tuple(x.shape)}",
            f"(B, n, {width})",
            "the layout is (batch, rows, d_model)",
        )

    def heads(self, d_model: int, heads: int, head_dim: int | None) -> int:
        """The depth of a head: `head_dim`, or d_model / heads; adds a reason if it is not an integer."""
        self.need(
            head_dim is not None or d_model % heads == 0,
            "heads do not divide d_model",
            f"d_model={d_model}, heads={heads}",
            "d_model to be a multiple of heads",
            "pass head_dim=…",
        )
        return d_model // heads if head_dim is None else self.size("head_dim", head_dim)

    def groups(self, heads: int, kv_heads: int | None) -> int:
        """The number of key/value heads, `heads` if None; adds a reason unless it divides them."""
        groups = heads if kv_heads is None else self.size("kv_heads", kv_heads)
        self.need(
            heads % groups == 0,
            "kv_heads do not divide heads",
            f"heads={heads}, kv_heads={kv_heads}",
            "heads to be a multiple of kv_heads",
            "kv_heads=1 fits every number of heads",
        )
        return groups

    def need(self, condition: bool, what: str, given: str, expected: str, fix: str) -> None:
        """Adds a reason unless the condition is true."""
        if not condition:
            self.reasons.append(Reason(what, given, expected, fix))

    def done(self) -> None:
        """Raises `Refused` if there are reasons."""
        if self.reasons:
            raise Refused(self.where, self.reasons)


def add_projections(layer: torch.nn.Module, bias: bool) -> None:
    """Adds the linear maps q, k, v and o to a layer, which has their sizes."""
    layer.q = torch.nn.Linear(layer.d_model, layer.heads * layer.head_dim, bias)
    layer.k = torch.nn.Linear(layer.memory_dim, layer.kv_heads * layer.head_dim, bias)
    layer.v = torch.nn.Linear(layer.memory_dim, layer.kv_heads * layer.value_dim, bias)
    layer.o = torch.nn.Linear(layer.heads * layer.value_dim, layer.d_model, bias)


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(…, n, heads · depth) as (…, heads, n, depth), a view.

    >>> split_heads(torch.zeros(2, 5, 12), 3).shape
    torch.Size([2, 3, 5, 4])
    """
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def join_heads(x: torch.Tensor) -> torch.Tensor:
    """(…, heads, n, depth) as (…, n, heads · depth): the inverse of `split_heads`.

    >>> join_heads(torch.zeros(2, 3, 5, 4)).shape
    torch.Size([2, 5, 12])
    """
    return x.transpose(-3, -2).flatten(-2)


class RMSNorm(torch.nn.RMSNorm):
    """x / √(mean x² + eps) · weight, as torch.nn.RMSNorm; x may have 16 bits (autocast) while the weight has 32.

    Source: Zhang and Sennrich 2019.

    >>> RMSNorm(2, eps=0.0)(torch.tensor([3.0, 4.0], dtype=torch.bfloat16)).dtype
    torch.bfloat16
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, tuple(self.normalized_shape), self.weight.to(x.dtype), self.eps)


def dropped(rate: float, training: bool) -> dict[str, Any]:
    """The arguments `dropout` and `seed` of attention; empty in eval mode.

    The seed is drawn from torch's generator, so manual_seed and activation checkpointing reproduce it.

    >>> dropped(0.1, training=False)
    {}
    """
    return {"dropout": rate, "seed": torch.randint(2**62, ())} if training and rate else {}


def weights(
    q: torch.Tensor, k: torch.Tensor, allowed: torch.Tensor | None, added: torch.Tensor | None = None
) -> torch.Tensor:
    """The whole weight matrix, computed by torch with gradients, for layers that return their weights.

    P = softmax over the allowed keys of (q kᵀ / √D + added); 0 in fully masked rows.

    q (…, Q, D) · k (…, K, D) · allowed, added: booleans and floats that broadcast to (…, Q, K); a key with −inf in
    `added` must be False in `allowed` -> (…, Q, K). Memory grows with Q·K, so layers do not compute their output here.

    >>> weights(torch.zeros(1, 2, 4), torch.zeros(1, 2, 4), torch.tensor([[True, False], [False, False]])).tolist()
    [[[1.0, 0.0], [0.0, 0.0]]]
    """
    logits = (q / math.sqrt(q.shape[-1])) @ k.mT
    logits = logits if added is None else logits + added
    if allowed is None:
        return logits.softmax(-1)
    # The softmax of a fully masked row is NaN; the second fill sets its weights and their gradients to 0.
    empty = ~allowed.any(-1, keepdim=True)
    return logits.masked_fill(~allowed, -math.inf).softmax(-1).masked_fill(empty, 0)


def allowed_pairs(mask: Expr, shape: tuple[int, int, int, int], query_start: int, device) -> torch.Tensor:
    """A mask expression as booleans that broadcast to shape (B, H, Q, K)."""
    B, H, Q, K = (np.arange(size) for size in shape)
    places = {"batch": B[:, None, None, None], "head": H[:, None, None], "query": query_start + Q[:, None], "key": K}
    return torch.from_numpy(np.array(evaluate(mask, places), bool)).to(device)


class Placed(torch.nn.Module):
    """Base class of layers with a position encoding.

    d_model: the width of rows. dropout: the rate in training mode. positions: a `Position`, or None. score: the
    expression for the logits before `positions` modifies it, or None.
    head_start: the number of the first query head, in a layer that has some heads of a larger one.
    """

    d_model: int
    dropout: float
    head_start: int | None = None
    positions: Position | None
    score: Expr | None
    _rule: Expr | None
    _over: list[torch.nn.Parameter] | None

    def place(self, check: Checks, positions: Position | None, score: Expr | None = None) -> None:
        """Sets the position encoding and the score.

        Args:
            check: the checks of the constructor so far.
            positions: the position encoding, or None.
            score: the expression for the logits, or None.

        Raises:
            Refused: an argument is invalid, or `check` already has reasons.
        """
        check.need(
            positions is None or isinstance(positions, Position),
            "positions is not a Position",
            f"{positions!r}",
            "a module from regard.torch.positions",
            "pass the positions of rows to the call: layer(x, positions=…)",
        )
        check.need(
            score is None or isinstance(score, Expr),
            "score is not an expression",
            f"{score!r}",
            "an expression such as rg.softcap(50)",
            "put learned numbers into a Position",
        )
        read = tables_of(score) if isinstance(score, Expr) else {}
        learned = [name for name, table in read.items() if getattr(table.source, "requires_grad", False)]
        check.need(
            not learned,
            "the score reads a parameter that the layer would not own",
            ", ".join(learned),
            "tables that do not require gradients",
            "write a Position: its parameters are saved and copied with the layer",
        )
        check.done()
        self.positions, self.score = positions, score
        self._build()

    def rule(self, rows: torch.Tensor | None = None, positions: torch.Tensor | None = None) -> Expr | None:
        """The score expression of a call.

        Args:
            rows: (B, …, n, width) the rows of the call, for which `positions` were passed.
            positions: (n,) or (B, n) positions that were passed to the call; None: rows are where they are.

        Returns:
            The expression, or None where the score is the logit itself.
        """
        if self.positions is None:
            return self.score
        if rows is not None and positions is not None and type(self.positions).score is not Position.score:
            return _at(self.positions, self.score, fitting(type(self.positions).__name__, rows, positions))
        # A compiled program uses the existing expression if it was built from the current parameters.
        if not torch.compiler.is_compiling() or not self._current():
            self._build()
        return self._rule

    def rules(self, x: torch.Tensor, mask: Any, positions: torch.Tensor | None, **rest: Any) -> dict[str, Any]:
        """The arguments of attention.

        Args:
            x: (B, n, d_model) input rows.
            mask: the mask of the call.
            positions: the positions that were passed to the call, or None.
            rest: other arguments of attention.

        Returns:
            Mask, score and the rest; also `head_start`, in a layer that has some heads of a larger one.
        """
        counted = {} if self.head_start is None else {"head_start": self.head_start}
        return {"mask": mask, "score": self.rule(x, positions), **rest, **counted}

    def places(
        self, x: torch.Tensor, cache: KVCache | TensorCache | None, positions: torch.Tensor | None
    ) -> torch.Tensor | None:
        """The positions of input rows.

        Args:
            x: (B, n, d_model) input rows.
            cache: the cache of the call; its lengths are the first positions.
            positions: the positions that were passed to the call, or None.

        Returns:
            `positions` where given; otherwise 0 … n − 1, after the rows in the cache: (n,) or (B, n). None without a
            position encoding.
        """
        if positions is not None or self.positions is None:
            return positions
        counted = torch.arange(x.shape[1], device=x.device)
        return counted if cache is None else torch.as_tensor(cache.lengths, device=x.device)[:, None] + counted

    def turned(self, rows: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
        """Rotates queries or keys by their positions.

        Args:
            rows: (B, heads, n, depth) queries or keys.
            places: the positions of the rows, or None.

        Returns:
            The rotated rows, or `rows` without a position encoding or positions.
        """
        return rows if self.positions is None or places is None else self.positions.rotate(rows, places)

    def check_rows(
        self,
        check: Checks,
        x: torch.Tensor,
        cache: KVCache | TensorCache | None,
        positions: torch.Tensor | None,
    ) -> None:
        """Adds the problems of a call's arguments to `check`.

        Args:
            check: collects the problems.
            x: (B, n, d_model) input rows.
            cache: the cache of the call, or None.
            positions: the positions of the call, or None.
        """
        check.rows(x, self.d_model)
        check.need(
            positions is None or self.positions is not None,
            "the layer has no position encoding",
            "positions of rows, and a layer with positions=None",
            "positions=None",
            "construct the layer with positions=Rotary(…) or another Position",
        )
        check.need(
            cache is None
            or positions is None
            or self.positions is None
            or type(self.positions).score is Position.score,
            "the positions of the keys in the cache are not known",
            f"positions and a cache, in a layer with {type(self.positions).__name__}",
            "positions=None: rows follow those in the cache",
            "omit positions, or call the layer without a cache on all rows",
        )
        check.need(
            cache is None or not (self.training and self.dropout),
            "dropout is not supported with a cache",
            "a layer in training mode, with dropout",
            "a layer in eval mode, or without dropout",
            "call layer.eval()",
        )

    def _build(self) -> None:
        """Builds the score expression from the current parameters, unless they are on the meta device."""
        self._rule, self._over = self.score, None
        if self.positions is None:
            return
        own = list(self.positions.parameters())
        if not any(parameter.is_meta for parameter in own):
            rule = self.positions.score(the_score if self.score is None else self.score)
            self._rule, self._over = None if rule is the_score else rule, own

    def _current(self) -> bool:
        assert self.positions is not None
        own = list(self.positions.parameters())
        return self._over is not None and len(own) == len(self._over) and all(a is b for a, b in zip(own, self._over))

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self._build()  # the parameters may be on another device now
        return self

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_rule": None, "_over": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._build()


@outside_programs
def _at(encoding: Position, score: Expr | None, positions: torch.Tensor) -> Expr:
    """The score with an encoding of distances, for rows and keys at these positions (n,) or (B, n)."""
    at = table(positions, "position")
    first = () if positions.ndim == 1 else (batch,)
    own: dict[Expr, Expr] = {query: at[(*first, query)], key: at[(*first, key)]}
    placed = substituted(encoding.score(the_score), own)
    return placed if score is None else substituted(placed, {the_score: score})
