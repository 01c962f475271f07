"""regard, called as its users call it: NumPy arrays, a mask and a score."""

from __future__ import annotations

import numpy as np

from ...attention import attention, attention_with_lse
from ...gradients import attention_backward
from ..cases import Inputs
from . import Form


def forms(inputs: Inputs) -> list[Form]:
    q, k, v, dout = inputs.q, inputs.k, inputs.v, inputs.dout
    rules = {"mask": inputs.mask, "score": inputs.score, "engine": "jit"}

    def forward():
        return (attention(q, k, v, **rules),)

    def gradients():
        out, lse = attention_with_lse(q, k, v, **rules)
        return attention_backward(dout, q, k, v, out=out, lse=lse, **rules)[:3]

    def read(found) -> tuple[np.ndarray, ...]:
        return tuple(array.astype(np.float32) for array in found)

    return [Form("", gradients if inputs.case.task == "gradients" else forward, read)]
