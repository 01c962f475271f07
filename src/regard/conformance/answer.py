"""Answer: what came back from one call of the function that is judged, in canonical form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


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
