"""`ObservedCall`: one attention call of a running model, which is then described, timed or traced."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from ...common.arrays import is_tensor
from ...engines.cost import Cost
from ...language.problem import Problem
from .handwritten import Trail


@dataclass(frozen=True)
class Layout:
    """The memory layout of a tensor: its shape, dtype, strides in elements, and device."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    device: str

    @classmethod
    def of(cls, value) -> Layout | None:
        """The layout of a tensor or an array; None of anything else."""
        if isinstance(value, cls):
            return value
        if is_tensor(value):
            dtype = str(value.dtype).removeprefix("torch.")
            return cls(tuple(value.shape), dtype, tuple(value.stride()), str(value.device))
        if not hasattr(value, "strides"):
            return None
        return cls(value.shape, str(value.dtype), tuple(step // value.itemsize for step in value.strides), "cpu")

    def __str__(self) -> str:
        device = "" if self.device == "cpu" else f", {self.device}"
        return f"{self.shape} {self.dtype}, strides {self.strides}{device}"


REGARD, CACHE, HF = "regard.attention", "regard.KVCache.attend", "regard, for transformers"
SDPA, FLEX, WRITTEN_OUT = "torch SDPA", "FlexAttention", "softmax(q kᵀ) v, written out"


@dataclass(eq=False)
class ObservedCall:
    """One attention call of a model.

    Set for every call:
    index: its number among the calls of a run. layer: the path of the module that made it. kind: the function called.
    given: the arguments by name, including q, k and v; out: the output. While the model runs these are tensors or
    arrays; after `let_go` they are layouts. k and v are None for a cache, out for a call that failed. problem: the
    problem of a call from transformers. trail: the operations of handwritten attention. outside: the input tensors.
    seconds: the time of the forward pass, NaN inside compiled code; backward: the time in torch's autograd, None
    unless requested.

    Set by `describe`, for a profile:
    engine, why: the engine and the reason for it. matrix: whether it builds the whole weight matrix. cost: operations
    and bytes, None if the call cannot be described (see `why`). dims: B, H, G, Q, K, D, E. dtype, device: of q. mask,
    score: as text.

    Set by a profile:
    measured: the peak bytes allocated by torch during the call, plus the peak of NumPy; None if the call is not a
    single function. limit: the peak in GFLOP/s that `share` refers to.

    Set by a trace:
    mask, scores: the rules as text, with their sizes.
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
        """Replaces q, k, v and out by their layouts, and removes all other references to tensors of the model."""
        self.given = {name: Layout.of(self.given.get(name)) for name in ("q", "k", "v")}
        self.out = Layout.of(self.out)
        self.problem, self.trail, self.outside = None, None, []

    # Derived from time and cost ---------------------------------------------------------------------------------------

    @property
    def flops(self) -> int:
        """Floating-point operations of the forward pass, for the pairs that the mask allows."""
        return 0 if self.cost is None else self.cost.useful

    @property
    def backward_flops(self) -> int | None:
        """Floating-point operations of the backward pass, for the pairs that the mask allows."""
        if self.cost is None or self.backward is None:
            return None
        return 2 * (3 * self.dims["D"] + 2 * self.dims["E"]) * self.cost.allowed

    @property
    def visited(self) -> float:
        """The fraction of all pairs in the tiles that a plan visits."""
        if self.cost is None:
            return math.nan
        return self.cost.visited / self.cost.matrix if self.cost.matrix else 0.0

    @property
    def modelled(self) -> int:
        """Bytes by the cost model, without q, k and v: the output and either the weight matrix or plan and lse."""
        if self.cost is None:
            return 0
        return self.cost.written + (self.cost.weights if self.matrix else self.cost.extra)

    @property
    def total(self) -> float:
        """Seconds of the forward and backward pass."""
        return self.seconds + (self.backward or 0.0)

    @property
    def rate(self) -> float:
        """FLOP/s of the forward and backward pass."""
        return (self.flops + (self.backward_flops or 0)) / self.total if self.total else math.nan

    @property
    def share(self) -> float:
        """The fraction of the peak that was reached."""
        return self.rate / (1e9 * self.limit)

    # The output of a trace --------------------------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """The lines of a trace for this call, without its index and layer."""
        shown = [
            ("q", self.q),
            ("k", self.k),
            ("v", self.v),
            ("mask", self.mask),
            ("scores", self.scores),
            ("out", self.out),
        ]
        return [self.kind, *[f"{name:<7}{value}" for name, value in shown if value is not None]]
