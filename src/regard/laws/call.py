"""The conventions of a function, one call in canonical form, which does not depend on them, and what came back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Conventions:
    """The choices of one function; the first of each are those of the laws.

    always: "causal" if every call is causal, "alibi" if every call adds ALiBi to its scores · causal: how causal masks,
    windows and starts are aligned if Q ≠ K: "bottom-right" or "top-left" · scale: None for 1/√D, else the fixed
    number · softcap: whether it is applied "before-bias" or "after-bias" · groups: how key heads are shared:
    "repeat-interleave" or "tile" · lse: "natural", "base-2", or "natural-unscaled", that of q·k without the scale ·
    empty_row: the output of a fully masked row: "zero", "nan", "mean", or "any" if nothing is promised · empty_lse:
    its lse: "-inf", "inf" or "any"
    """

    always: tuple[str, ...] = ()
    causal: str = "bottom-right"
    scale: float | None = None
    softcap: str = "before-bias"
    groups: str = "repeat-interleave"
    lse: str = "natural"
    empty_row: str = "zero"
    empty_lse: str = "-inf"

    @property
    def packed(self) -> bool:
        """Whether the rows of all batch entries are in one axis, so that no key exists beyond the lengths."""
        return False


# The roles of the arguments of a call besides q, k and v.
ROLES = ("mask", "bias", "causal", "window", "lengths", "scale", "softcap", "sinks", "dropout")

# The axes of the arrays of a call and of its results, by the names of `Call.dims`.
AXES = {"q": "BHQD", "k": "BGKD", "v": "BGKE", "out": "BHQE", "lse": "BHQ", "weights": "BHQK"}


def shape_of(name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an array of a call or of a result."""
    return tuple(sizes[axis] for axis in AXES[name])


@dataclass(frozen=True, eq=False, kw_only=True)
class Call:
    """The arguments of one call. None means that the argument is not passed.

    q (B, H, Q, D) · k (B, G, K, D) · v (B, G, K, E), of one dtype · mask: bool, (B or 1, H or 1, Q or 1, K), true where
    a row may attend · bias: floats of such a shape, added to the scaled (and capped) scores · causal: a row attends to
    its own position and earlier ones · window: how many keys before and after its own position a row attends to, None
    for no limit · lengths (B,): how many of the first keys of each batch entry exist · scale: times q·k · softcap: the
    scores become cap · tanh(score / cap) · sinks (H,): a logit in the denominator of each head · dropout: the share of
    weights that become 0, with `seed` · dout (B, H, Q, E), dlse (B, H, Q): gradients of the results; given, the
    gradients of the inputs are requested · memory: their layout in memory: "contiguous", "strided" (every second
    element of a larger array), "expanded" (one batch entry, repeated with stride 0, where entries are equal) or
    "readonly"
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: np.ndarray | None = None
    bias: np.ndarray | None = None
    causal: bool = False
    window: tuple[int | None, int | None] | None = None
    lengths: np.ndarray | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: np.ndarray | None = None
    dropout: float | None = None
    seed: int = 0
    dout: np.ndarray | None = None
    dlse: np.ndarray | None = None
    memory: str = "contiguous"

    @property
    def dims(self) -> dict[str, int]:
        """B, H, G, Q, K, D, E by name."""
        B, H, Q, D = self.q.shape
        return {"B": B, "H": H, "G": self.k.shape[1], "Q": Q, "K": self.k.shape[2], "D": D, "E": self.v.shape[3]}

    @property
    def dtype(self) -> np.dtype:
        """The dtype of q, k and v."""
        return self.q.dtype

    def changed(self, **fields: Any) -> Call:
        """The call with other fields."""
        return replace(self, **fields)

    def uses(self) -> tuple[str, ...]:
        """The roles of the arguments that this call passes, besides q, k and v."""
        return tuple(role for role in ROLES if (value := getattr(self, role)) is not None and value is not False)


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """The answer to one call.

    status: "ok"; "raised" an exception; "timeout"; "crashed", if the process ended; "unreadable", if the result is not
    what the adapter declares (None, a wrong shape or type) · words: what happened, unless ok · returned: the structure
    of an unreadable result, as plain JSON · out (B, H, Q, E), lse (B, H, Q) in nats, weights (B, H, Q, K): float64,
    None if not returned · gradients: float64 by role ("q", "k", "v", "bias", "sinks") · dtype: of the output as
    returned · events: side effects that were seen, in words · seconds: of the call alone · peak: bytes by which the
    memory of the process grew at most during the call
    """

    status: str
    words: str = ""
    returned: Any = None
    out: np.ndarray | None = None
    lse: np.ndarray | None = None
    weights: np.ndarray | None = None
    gradients: Mapping[str, np.ndarray] = field(default_factory=dict)
    dtype: str = ""
    events: tuple[str, ...] = ()
    seconds: float = 0.0
    peak: int = 0
