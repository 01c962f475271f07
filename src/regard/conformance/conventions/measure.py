"""Measures the conventions of a function with small calls, and compares them with what is declared: what rows attend
to, numbers, dtypes and gradients. `find` (probe.py) comes first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from ...common.dtypes import FLOATS
from ...common.text.units import counted
from ...laws.call import shape_of
from ...laws.expected import expected
from .fields import CHOICES, Adapter
from .layouts import MISSING, reduced, resized
from .parameters import Parameter, completed
from .probe import Probe, dtype_of, find, law, normal, plain, sizes_for, with_flags
from .translate import Asks

SAID = {"true-attends": "rows attend where the mask is true", "true-hides": "rows attend where the mask is false"}


def measure_masks(probe: Probe) -> None:
    """Polarity and shapes of the mask."""
    if not probe.has("mask"):
        if probe.has("bias"):
            measure_shapes_of_bias(probe)
        return
    sizes = probe.mask_sizes
    allowed = plain(probe.adapter, sizes).allowed
    # With a boolean mask, the opposite of the pattern tells the two polarities apart in one call.
    additive = probe.adapter.mask == "additive"
    for requested in ("additive", "true-attends") if additive else ("true-attends", "additive"):
        shapes: dict[str, list[str]] = {}
        ran = []
        for axes in _shapes(probe):
            mask = _pattern(probe, axes)
            seen = probe.attended(sizes, replace(probe.adapter, mask=requested, mask_shapes=(axes,)), mask=mask)
            if seen is not None:
                ran.append(axes)
                polarity = _polarity(mask, seen, allowed, requested)
                if polarity is not None:
                    shapes.setdefault(polarity, []).append(axes)
        if shapes:
            polarity = max(shapes, key=lambda each: len(shapes[each]))
            words = SAID.get(polarity, "rows attend where 0 is added to the score, not where −inf is")
            if requested == "additive":
                words += "; a boolean mask does not hide"
            probe.found("mask", polarity, words)
            # A mask with all four axes means the same everywhere: one that is read in another way is a mistake.
            distinct = len({probe.sizes[axis] for axis in "BHQK"}) == 4  # no axis can be taken for another one
            listed = [axes for axes in ran if axes in shapes[polarity] or (len(axes) == 4 and distinct)]
            probe.found("mask_shapes", tuple(listed), f"masks of the shapes {', '.join(listed)} hide what they say")
            return
    for name in ("mask", "mask_shapes"):
        probe.unknown(name, "no call with a mask runs and hides what the mask says")


def _shapes(probe: Probe) -> list[str]:
    """The shapes to try, each once for the layout."""
    layout = "HSD" if probe.adapter.layout == "THD" else probe.adapter.layout
    found: dict[str, str] = {}
    for axes in (*probe.adapter.mask_shapes, *CHOICES["mask_shapes"]):
        found.setdefault(reduced(axes, layout), axes)
    return list(found.values())


def _pattern(probe: Probe, axes: str) -> np.ndarray:
    """A mask (B or 1, H or 1, Q or 1, K) in which every row attends to some keys and not to others, key 0 in turns."""
    shape = resized(axes, probe.mask_sizes)
    return np.add.outer(np.arange(np.prod(shape[:3])) * 3, np.arange(shape[3])).reshape(shape) % 7 % 3 == 0


def _polarity(mask: np.ndarray, seen: np.ndarray, allowed: np.ndarray, requested: str) -> str | None:
    """Which polarity explains what was seen, in rows that it leaves some keys; None if none does. allowed: without a
    mask
    """
    choices = {"additive": mask} if requested == "additive" else {"true-attends": mask, "true-hides": ~mask}
    for polarity, pattern in choices.items():
        expected = pattern & allowed
        rows = expected.any(-1)
        if rows.any() and (seen == expected)[rows].all():
            return polarity
    return None


def measure_shapes_of_bias(probe: Probe) -> None:
    """The accepted shapes of the bias, without a mask."""
    name = probe.adapter.parameters["bias"]
    shapes = [axes for axes in _shapes(probe) if _bias_is_added(probe, axes, name)]
    if shapes:
        probe.found("mask_shapes", tuple(shapes), f"biases of the shapes {', '.join(shapes)} are added")
    else:
        probe.unknown("mask_shapes", "no call with a bias runs and adds it")


def _bias_is_added(probe: Probe, axes: str, name: str) -> bool:
    """Whether a bias of such a shape, passed to a parameter, is added to the scores."""
    adapter = replace(probe.adapter, mask_shapes=(axes,), parameters={**probe.adapter.parameters, "bias": name})
    call = probe.call(probe.mask_sizes, bias=_pattern(probe, axes).astype(dtype_of(probe.dtype)))
    answer = probe.ask(call, adapter)
    return answer.out is not None and probe.close(answer.out, law(call, adapter).out)


def measure_bias(probe: Probe) -> None:
    """Whether the parameter of the mask takes biases, if no other does."""
    names = probe.adapter.parameters
    if "bias" in names or "mask" not in names or "mask" in probe.unmeasured:
        return
    if _bias_is_added(probe, probe.adapter.mask_shapes[0], names["mask"]):
        words = f"floats passed as {names['mask']} are added to the scores"
        probe.found("parameters", {**names, "bias": names["mask"]}, words)


def measure_empty_rows(probe: Probe) -> None:
    """What a row gives that may attend to nothing."""
    adapter, sizes = probe.adapter, probe.mask_sizes
    case = _empty_row(probe, sizes)
    if case is None:
        if probe.unmeasured.keys() & {"mask", "causal"}:
            _unknown(probe)
        return
    arguments, changed, row = case
    sizes = sizes | changed
    call = probe.call(sizes, **normal(sizes, 7, "v"), **arguments)
    answer = probe.ask(call)
    if answer.out is None:
        _unknown(probe)
        return
    out, values = answer.out[0, :, row], call.v[0].astype(np.float64)
    allowed = plain(adapter, sizes).allowed[0, 0, row]
    means = [values.mean(1), (allowed @ values) / max(allowed.sum(), 1)]
    choices = (
        ("zero", "0", bool((out == 0).all())),
        ("nan", "NaN", bool(np.isnan(out).all())),
        ("mean", "the mean of all values", any(probe.close(out, mean) for mean in means)),
    )
    # A row without any key has no mean, and 0 and −∞ come of themselves: only other results say something.
    keyless = adapter.layout == "THD" and "lengths" in arguments
    for value, words, holds in choices:
        if holds and (value == "nan" or not keyless):
            probe.found("empty_row", value, f"a row that may attend to nothing gives {words}")
            break
    if answer.lse is not None:
        lse = answer.lse[0, :, row]
        for value, number in (("-inf", -np.inf), ("inf", np.inf)):
            if (lse == number).all() and (value == "inf" or not keyless):
                probe.found("empty_lse", value, f"the lse of a row that may attend to nothing is {number}")


def _empty_row(probe: Probe, sizes: dict[str, int]) -> tuple[dict, dict[str, int], int] | None:
    """Arguments that leave nothing to a row of the first batch entry, the sizes of such a call, and the row."""
    adapter = probe.adapter
    if probe.has("mask") and "mask" not in probe.unmeasured:
        axes = adapter.mask_shapes[0]
        mask = np.ones(resized(axes, sizes), bool)
        mask[0, :, min(1, mask.shape[2] - 1)] = False
        return {"mask": mask}, {}, 1
    B = probe.sizes["B"]
    lengths = {"lengths": np.array([0] + [sizes["K"]] * (B - 1))}
    if probe.has("lengths") and not adapter.packed:
        return lengths, {}, 1
    longer = _longer(probe, sizes)
    if longer is None and adapter.packed and probe.has("cu_seqlens_k") and B != 1:
        return lengths, {"B": B}, 1  # a packed batch entry that has no keys
    return longer


def _longer(probe: Probe, sizes: dict[str, int]) -> tuple[dict, dict[str, int], int] | None:
    """A causal call, or one with a window, that has more rows than keys."""
    adapter = probe.adapter
    if sizes["Q"] == sizes["K"] or "causal" in probe.unmeasured:
        return None
    # More rows than keys: the first or the last have none.
    keys = sizes["Q"] if sizes["E"] != sizes["D"] else sizes["K"]
    longer = {"Q": keys + 2, "K": keys}
    if adapter.causal == "bottom-right" and (probe.has("causal") or "causal" in adapter.always):
        return {"causal": True}, longer, 1
    if (probe.has("window") or probe.has("window_before")) and "window" not in probe.unmeasured:
        return {"window": (0, 0)}, longer, 1 if adapter.causal == "bottom-right" else keys + 1
    return None


def _unknown(probe: Probe) -> None:
    """Nothing is known of rows that may attend to nothing."""
    for name in ("empty_row", "empty_lse") if "lse" in probe.adapter.returns else ("empty_row",):
        probe.unknown(name)


def measure_causal(probe: Probe) -> None:
    """The alignment of causal masks."""
    Q, K = probe.sizes["Q"], probe.sizes["K"]
    if not probe.has("causal") and not probe.adapter.always:
        return
    seen = probe.attended(causal=True)
    if seen is None or Q == K:
        probe.unknown("causal", "a causal call does not run" if seen is None else "only as many rows as keys run")
        return
    for alignment, start in (("bottom-right", K - Q), ("top-left", 0)):
        if (seen == np.tri(Q, K, start, dtype=bool)).all():
            count = int(seen[0, 0, 0].sum())
            words = f"at {Q} rows over {K} keys, row 0 of a causal call attends to {counted(count, 'key')}"
            probe.found("causal", alignment, words)
            return
    row = ", ".join(map(str, np.flatnonzero(seen[0, 0, 0]))) or "none"
    words = f"at {Q} rows over {K} keys, row 0 of a causal call attends to the keys {row}"
    probe.unknown("causal", f"neither bottom-right nor top-left: {words}")


def measure_window(probe: Probe) -> None:
    """What the number or the pair of a window counts."""
    two = not probe.has("window")
    if two and not probe.has("window_before"):
        return
    pair, number = replace(probe.adapter, window="left-right"), replace(probe.adapter, window="both-sides")
    # A pair (2, 1); then the number 2, with and without a causal mask.
    tries = [(pair, (2, 1), False)] if two else [(pair, (2, 1), False), (number, (2, 2), False)]
    aligned = probe.has("causal") or bool(probe.adapter.always)  # then the alignment is known
    if aligned:
        tries += [(pair, (2, 1), True)] if two else [(number, (2, 2), True)]
    usual = probe.adapter.window == "self-included" and "window" not in probe.adapter.declared
    if not two and not usual and not probe.adapter.window.startswith("left"):  # a number is declared: that first
        tries.sort(key=lambda each: each[0] is not number)
    for adapter, window, causal in tries:
        seen = probe.attended(adapter=adapter, window=window, causal=causal)
        meanings = _meanings(adapter is pair, causal or bool(probe.adapter.always), two)
        for alignment in [probe.adapter.causal] if aligned else CHOICES["causal"]:
            found = None if seen is None else _convention(probe, seen, meanings, alignment)
            if found is not None:
                convention, counts = found
                words = f"with {'the pair (2, 1)' if adapter is pair else 'the number 2'}, {counts}"
                if not aligned and probe.sizes["Q"] != probe.sizes["K"]:
                    probe.found("causal", alignment, words)
                probe.found("window", convention, words)
                return
    probe.unknown("window", "no known way to count explains the keys that rows attend to")


def _convention(probe: Probe, seen: np.ndarray, meanings: Meanings, alignment: str) -> tuple[str, str] | None:
    """The convention that explains what was seen with this alignment, and words; None if none does."""
    Q, K = probe.sizes["Q"], probe.sizes["K"]
    allowed = plain(probe.adapter, probe.sizes).allowed
    offsets = np.arange(K) - np.arange(Q)[:, None] - (0 if alignment == "top-left" else K - Q)
    for (before, after), convention in meanings.items():
        expected = (offsets >= -before) & (True if after is None else offsets <= after) & allowed
        if (seen == expected).all():
            later = "and no limit after" if after is None else f"and {after} after"
            return convention, f"a row attends to {counted(before, 'key')} before its own position {later}"
    return None


# Windows (keys before, after), and the convention in which a pair or a number says them.
Meanings = dict[tuple[int, int | None], str]


def _meanings(pair: bool, causal: bool, two: bool) -> Meanings:
    """What the pair (2, 1) or the number 2 may mean. two: whether the pair is in two parameters, of which the first
    alone may count the row itself.
    """
    if pair:
        if causal:
            return {(2, 0): "left-right", (1, 0): "left-right-self-included"}
        first: Meanings = {(1, 1): "self-included"} if two else {}
        return first | {(2, 1): "left-right", (1, 0): "left-right-self-included"}
    if causal:
        return {(1, 0): "self-included", (2, 0): "self-excluded"}
    return {
        (1, 0): "self-included",
        (1, None): "self-included",
        (2, 0): "self-excluded",
        (2, None): "self-excluded",
        (2, 2): "both-sides",
    }


SMALLEST = 1e-3  # a scale below is not distinguished from none


def measure_scale(probe: Probe) -> None:
    """The scale of a call that passes none: 1/√D, or a fixed number, which no size of the call changes."""
    size = probe.sizes
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
    usual = plain(probe.adapter, sizes)
    attended = usual.allowed
    several = attended.sum(-1) > 1
    if not several.any() or not (np.nan_to_num(weights)[attended] > 0).all():
        return None
    here = attended[several][-1]
    scores = np.log(weights[several][-1][here]) - usual.scores[several][-1][here]
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
    if not _is_accurate(probe, probe.sizes["K"]):
        probe.unknown("dtypes", f"results are wrong in {own} already")
        if not probe.adapter.declares("dtypes"):
            probe.found("dtypes", (own,), f"calls in {own} run")
        return
    more = (64,) if len({probe.sizes[axis] for axis in "QKE"}) == 3 else ()  # the number of keys is free of the others
    for name in FLOATS:
        probe.dtype = name
        runs = name == own or all(_is_accurate(probe, keys) for keys in (probe.sizes["K"], *more))
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
    lost = answer.status in ("timeout", "crashed")  # which says nothing about others, so cases with gradients run
    runs = lost or {"q", "k", "v"} <= set(answer.gradients)
    words = f"{kind} computes the gradients of q, k and v" if runs else f"{kind} computes no gradients through it"
    probe.found("gradients", kind if runs else "none", words)


# Facts of a function that no law prescribes. The others are conventions, and those of the laws count if none is
# declared.
FACTS = (
    *("name", "arrays", "parameters", "fixed", "heads", "mask_shapes", "lse_layout", "dtypes", "gradients"),
    *("returns", "expected", "confirmed", "declared"),
)
STEPS = (
    *(measure_causal, measure_masks, measure_bias, measure_window, measure_scale, measure_groups, measure_lse),
    *(measure_empty_rows, measure_softcap, measure_dtypes, measure_gradients),
)


class Deviation(NamedTuple):
    """A convention that is not the declared one, or not that of the laws although nothing else is declared.

    field: its name · expected, measured: values · words: one sentence about both
    """

    field: str
    expected: Any
    measured: Any
    words: str


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured.

    adapter: everything that was measured, and what is declared where nothing could be · evidence: words by field ·
    deviations: from what is declared or from the laws · unmeasured: why the calls could not tell a field · runs:
    whether any call ran · words: what happened if none did
    """

    adapter: Adapter
    evidence: Mapping[str, str] = field(default_factory=dict)
    deviations: tuple[Deviation, ...] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    runs: bool = True
    words: str = ""


