"""Measurements of numbers: the scale, the base of lse, the order of cap and bias, how heads share keys, the dtypes
that run, and gradients.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ....common.dtypes import FLOATS
from ....laws.call import shape_of
from ....laws.expected import expected
from ..layouts import MISSING, resized
from .probe import Probe, dtype_of, law, normal, plain, sizes_for

SMALLEST = 1e-3  # a scale below is not distinguished from none


def measure_scale(probe: Probe) -> None:
    """The scale of a call that passes none: 1/√D, or a fixed number, which no size of the call changes."""
    size = dict(probe.sizes)
    first, depth = _scale(probe, size), size["D"]
    if first is None:
        probe.unknown("scale", "no number explains the weights of known scores")
        return
    words = f"at depth {depth}, scores are {first:.4g} times q·k"
    wide = size | {"D": 4 * depth, "E": 4 * depth if size["E"] == depth else size["E"]}
    fewer = {"K": size["K"] - 1, "Q": size["Q"] - (size["Q"] == size["K"]), "H": size["H"] + 1, "G": size["H"] + 1}
    # The number of heads may be fixed.
    runs = (each for each in (wide | fewer, wide) if probe.weights(sizes_for(each, probe.adapter)) is not None)
    other = next(runs, None)
    second = None if other is None else _scale(probe, other)
    usual = _is_one(probe, first * math.sqrt(depth))
    if second is None or other is None:
        same = True
    else:
        words += f", at depth {other['D']} {second:.4g} times"
        usual = usual and _is_one(probe, second * math.sqrt(other["D"]))
        same = _is_one(probe, second / first)
    if usual:
        probe.found("scale", None, words)
    elif same:
        declared = probe.adapter.scale
        kept = declared is not None and _is_one(probe, first / declared)
        probe.found("scale", declared if kept else _rounded(first), words)
    else:  # it depends on the sizes in another way, which no number says: the laws report it
        probe.adapter = replace(probe.adapter, scale=None)
        probe.unknown("scale", f"neither 1/√D nor a fixed number: {words}")


def _scale(probe: Probe, sizes: dict[str, int]) -> float | None:
    """The number that multiplies q·k, from the weights of scores that are known; None if no number explains them."""
    sizes = sizes_for(sizes, probe.adapter)
    steps = np.linspace(-1, 1, sizes["K"])
    weights = probe.weights(sizes, **_with_products(sizes, steps))
    if weights is None:
        return None
    attended = plain(probe.adapter, sizes).allowed
    several = attended.sum(-1) > 1
    if not several.any() or not (np.nan_to_num(weights)[attended] > 0).all():
        return None
    here = attended[several][-1]
    scores = np.log(weights[several][-1][here]) - plain(probe.adapter, sizes).scores[several][-1][here]
    own = steps[here]
    scale, base = np.polyfit(own, scores, 1)
    explained = np.abs(scale * own + base - scores).max() < 50 * _unit(probe)
    return float(scale) if explained and scale > SMALLEST else None


def _with_products(sizes: dict[str, int], products: np.ndarray) -> dict[str, Any]:
    """q and k of which each row has the same products with the keys."""
    q, k = np.zeros(shape_of("q", sizes)), np.zeros(shape_of("k", sizes))
    q[..., 0], k[..., 0] = 1, products
    return {"q": q, "k": k}


def _unit(probe: Probe) -> float:
    row = FLOATS[probe.dtype]
    return max(4 * row.roundoff, 1e-9 if row.bits > 32 else 1e-5)


def _is_one(probe: Probe, ratio: float) -> bool:
    return abs(ratio - 1) < 20 * _unit(probe)


def _rounded(number: float) -> float:
    """A measured number without the digits that rounding made: 0.125, not 0.12500003."""
    for power in (number, number**-2 if number > 0 else number):
        whole = round(power * 1024) / 1024
        if whole and abs(power - whole) < 2e-4 * abs(whole):
            return whole if power is number else whole**-0.5
    return float(f"{number:.5g}")


def measure_groups(probe: Probe) -> None:
    """Which query heads share a key head."""
    layout = probe.adapter.layout
    if "H" in MISSING.get(layout, "") or (layout == "BSD" and "heads" not in probe.adapter.parameters):
        return
    sizes = probe.sizes | {"H": 4, "G": 2}
    v = np.empty((sizes["B"], 2, sizes["K"], sizes["E"]))
    v[:, 0], v[:, 1] = 1, 2
    answer = probe.ask(probe.call(sizes, v=v), replace(probe.adapter, groups="repeat-interleave"))
    if answer.status == "absent":
        return
    if answer.out is None:
        probe.found("groups", "none", "a call with 4 query heads over 2 key heads does not run")
        return
    heads = answer.out[:, :, -1, 0]
    for value, wanted in (("repeat-interleave", [1, 1, 2, 2]), ("tile", [1, 2, 1, 2])):
        if probe.close(heads, np.broadcast_to(wanted, heads.shape)):
            words = f"of 4 query heads over 2 key heads, the key heads are {', '.join(map(str, wanted))}"
            probe.found("groups", value, words)
            return
    read = ", ".join(f"{head - 1:.3g}" for head in np.atleast_2d(heads)[0])
    probe.unknown("groups", f"of 4 query heads over 2 key heads, the key heads are {read}")


def measure_lse(probe: Probe) -> None:
    """The base of lse: with q = 0 it is the logarithm of the number of attended keys."""
    if "lse" not in probe.adapter.returns:
        return
    call = probe.call()
    answer = probe.ask(call, replace(probe.adapter, lse="natural"))
    if answer.lse is None:
        probe.unknown("lse")
        return
    right = law(call, probe.adapter).lse
    last, seen = float(np.exp(right[0, 0, -1])), float(answer.lse[0, 0, -1])
    for value, wanted in (("natural", right), ("base-2", right / math.log(2))):
        if probe.close(answer.lse, wanted):
            words = f"the lse of queries of 0 is {seen:.4f}, the {value} logarithm of {last:.4g}"
            if value == "natural" and _ignores_scale(probe):
                value, words = "natural-unscaled", "the lse of known products is the same whatever the scale"
            probe.found("lse", value, words)
            probe.evidence["lse_layout"] = f"lse has the axes {probe.adapter.lse_layout}"
            return
    probe.unknown("lse", f"the lse of queries of 0 is {seen:.4g}, no logarithm of {last:.4g}")


def _ignores_scale(probe: Probe) -> bool:
    """Whether lse is that of q·k, not of scale · q·k."""
    call = probe.call(**_with_products(probe.sizes, np.linspace(-3, 3, probe.sizes["K"])))
    answer = probe.ask(call, replace(probe.adapter, lse="natural"))
    if answer.lse is None:
        return False
    usual, other = (expected(call, replace(probe.adapter, lse=kind)).lse for kind in ("natural", "natural-unscaled"))
    both = probe.close(usual, other)  # a scale of 1
    return probe.close(answer.lse, other) and (probe.adapter.lse == "natural-unscaled" or not both)


def measure_softcap(probe: Probe) -> None:
    """Whether the bias is added to capped scores, or capped with them."""
    if not (probe.has("softcap") and probe.has("bias")):
        return
    sizes = probe.mask_sizes
    bias = np.linspace(-2, 2, sizes["K"]).reshape(1, 1, 1, -1)
    call = probe.call(sizes, bias=bias.astype(dtype_of(probe.dtype)), softcap=1.0)
    answer = probe.ask(call)
    if answer.out is None:
        probe.unknown("softcap")
        return
    said = {"before-bias": "added to capped scores", "after-bias": "capped together with the scores"}
    for value, words in said.items():
        if probe.close(answer.out, law(call, replace(probe.adapter, softcap=value)).out):
            probe.found("softcap", value, f"a bias of up to 2 is {words} at a cap of 1")
            return
    probe.unknown("softcap", "a bias of up to 2 at a cap of 1 is neither added to capped scores nor capped with them")


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
            runs = answer.out is not None
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
    return answer.words if answer.status == "raised" else ""


def _any_keys(probe: Probe) -> bool:
    """Whether the number of keys is free of the other sizes."""
    return len({probe.sizes[axis] for axis in "QKE"}) == 3


def _is_accurate(probe: Probe, keys: int) -> bool:
    """Whether a call of random numbers is well within the bound of the dtype."""
    sizes = probe.sizes | {"K": keys}
    call = probe.call(sizes, **normal(sizes, 11))
    answer = probe.ask(call)
    if answer.out is None or answer.dtype != probe.dtype:
        return False
    return expected(call, probe.adapter).judge(answer).ratio < SAFE


def measure_gradients(probe: Probe) -> None:
    """Whether the framework of the arrays computes gradients."""
    kind = probe.adapter.arrays
    if kind == "numpy":
        probe.found("gradients", "none", "NumPy arrays have no gradients")
        return
    call = probe.call()
    dout = np.ones(shape_of("out", call.dims), call.dtype)
    answer = probe.ask(replace(call, dout=dout), replace(probe.adapter, gradients=kind))
    runs = answer.status == "ok" and {"q", "k", "v"} <= set(answer.gradients)
    words = f"{kind} computes the gradients of q, k and v" if runs else f"{kind} computes no gradients through it"
    probe.found("gradients", kind if runs else "none", words)
