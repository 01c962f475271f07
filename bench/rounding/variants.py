"""How much of the bounds legitimate computations in one dtype need, measured over random calls: the constants of the
bounds. `python -m bench.rounding.variants` prints them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import numpy as np

from bench.rounding.computations import VARIANTS, results
from regard.common.dtypes import FLOATS
from regard.conformance.conventions.fields import Adapter
from regard.laws.backward import backward
from regard.laws.bound import CONSTANTS, bound, compare, gradient_bounds
from regard.laws.call import Call
from regard.laws.forward import forward, meaning

__all__ = ["call", "needed", "spread"]

STEP = 2**0.125  # constants are tried in steps of this factor
LOW, HIGH = -64, 80  # from 2**-8 to 2**10


def call(seed: int, dtype: str, keys: int = 64) -> Call:
    """A random call: sizes of scores from nearly 0 to 10,000, masks, rules, sinks, and values of several kinds."""
    rng = np.random.default_rng([seed, keys])
    kind = FLOATS[dtype].numpy

    def some(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    B, G, each = some(1, 2), some(1, 2), some(1, 2)
    H, K = G * each, int(rng.integers(1, keys + 1)) if keys <= 512 else keys
    Q = int(rng.integers(1, 9 if keys > 64 else 17))
    D, E = some(1, 2, 3, 8, 16, 64, 128), some(1, 2, 5, 16, 64)

    def array(*shape: int, size: float = 1.0) -> np.ndarray:
        drawn = {
            "normal": lambda: rng.standard_normal(shape),
            "positive": lambda: rng.random(shape),
            "shifted": lambda: 5 + rng.standard_normal(shape),
            "wide": lambda: rng.standard_normal(shape) * np.exp(2 * rng.standard_normal(shape)),
            "sparse": lambda: rng.standard_normal(shape) * (rng.random(shape) < 0.3),
            "equal": lambda: np.full(shape, rng.standard_normal()),
            "same rows": lambda: np.broadcast_to(rng.standard_normal(shape[-1]), shape),
        }[some("normal", "normal", "positive", "shifted", "wide", "sparse", "same rows", "equal")]()
        most = 3e4 if FLOATS[dtype].small_range else np.inf
        return np.clip(size * drawn, -most, most).astype(np.float32).astype(kind)

    scale = some(None, None, 1.0, 0.1)
    size = some(0.01, 1.0, 1.0, 1.0, 3.0, 10.0, 100.0, 1e3, 1e4)
    if FLOATS[dtype].small_range:
        size = min(size, 1e3)
    root = (size / ((D**-0.5 if scale is None else scale) * D**0.5)) ** 0.5
    given: dict[str, Any] = {"scale": scale, "causal": some(True, False)}
    if some(True, False):
        given["mask"] = rng.random((some(1, B), some(1, H), some(1, Q), K)) < some(0.1, 0.6, 0.95)
    if some(True, False, False):
        given["window"] = (int(rng.integers(0, K + 1)), some(None, 0, 3))
    if some(True, False, False):
        given["lengths"] = rng.integers(0, K + 1, B)
    if some(True, False, False):
        given["softcap"] = some(1.0, 10.0, 50.0)
    if some(True, False):
        given["bias"] = array(some(1, B), some(1, H), some(1, Q), K, size=some(0.1, 1.0, 10.0))
    if some(True, False, False):
        given["sinks"] = array(H, size=some(1.0, 10.0))
    return Call(
        q=array(B, H, Q, D, size=root),
        k=array(B, G, K, D, size=root),
        v=array(B, G, K, E),
        dout=array(B, H, Q, E),
        dlse=some(None, array(B, H, Q)),
        **given,
    )


def needed(case: Call, adapter: Adapter | None = None) -> dict[str, dict[str, float]]:
    """The smallest constant with which each variant is within the bounds, by variant and result."""
    arguments = meaning(case, adapter or Adapter())
    outcome = forward(arguments, case.q, case.k, case.v)
    gradients = {} if case.dout is None else backward(arguments, case.q, case.k, case.v, case.dout, case.dlse)
    expected = dict(zip(("out", "lse", "weights"), outcome)) | gradients

    @cache
    def of_results(step: int) -> dict[str, np.ndarray]:
        return bound(arguments, outcome, case, dict.fromkeys(CONSTANTS, STEP**step))._asdict()

    @cache
    def of_gradients(step: int) -> dict[str, np.ndarray]:
        return gradient_bounds(arguments, outcome, case, gradients, dict.fromkeys(CONSTANTS, STEP**step))

    def right(what: str, got: np.ndarray, step: int) -> bool:
        return compare(got, expected[what], (of_gradients if what in gradients else of_results)(step)[what])[0]

    found: dict[str, dict[str, float]] = {}
    for variant in VARIANTS:
        if not variant.legitimate(case.k.shape[2]):
            continue
        got = results(variant, arguments, outcome, case)
        all_results = {"out": got.out, "lse": got.lse, "weights": got.weights} | got.gradients
        found[variant.name] = {what: smallest(partial(right, what, each)) for what, each in all_results.items()}
    return found


def smallest(right: Callable[[int], bool]) -> float:
    """The smallest constant that is right, by bisection; ∞ if none is."""
    low, high = LOW, HIGH
    if not right(high):
        return math.inf
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if right(middle) else (middle + 1, high)
    return STEP**low


def spread(cases: Iterable[Call]) -> dict[str, dict[str, float]]:
    """The largest constant that each variant needs in some calls, by variant and result."""
    found: dict[str, dict[str, float]] = {variant.name: dict.fromkeys(CONSTANTS, 0.0) for variant in VARIANTS}
    for case in cases:
        for name, each in needed(case).items():
            for what, constant in each.items():
                found[name][what] = max(found[name][what], constant)
    return found


def main(first: int = 10000, seeds: int = 60) -> None:
    """Print the constant that each variant needs for each result, and twice the largest."""
    cases = (
        call(seed, dtype, keys)
        for dtype in FLOATS
        for keys, count in ((4, seeds), (64, seeds), (512, seeds // 4), (4096, seeds // 12))
        for seed in range(first, first + count)
    )
    found = spread(cases)
    print(f"{'':32}" + "".join(f"{what:>9}" for what in CONSTANTS))
    for name, row in found.items():
        print(f"{name:32}" + "".join(f"{row[what]:9.3f}" for what in CONSTANTS))
    largest = {what: max(row[what] for row in found.values()) for what in CONSTANTS}
    print(f"{'twice the largest':32}" + "".join(f"{2 * each:9.2f}" for each in largest.values()))
    print(f"{'in use':32}" + "".join(f"{each:9.2f}" for each in CONSTANTS.values()))


if __name__ == "__main__":
    main()