def measure(
    session: Asks, parameters: Sequence[Parameter], declared: Adapter | None = None, function: str = ""
) -> Measured:
    """The conventions of the function that a session calls.

    parameters: those of the function · declared: its adapter · function: its qualified name

    Raises:
        Refused: if the function requires a parameter whose role nothing says.
    """
    given = declared or Adapter()
    start = completed(given, parameters)
    probe = Probe(session, start)
    if not find(probe, parameters, function):
        first = probe.ask(probe.call({"B": 1, "H": 1, "G": 1, "Q": 2, "K": 2, "D": 2, "E": 2}), start)
        return Measured(adapter=start, runs=False, words=first.words)
    for step in (with_flags, *STEPS):
        adapter, evidence = probe.adapter, dict(probe.evidence)
        step(probe)
        if probe.ended:  # what a part of the calls says may be wrong
            probe.adapter, probe.evidence = adapter, evidence
            for name in CHOICES.keys() - evidence.keys():
                probe.unknown(name, "calls hung, crashed or took too long")
            break
    deviations = _deviations(given, probe)
    usual = probe.adapter.dtypes
    for name, error in probe.failing_dtypes.items():  # calls run, and calls with a mask do not
        words = f"{name} runs without a mask, and raises with one: {error}"
        deviations.append(Deviation("dtypes", (*usual, name), usual, words))
    names = [each.name for each in fields(Adapter) if each.name in probe.unmeasured]
    return Measured(
        adapter=_kept(given, probe.adapter),
        evidence=probe.evidence,
        deviations=tuple(deviations),
        unmeasured={name: probe.unmeasured[name] for name in names},
    )


