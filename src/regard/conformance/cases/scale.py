"""Level 5, scale: memory that grows with the rows, many rows and keys, every argument at sizes that take other paths,
and dropout.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..judge import Judge, unanswered
from .case import Case, Draw, Limits, Result

MANY = 8192  # rows of the case that measures memory: its matrix of weights has 256 MiB in float32
RATE = 0.3


def scale(limits: Limits, seed: int) -> Iterator[Case]:
    """The cases of level 5."""

    def case(name: str, law: int, says: str, check=None, sizes=None, **fields) -> Case:
        call = Draw(seed, name).call(**limits.sizes(**(sizes or {})), **fields)
        return Case(name=name, law=law, level=5, says=says, call=call, check=check)

    one = {"B": 1, "H": 1, "D": 16}
    yield case("memory", 0, "memory grows with the rows, not with their square", _memory, one | {"Q": MANY, "K": MANY})
    if limits.rectangular:
        yield case("rows-100000", 1, "many rows are as accurate as few", None, one | {"Q": 100_000, "K": 100})
        yield case("keys-1000000", 10, "many keys are as accurate as few", None, one | {"Q": 2, "K": 1_000_000})
    says = "an argument has the same meaning at every size"
    after = 100 if limits.adapter.window == "both-sides" else 0
    for Q in (257, 1100):
        sizes = {"B": 1, "H": 2, "Q": Q, "K": Q, "D": 32}
        for role, fields in (
            ("plain", {}),
            ("causal", {"causal": True}),
            ("window", {"window": (100, after)}),
            ("scale", {"scale": 0.05}),
            ("softcap", {"softcap": 3.0}),
            ("sinks", {"sinks": np.ones(limits.sizes(**sizes)["H"], np.float32)}),
        ):
            yield case(f"{role}-of-{Q}-rows", 13, says, None, sizes, **fields)
        if limits.takes("mask") and "QK" in limits.adapter.mask_shapes:
            name = f"mask-of-{Q}-rows"
            mask = Draw(seed, name).mask(1, 1, Q, Q)
            yield case(name, 13, says, None, sizes, mask=mask)
    if limits.takes("dropout"):
        yield _dropout(limits, seed)


def _memory(case: Case, judge: Judge) -> Result:
    answer = judge.ask(case.call)
    if answer.status != "ok":
        return unanswered(case, case.call, answer)
    Q, K = case.call.dims["Q"], case.call.dims["K"]
    matrix = Q * K * case.call.dtype.itemsize
    right = answer.peak < matrix // 2
    words = f"memory grew by {answer.peak / 2**20:.0f} MiB; the matrix of weights has {matrix / 2**20:.0f} MiB"
    return Result(
        case=case,
        status="pass" if right else "fail",
        words=words,
        call=case.call,
        answer=answer,
        numbers={"peak": answer.peak, "matrix": matrix},
    )


def _dropout(limits: Limits, seed: int) -> Case:
    """One-hot values, so that the output is the matrix of weights; the gradient of the output is the unit matrix, so
    that the gradient of the values is that matrix transposed.
    """
    n = 64
    sizes = limits.sizes(Q=n, K=n, D=n)
    B, H, G = sizes["B"], sizes["H"], sizes["H"]
    sizes["G"] = G
    draw = Draw(seed, "dropout")
    arrays = draw.arrays(**sizes)
    arrays["v"] = np.broadcast_to(np.eye(n, dtype=arrays["v"].dtype), (B, G, n, n)).copy()
    arrays["q"] = np.zeros_like(arrays["q"])
    dout = np.broadcast_to(np.eye(n, dtype=np.float32), (B, H, n, n)).astype(arrays["q"].dtype)
    call = draw.call(**sizes, **arrays, dropout=RATE, seed=7, dout=dout if limits.adapter.gradients != "none" else None)
    says = "dropout turns a share of the weights into 0 and divides the others by 1 − rate, forward and backward alike"
    return Case(name="dropout", law=9, level=5, says=says, call=call, check=_drops)


def _drops(case: Case, judge: Judge) -> Result:
    answer = judge.ask(case.call)
    if answer.status != "ok" or answer.out is None:
        return unanswered(case, case.call, answer)
    n = case.call.dims["K"]
    kept = answer.out != 0
    share = 1 - kept.mean()
    spread = 5 * np.sqrt(RATE * (1 - RATE) / kept.size)
    wrong = []
    if abs(share - RATE) > spread:
        wrong.append(f"{share:.3f} of the weights were dropped instead of {RATE}")
    elif not np.allclose(answer.out[kept], 1 / n / (1 - RATE), rtol=0.02):
        wrong.append(f"the other weights are not divided by 1 − {RATE}")
    if "v" in answer.gradients and not wrong:
        found = answer.gradients["v"].swapaxes(-1, -2)
        if found.shape == answer.out.shape and not np.array_equal(found != 0, kept):
            wrong.append("the backward pass drops other weights than the forward pass")
    return Result(
        case=case,
        status="fail" if wrong else "pass",
        words="; ".join(wrong),
        call=case.call,
        answer=answer,
        numbers={"share": float(share)},
    )
