"""Level 5, scale: memory that grows with the rows, many rows and keys, every argument at sizes that take other paths,
and dropout.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..judge import Judge, answered
from .case import Case, Limits, Maker, Result

MANY = 8192  # rows of the case that measures memory: its matrix of weights has 256 MiB in float32
RATE = 0.3


def scale(limits: Limits, seed: int) -> Iterator[Case]:
    """The cases of level 5."""
    maker = Maker(limits, seed, 5)
    one = {"B": 1, "H": 1, "D": 16}
    says = "memory grows with the rows, not with their square"
    yield maker.case("memory", 0, says, one | {"Q": MANY, "K": MANY}, check=_memory)
    if limits.rectangular:
        yield maker.case("rows-100000", 1, "many rows are as accurate as few", one | {"Q": 100_000, "K": 100})
        yield maker.case("keys-1000000", 10, "many keys are as accurate as few", one | {"Q": 2, "K": 1_000_000})
    says = "an argument has the same meaning at every size"
    for Q in (257, 1100):
        sizes = {"B": 1, "H": 2, "Q": Q, "K": Q, "D": 32}
        for role, fields in (
            ("plain", {}),
            ("causal", {"causal": True}),
            ("window", {"window": limits.window(100)}),
            ("scale", {"scale": 0.05}),
            ("softcap", {"softcap": 3.0}),
            ("sinks", {"sinks": np.ones(limits.sizes(**sizes)["H"], np.float32)}),
        ):
            yield maker.case(f"{role}-of-{Q}-rows", 13, says, sizes, **fields)
        if limits.takes("mask") and "QK" in limits.adapter.mask_shapes:
            yield maker.case(f"mask-of-{Q}-rows", 13, says, sizes, mask=lambda draw: draw.mask("QK"))
    if limits.takes("dropout"):
        yield _dropout(maker)


def _memory(case: Case, judge: Judge) -> Result:
    answer = judge.answer(case)
    matrix = case.call.dims["Q"] * case.call.dims["K"] * case.call.dtype.itemsize
    words = f"memory grew by {answer.peak / 2**20:.0f} MiB; the matrix of weights has {matrix / 2**20:.0f} MiB"
    return answered(case, answer, answer.peak < matrix // 2, words)


def _dropout(maker: Maker) -> Case:
    """One-hot values, so that the output is the matrix of weights; the gradient of the output is the unit matrix, so
    that the gradient of the values is that matrix transposed.
    """
    n = 64
    draw = maker.draw("dropout", {"Q": n, "K": n, "D": n})
    B, H = draw.sizes["B"], draw.sizes["H"]
    draw.sizes["G"] = H
    arrays = draw.arrays()
    arrays["v"] = np.broadcast_to(np.eye(n, dtype=arrays["v"].dtype), (B, H, n, n)).copy()
    arrays["q"] = np.zeros_like(arrays["q"])
    dout = None if maker.limits.adapter.gradients == "none" else arrays["v"]
    says = "dropout turns a share of the weights into 0 and divides the others by 1 − rate, forward and backward alike"
    return maker.case("dropout", 9, says, draw=draw, check=_drops, **arrays, dropout=RATE, seed=7, dout=dout)


def _drops(case: Case, judge: Judge) -> Result:
    answer = judge.answer(case)
    assert answer.out is not None
    n = case.call.dims["K"]
    kept = answer.out != 0
    share = 1 - kept.mean()
    spread = 5 * np.sqrt(RATE * (1 - RATE) / kept.size)
    words = ""
    if abs(share - RATE) > spread:
        words = f"{share:.3f} of the weights were dropped instead of {RATE}"
    elif not np.allclose(answer.out[kept], 1 / n / (1 - RATE), rtol=0.02):
        words = f"the other weights are not divided by 1 − {RATE}"
    elif "v" in answer.gradients:
        back = answer.gradients["v"].swapaxes(-1, -2)
        if back.shape == answer.out.shape and not np.array_equal(back != 0, kept):
            words = "the backward pass drops other weights than the forward pass"
    return answered(case, answer, not words, words)
