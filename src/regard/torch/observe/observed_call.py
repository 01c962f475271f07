"""ObservedCall: one attention call of a running model, seen as it happens, then described, timed or traced."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from ...engines.cost import Cost
from ...language.problem import Problem
from .handwritten import Trail
from .layout import Layout

__all__ = ["CACHE", "FLEX", "HF", "REGARD", "SDPA", "WRITTEN_OUT", "ObservedCall"]

REGARD, CACHE, HF = "regard.attention", "regard.KVCache.attend", "regard, for transformers"
SDPA, FLEX, WRITTEN_OUT = "torch SDPA", "FlexAttention", "softmax(q kᵀ) v, written out"


@dataclass(eq=False)
class ObservedCall:
    """One attention call of a model.

    What is seen of every call:
    index: its place among the calls of a run. layer: the path of the module that made it. kind: which function was
    called. given: its arguments by name, q, k and v among them; out: what came out. While the model runs these are
    tensors, or arrays where arrays were given; after `let_go` they are layouts. k and v are None for a cache, out for
    a call that failed. problem: what transformers' function made of its arguments. trail: how attention that is
    written out came about. outside: the tensors that came in. seconds: of the call forward, NaN where it ran inside
    compiled code; backward: of what torch's autograd did for it, None where that was not asked for.

    What `describe` adds, for a profile:
    engine, why: who computed it. matrix: whether this engine builds the whole matrix of weights. cost: operations and
    bytes, None where the call could not be read; why then says what could not. dims: B, H, G, Q, K, D, E. dtype,
    device: of q. mask, score: in words.

    What a profile adds:
    measured: the most bytes that torch held during the call above what was there before, plus the most that NumPy did;
    None where the call is no single function. limit: GFLOP/s that the share of peak counts against.

    What a trace adds:
    mask, scores: the rules in words, and over which sizes.
    """

    index: int
    layer: str
    kind: str
    given: dict[str, Any] = field(default_factory=dict)
    out: Any = None
    seconds: float = 0.0
    backward: float | None = None
    problem: Problem | None = field(default=None, repr=False)
    trail: Trail | None = field(default=None, repr=False)
    outside: list[torch.Tensor] = field(default_factory=list, repr=False)

    engine: str = ""
    why: str = ""
    matrix: bool = False
    cost: Cost | None = None
    dims: dict[str, int] = field(default_factory=dict)
    dtype: str = ""
    device: str = ""
    mask: str = ""
    score: str = ""
    scores: str = ""

    measured: int | None = None
    limit: float = math.nan

    @property
    def q(self):
        return self.given.get("q")

    @property
    def k(self):
        return self.given.get("k")

    @property
    def v(self):
        return self.given.get("v")

    def let_go(self) -> None:
        """Keeps the layouts of q, k, v and out, and lets go of everything that holds numbers of the model."""
        self.given = {name: Layout.of(self.given.get(name)) for name in ("q", "k", "v")}
        self.out = Layout.of(self.out)
        self.problem, self.trail, self.outside = None, None, []

    # What follows from time and cost ----------------------------------------------------------------------------------

    @property
    def flops(self) -> int:
        """Of the pairs that the mask allows."""
        return 0 if self.cost is None else self.cost.useful

    @property
    def backward_flops(self) -> int | None:
        """Of the pairs that the mask allows, on the way back."""
        if self.cost is None or self.backward is None:
            return None
        return 2 * (3 * self.dims["D"] + 2 * self.dims["E"]) * self.cost.allowed

    @property
    def visited(self) -> float:
        """The pairs a plan in tiles visits as a share of all pairs."""
        if self.cost is None:
            return math.nan
        return self.cost.visited / self.cost.matrix if self.cost.matrix else 0.0

    @property
    def modelled(self) -> int:
        """Bytes besides q, k, v by the cost model: the output, and the matrix of weights where this engine builds one,
        or else the plan and lse.
        """
        if self.cost is None:
            return 0
        return self.cost.written + (self.cost.weights if self.matrix else self.cost.extra)

    @property
    def total(self) -> float:
        """Seconds there and back."""
        return self.seconds + (self.backward or 0.0)

    @property
    def rate(self) -> float:
        """FLOP/s there and back."""
        return (self.flops + (self.backward_flops or 0)) / self.total if self.total else math.nan

    @property
    def share(self) -> float:
        """Of the peak."""
        return self.rate / (1e9 * self.limit)

    # What a trace prints ----------------------------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """Everything but the place in the model."""
        shown = [
            ("q", self.q),
            ("k", self.k),
            ("v", self.v),
            ("mask", self.mask),
            ("scores", self.scores),
            ("out", self.out),
        ]
        return [self.kind, *[f"{name:<7}{value}" for name, value in shown if value is not None]]