def _kept(given: Adapter, measured: Adapter) -> Adapter:
    """The measured adapter; what is declared of facts and works is kept, even if more would."""
    changes: dict[str, Any] = {}
    for name in ("dtypes", "mask_shapes"):
        values = getattr(given, name)
        if given.declares(name) and set(values) <= set(getattr(measured, name)):
            changes[name] = values
    for name in ("empty_row", "empty_lse"):
        if _expected(given, name) == "any":
            changes[name] = "any"
    if "gradients" in given.declared and given.gradients == "none":
        changes["gradients"] = "none"
    return replace(measured, confirmed=given.confirmed, declared=given.declared, **changes)


def _expected(given: Adapter, name: str) -> Any:
    """The value that counts: the declared one, if it is confirmed, else that of the laws."""
    confirmed = given.confirmed if isinstance(given.confirmed, bool) else name in given.confirmed
    return getattr(given if confirmed else Adapter(), name)


def _deviations(given: Adapter, probe: Probe) -> list[Deviation]:
    """Where the measured conventions are not those that count."""
    found = []
    for name, words in probe.evidence.items():
        measured, expected = getattr(probe.adapter, name), _expected(given, name)
        declared = given.declares(name)
        undisputed = not declared or measured == getattr(given, name)
        if name in FACTS:
            if not declared or name == "parameters" or _agrees(name, getattr(given, name), measured):
                continue
            expected = getattr(given, name)
        elif measured == expected or expected == "any" or (_is_textbook(name, measured) and undisputed):
            continue
        who = "declared" if expected == getattr(given, name) and declared else "the textbook"
        text = f"{who}: {_shown(name, expected)}; measured: {_shown(name, measured)} ({words})"
        found.append(Deviation(name, expected, measured, text))
    return found


def _agrees(name: str, declared: Any, measured: Any) -> bool:
    """Whether a declared fact holds; of several values, each must."""
    if name in ("dtypes", "mask_shapes"):
        return set(declared) <= set(measured)
    return declared == measured or (name == "gradients" and declared == "none")


def _is_textbook(name: str, measured: Any) -> bool:
    """Whether a value breaks no law although it is not the usual one: pairs that count keys, heads that share none,
    and arrays that cannot be taken for (batch, heads, rows, depth)."""
    if name == "layout":
        return measured not in ("BSHD", "SBHD")
    return (name, measured) in (("window", "left-right"), ("groups", "none"))


def _shown(name: str, value: Any) -> str:
    """A value in words."""
    if name == "scale":
        return "1/√D" if value is None else f"{value:.6g}"
    if name == "always":
        return ", ".join(value) or "nothing is always masked"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
