"""Measurements of abilities: the dtypes that run, and gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .probe import Probe

__all__ = ["measure_dtypes", "measure_gradients"]

DTYPES = ("float32", "float64", "float16", "bfloat16")


def measure_dtypes(probe: Probe) -> None:
    """The dtypes that run and are returned as they came."""
    own, found = probe.dtype, []
    for name in DTYPES:
        probe.dtype = name
        answer = probe.ask(probe.call())
        if answer is not None and answer.out is not None and (answer.dtype == name or name == own):
            found.append(name)
    probe.dtype = own
    if found:
        probe.found("dtypes", tuple(found), f"calls in {', '.join(found)} run and return that dtype")


def measure_gradients(probe: Probe) -> None:
    """Whether the framework of the arrays computes gradients."""
    kind = probe.adapter.arrays
    if kind == "numpy":
        probe.found("gradients", "none", "NumPy arrays have no gradients")
        return
    call = probe.call()
    sizes = call.dims
    dout = np.ones((sizes["B"], sizes["H"], sizes["Q"], sizes["E"])).astype(call.dtype)
    answer = probe.ask(replace(call, dout=dout), replace(probe.adapter, gradients=kind))
    runs = answer is not None and answer.status == "ok" and {"q", "k", "v"} <= set(answer.gradients)
    words = f"{kind} computes the gradients of q, k and v" if runs else f"{kind} computes no gradients through it"
    probe.found("gradients", kind if runs else "none", words)
