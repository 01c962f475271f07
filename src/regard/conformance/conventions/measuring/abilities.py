"""Measurements of abilities: the dtypes that run, and gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....common.dtypes import FLOATS
from ....laws.expected import expected
from ...cases.case import resized
from .probe import Probe

SAFE = 0.5  # of the bound: other calls may have larger errors


def measure_dtypes(probe: Probe) -> None:
    """The dtypes that run, are returned as they came, and in which errors are those of the dtype: a function that
    computes in float32 inside takes float64, but has not got its precision.
    """
    own, found, failing = probe.dtype, [], {}
    for name in FLOATS:
        probe.dtype = name
        if name == own:
            answer = probe.ask(probe.call())
            runs = answer is not None and answer.out is not None
        else:
            runs = all(_is_accurate(probe, keys) for keys in (probe.sizes["K"], *((64,) if _any_keys(probe) else ())))
        if runs and name != own and (words := _error_with_a_mask(probe)):
            failing[name] = words
        elif runs:
            found.append(name)
    probe.dtype = own
    if found:
        probe.found("dtypes", tuple(found), f"calls in {', '.join(found)} run and return that dtype")
    probe.failing_dtypes = failing


def _error_with_a_mask(probe: Probe) -> str:
    """Why a call with a mask raises; "" if it runs, or no call with one does."""
    if not probe.has("mask") or "mask" in probe.unmeasured:
        return ""
    sizes = probe.mask_sizes
    shape = resized(probe.adapter.mask_shapes[0], sizes)
    mask = np.broadcast_to(np.arange(sizes["K"]) < sizes["K"] - 1, shape)
    answer = probe.ask(probe.call(sizes, mask=mask))
    return answer.words if answer is not None and answer.status == "raised" else ""


def _any_keys(probe: Probe) -> bool:
    """Whether the number of keys is free of the other sizes."""
    return len({probe.sizes[axis] for axis in "QKE"}) == 3


def _is_accurate(probe: Probe, keys: int) -> bool:
    """Whether a call of random numbers is well within the bound of the dtype."""
    sizes = probe.sizes | {"K": keys}
    rng = np.random.default_rng(11)
    arrays = {
        name: rng.standard_normal((sizes["B"], sizes[heads], sizes[rows], sizes[depth]))
        for name, heads, rows, depth in (("q", "H", "Q", "D"), ("k", "G", "K", "D"), ("v", "G", "K", "E"))
    }
    call = probe.call(sizes, **arrays)
    answer = probe.ask(call)
    if answer is None or answer.out is None or answer.dtype != probe.dtype:
        return False
    return expected(call, probe.adapter).judge(answer).ratio < SAFE


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
