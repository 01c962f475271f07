"""The answers of functions with known mistakes to the probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..answer import Answer
from ..law.arguments import Arguments
from ..law.backward import backward
from ..law.forward import forward
from ..law.meaning import meaning
from .mistake import Mistake
from .probes import Probe

Function = Callable[[Probe], Arguments]


def mistaken(*mistakes: Mistake) -> Function:
    """A function with these mistakes: the arguments with which it computes a probe."""

    def arguments(probe: Probe) -> Arguments:
        found = meaning(probe.call, probe.adapter)
        for mistake in mistakes:
            found = mistake.change(found) or found
        return found

    return arguments


def answer_of(function: Function, probe: Probe) -> Answer:
    """The answer of a function to a probe, rounded to the dtype of the call."""
    call, arguments = probe.call, function(probe)
    outcome = forward(arguments, call.q, call.k, call.v)
    gradients = {}
    if call.dout is not None:
        gradients = backward(arguments, call.q, call.k, call.v, call.dout, call.dlse)
    with np.errstate(all="ignore"):
        return Answer(
            status="ok",
            out=_rounded(outcome.out, call.dtype),
            lse=_rounded(outcome.lse, np.float64 if call.dtype == np.float64 else np.float32),
            gradients={role: _rounded(part, call.dtype) for role, part in gradients.items()},
            dtype=str(call.dtype),
        )


def _rounded(array: np.ndarray, dtype: Any) -> np.ndarray:
    return array.astype(dtype).astype(np.float64)
