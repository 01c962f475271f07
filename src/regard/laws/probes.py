"""Probes: fixed small calls that together separate the mistakes of the catalog, and what functions with mistakes answer
to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from .backward import backward
from .call import Answer, Call, Conventions
from .forward import forward, meaning
from .mistake import Mistake, apply

TEXTBOOK, OTHER = Conventions(), Conventions(causal="top-left", groups="tile")
CONVENTIONS = (TEXTBOOK, OTHER)


@dataclass(frozen=True, eq=False)
class Probe:
    """A call under some conventions. says: what it shows"""

    id: str
    says: str
    call: Call
    conventions: Conventions = TEXTBOOK


@cache
def probes(dtype: Any = np.float32) -> tuple[Probe, ...]:
    """The probes in a dtype; their numbers are the same in every process."""
    return (*_textbook(dtype), *_edges(dtype), *_gradients(dtype))


class _Drawn:
    """Calls of some sizes with normal numbers."""

    def __init__(self, seed: int, dtype: Any, sizes: tuple[int, int, int, int, int], D: int = 6, E: int = 0):
        B, H, G, Q, K = sizes
        self.rng, self.dtype = np.random.default_rng(seed), dtype
        self.shape = B, H, Q, K
        self.q, self.k, self.v = (self.normal(B, *size) for size in ((H, Q, D), (G, K, D), (G, K, E or D)))

    def normal(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(self.dtype)

    def allowed(self, *shape: int, empty: int | None = None) -> np.ndarray:
        """A random mask, whose row `empty` attends to nothing."""
        found = self.rng.random(shape) < 0.6
        found[..., 0] |= ~found.any(-1)
        if empty is not None:
            found[..., empty, :] = False
        return found

    def call(self, **arguments: Any) -> Call:
        return Call(**{"q": self.q, "k": self.k, "v": self.v} | arguments)


def _textbook(dtype: Any) -> tuple[Probe, ...]:
    square, pair = _Drawn(1, dtype, (2, 4, 2, 5, 5)), _Drawn(2, dtype, (1, 2, 2, 4, 4))
    short, long = _Drawn(3, dtype, (1, 2, 1, 3, 7)), _Drawn(4, dtype, (1, 2, 1, 6, 3))
    shape = square.shape
    bias = square.normal(*shape) * square.allowed(*shape)  # with zeros
    return (
        Probe("plain", "scale, groups, heads, batch entries", square.call()),
        Probe("heads", "as many key heads as query heads", pair.call()),
        Probe("one-row", "decoding: one row", _Drawn(5, dtype, (2, 4, 2, 1, 6)).call(causal=True)),
        Probe("scale", "another scale than 1/√D", square.call(scale=0.3)),
        Probe("causal", "as many rows as keys", square.call(causal=True)),
        Probe("causal-short", "fewer rows than keys", short.call(causal=True)),
        Probe("causal-long", "more rows than keys, so that some attend to nothing", long.call(causal=True)),
        Probe("mask", "another mask for each head and batch entry", square.call(mask=square.allowed(*shape, empty=2))),
        Probe("mask-short", "a mask of fewer rows than keys", short.call(mask=short.allowed(1, 2, 3, 7))),
        Probe("mask-causal", "a mask in a causal call", square.call(mask=square.allowed(*shape), causal=True)),
        Probe("window", "keys before a row and its own", square.call(causal=True, window=(2, 0))),
        Probe("window-0", "a row's own key alone", square.call(causal=True, window=(0, 0))),
        Probe("window-both", "keys before and after a row", square.call(window=(3, 1))),
        Probe("lengths", "padding", square.call(lengths=np.array([3, 4]))),
        Probe("bias", "a bias of each head and batch entry", square.call(bias=bias)),
        Probe("bias-square", "a bias for all heads", pair.call(bias=pair.normal(1, 1, 4, 4), scale=0.3)),
        Probe("softcap", "with a mask", square.call(softcap=1.2, mask=square.allowed(*shape))),
        Probe("softcap-bias", "a bias and a softcap", square.call(softcap=1.2, bias=square.normal(*shape))),
        Probe("sinks", "a sink in each head", square.call(sinks=square.normal(4))),
        Probe("depths", "an odd depth, and values of another", _Drawn(9, dtype, (2, 2, 2, 4, 5), 5, 3).call()),
        Probe("causal-many", "more rows than a block", _Drawn(10, dtype, (1, 1, 1, 70, 70), 2).call(causal=True)),
        Probe("float64", "small numbers that are added", _Drawn(11, np.float64, (1, 2, 2, 3, 6)).call()),
        Probe("top-left", "other conventions: rows from the first key", short.call(causal=True), OTHER),
        Probe("top-left-mask", "the same with a mask", short.call(mask=short.allowed(1, 2, 3, 7)), OTHER),
        Probe("tiled", "other conventions: heads in blocks", square.call(), OTHER),
    )


def _edges(dtype: Any) -> tuple[Probe, ...]:
    drawn = _Drawn(6, dtype, (1, 2, 1, 5, 5))
    large = drawn.q * 600
    low = np.full_like(drawn.q, 200), np.full_like(drawn.k, -200) + drawn.k
    apart = drawn.q * np.array([1, -300, 2, 300, 0.1])[:, None].astype(dtype)
    nan_v, nan_k = drawn.v.copy(), drawn.k.copy()
    nan_v[..., -1, 0], nan_k[..., -1, :] = np.nan, np.nan
    many = _Drawn(7, dtype, (1, 1, 1, 2, 250))
    mask, empty = drawn.allowed(1, 2, 5, 5), drawn.allowed(1, 2, 5, 5, empty=1)
    return (
        Probe("empty", "rows that attend to nothing", drawn.call(mask=empty)),
        Probe("empty-sinks", "such rows with sinks", drawn.call(mask=empty, sinks=drawn.normal(2))),
        Probe("large", "scores near 1000", drawn.call(q=large, mask=mask)),
        Probe("low", "scores near −80000, some masked", drawn.call(q=low[0], k=low[1], mask=mask)),
        Probe("apart", "rows of different sizes", drawn.call(q=apart)),
        Probe("nan-values", "NaN in a value that is masked", drawn.call(v=nan_v, lengths=np.array([4]))),
        Probe("nan-keys", "NaN in a masked key", drawn.call(k=nan_k, lengths=np.array([4]))),
        Probe("many-keys", "no whole number of blocks", many.call()),
    )


def _gradients(dtype: Any) -> tuple[Probe, ...]:
    drawn = _Drawn(8, dtype, (2, 2, 1, 3, 3), 2)
    dout, dlse, bias = drawn.normal(2, 2, 3, 2), drawn.normal(2, 2, 3), drawn.normal(1, 2, 3, 3)
    mask, nan = drawn.allowed(2, 2, 3, 3), drawn.v.copy()
    nan[..., -1, :] = np.nan
    equal = _Drawn(9, dtype, (2, 2, 2, 3, 3), 2)
    calls = (
        ("plain", "shared key heads", drawn.call()),
        ("heads", "as many key heads as query heads", equal.call()),
        ("scale", "another scale", drawn.call(scale=1.7)),
        ("mask", "a mask", drawn.call(mask=mask)),
        ("causal", "a causal mask", drawn.call(causal=True)),
        ("bias", "a bias that is the same for all batch entries", drawn.call(bias=bias)),
        ("softcap", "a softcap", drawn.call(softcap=0.5)),
        ("sinks", "sinks", drawn.call(sinks=drawn.normal(2))),
        ("empty", "a row that attends to nothing", drawn.call(mask=drawn.allowed(2, 2, 3, 3, empty=1))),
        ("nan", "NaN in a value that is masked", drawn.call(v=nan, lengths=np.array([2, 2]))),
    )
    return tuple(
        Probe(f"gradients-{name}", f"gradients with {says}", replace(call, dout=dout, dlse=dlse))
        for name, says, call in calls
    )


def answer_of(mistakes: Iterable[Mistake], probe: Probe) -> Answer:
    """The answer of a function with these mistakes to a probe, rounded to the dtype of the call."""
    call = probe.call
    arguments = apply(mistakes, meaning(call, probe.conventions))
    outcome = forward(arguments, call.q, call.k, call.v)
    gradients = {}
    if call.dout is not None:
        gradients = backward(arguments, call.q, call.k, call.v, call.dout, call.dlse)
    with np.errstate(all="ignore"):
        return Answer(
            status="ok",
            out=_rounded(outcome.out, call.dtype),
            lse=_rounded(outcome.lse, arguments.real),
            gradients={role: _rounded(part, call.dtype) for role, part in gradients.items()},
            dtype=str(call.dtype),
        )


def _rounded(array: np.ndarray, dtype: Any) -> np.ndarray:
    return array.astype(dtype).astype(np.float64)
