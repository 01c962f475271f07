"""Draws the arrays of calls: every array follows from a seed and the name of its case."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from ...common.dtypes import FLOATS
from ..call import Call


class Draw:
    """Draws calls for the case with a name. Scores have a deviation of about 2, so that weights differ."""

    def __init__(self, seed: int, name: str):
        self.rng = np.random.default_rng([seed, zlib.crc32(name.encode())])

    def arrays(self, *, B=2, H=4, G=4, Q=5, K=7, D=8, E=8, dtype="float32", size=1.4) -> dict[str, np.ndarray]:
        """q, k and v of these sizes; size: the deviation of the entries of q and k."""
        kind = FLOATS[dtype].numpy
        shapes = {"q": (B, H, Q, D), "k": (B, G, K, D), "v": (B, G, K, E)}
        sizes = {"q": size, "k": size, "v": 1.0}
        return {
            name: (sizes[name] * self.rng.standard_normal(shape)).astype(np.float32).astype(kind)
            for name, shape in shapes.items()
        }

    def mask(self, *shape: int, share=0.6) -> np.ndarray:
        """A random mask in which every row may attend to something, and no row to everything where that is possible."""
        mask = self.rng.random(shape) < share
        K = shape[-1]
        if K:
            np.put_along_axis(mask, self.rng.integers(0, K, shape[:-1])[..., None], True, -1)
        return mask

    def bias(self, *shape: int) -> np.ndarray:
        """A random bias in float32."""
        return self.rng.standard_normal(shape).astype(np.float32)

    def call(self, **given: Any) -> Call:
        """A call: sizes and dtype as for `arrays`, and fields of `Call`."""
        sizes = {
            name: given.pop(name) for name in ("B", "H", "G", "Q", "K", "D", "E", "dtype", "size") if name in given
        }
        if "H" in sizes and "G" not in sizes:
            sizes["G"] = sizes["H"]
        if "Q" in sizes and "K" not in sizes:
            sizes["K"] = sizes["Q"]
        if "D" in sizes and "E" not in sizes:
            sizes["E"] = sizes["D"]
        return Call(**(self.arrays(**sizes) | given))


def resized(shape: str, B: int, H: int, Q: int, K: int) -> tuple[int, ...]:
    """The canonical shape of a mask that is passed in one of the shapes of `CHOICES["mask_shapes"]`.

    >>> resized("BK", 2, 4, 5, 7), resized("1HQK", 2, 4, 5, 7)
    ((2, 1, 1, 7), (1, 4, 5, 7))
    """
    full = {"B": B, "H": H, "Q": Q, "K": K}
    return tuple(full[axis] if axis in shape else 1 for axis in "BHQK")
