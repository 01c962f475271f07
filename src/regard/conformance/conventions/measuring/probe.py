"""Probe: small calls of the function under the conventions found so far, and what was found."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ....common.dtypes import FLOATS
from ....common.errors import Refused
from ....laws.call import Answer, Call, shape_of
from ....laws.forward import Outcome, forward, meaning
from ..fields import Adapter
from ..translate import Absent, Asks

SECONDS = 60.0  # after this time nothing more is measured
FAILURES = 3  # calls that may end the process or run into the time limit


def now() -> float:
    """The seconds of a clock."""
    return time.monotonic()


def dtype_of(name: str) -> np.dtype:
    """The NumPy dtype of a name."""
    return FLOATS[name].numpy


def normal(sizes: Mapping[str, int], seed: int, names: str = "qkv") -> dict[str, np.ndarray]:
    """Normal numbers for these arrays of a call."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape_of(name, sizes)) for name in names}


def sizes_for(sizes: Mapping[str, int], adapter: Adapter) -> dict[str, int]:
    """Sizes that a layout can hold."""
    found = dict(sizes)
    if adapter.layout in ("HSD", "SD") or (adapter.layout == "THD" and "cu_seqlens_q" not in adapter.parameters):
        found["B"] = 1
    if adapter.layout == "SD":
        found |= {"H": 1, "G": 1}
    if adapter.layout == "BSD" and "heads" not in adapter.parameters and adapter.heads:
        found |= {"H": adapter.heads, "G": adapter.heads}
    return found


def law(call: Call, adapter: Adapter) -> Outcome:
    """What the law says of a call."""
    return forward(meaning(call, adapter), call.q, call.k, call.v)


def plain(adapter: Adapter, sizes: Mapping[str, int]) -> Outcome:
    """What the law says of queries of 0 without any argument: which keys rows attend to, and scores of ALiBi."""
    arrays: dict[str, Any] = {name: np.zeros(shape_of(name, sizes)) for name in "qkv"}
    return law(Call(**arrays), adapter)


@dataclass(eq=False)
class Probe:
    """Calls the function, and collects the conventions that are found.

    adapter: what is known · sizes: of the calls, with values one-hot over the keys (E ≥ K) · dtype: of the calls ·
    evidence: words by field · unmeasured: why no call decided a field · failing_dtypes: what calls with a mask raise,
    in dtypes in which others run · ended: whether a call was not made, because of the time limit or of too many
    failures
    """

    session: Asks
    adapter: Adapter
    sizes: dict[str, int] = field(default_factory=dict)
    dtype: str = "float32"
    evidence: dict[str, str] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    failing_dtypes: dict[str, str] = field(default_factory=dict)
    failures: int = 0
    ended: bool = False
    started: float = field(default_factory=lambda: now())

    def found(self, name: str, value: Any, words: str) -> None:
        """Keeps the measured value of a field."""
        self.adapter = replace(self.adapter, **{name: value})
        self.evidence[name] = words

    def unknown(self, name: str, why: str = "no call that tells it runs") -> None:
        """Keeps why a field is not measured."""
        self.unmeasured.setdefault(name, why)

    @property
    def mask_sizes(self) -> dict[str, int]:
        """Sizes of calls with masks or biases; rows of several entries have none in common."""
        return self.sizes | ({"B": 1} if self.adapter.layout == "THD" else {})

    def has(self, role: str) -> bool:
        """Whether the function has a parameter for a role."""
        return role in self.adapter.parameters

    def ask(self, call: Call, adapter: Adapter | None = None) -> Answer:
        """The answer to a call; "absent" if the function cannot be given it, or too many calls failed before."""
        self.ended = self.ended or self.failures >= FAILURES or now() - self.started > SECONDS
        absent = Answer(status="absent", words="no call ran")
        if self.ended:
            return absent
        try:
            answer = self.session.call(call, adapter or self.adapter)
        except (Absent, Refused):  # no such argument, or arrays of a library that is not installed
            return absent
        self.failures += answer.status in ("timeout", "crashed")
        return answer

    def call(self, sizes: Mapping[str, int] | None = None, **arguments: Any) -> Call:
        """A call with q = 0, so that weights are uniform whatever the scale, and values one-hot over the keys."""
        size = {**self.sizes, **(sizes or {})}
        dtype = dtype_of(self.dtype)
        arrays = {
            "q": np.zeros(shape_of("q", size)),
            **normal(size, 5, "k"),
            "v": np.broadcast_to(np.eye(size["K"], size["E"]), shape_of("v", size)),
        }
        given: dict[str, Any] = {
            name: np.ascontiguousarray(arguments.pop(name, array)).astype(dtype) for name, array in arrays.items()
        }
        return Call(**given, **arguments)

    def weights(self, sizes: Mapping[str, int] | None = None, adapter: Adapter | None = None, **arguments: Any):
        """The weights (B, H, Q, K) of such a call, read from its output; None if it does not run."""
        call = self.call(sizes, **arguments)
        answer = self.ask(call, adapter)
        return None if answer.out is None else answer.out[..., : call.dims["K"]]

    def attended(self, sizes: Mapping[str, int] | None = None, adapter: Adapter | None = None, **arguments: Any):
        """Which keys each row attends to, (B, H, Q, K); None if the call does not run."""
        weights = self.weights(sizes, adapter, **arguments)
        return None if weights is None else np.nan_to_num(weights) > 0.1 / weights.shape[-1]

    def close(self, first: Any, second: Any) -> bool:
        """Whether two arrays agree to what the dtype of the calls can hold."""
        row = FLOATS[self.dtype]
        most = max(10 * row.roundoff, 1e-6 if row.bits > 32 else 1e-4)  # functions may use float32 or TF32 inside
        return bool(np.allclose(first, second, rtol=most, atol=most))
