"""Measurements of what rows attend to: what true means in a mask, which shapes are accepted, biases, rows that may
attend to nothing, how causal masks and windows are aligned, and what the number of a window counts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....common.text.units import counted
from ..fields import CHOICES
from ..layouts import reduced, resized
from .probe import Probe, dtype_of, law, normal, plain

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
            listed = [axes for axes in ran if axes in shapes[polarity] or (len(axes) == 4 and _distinct(probe))]
            probe.found("mask_shapes", tuple(listed), f"masks of the shapes {', '.join(listed)} hide what they say")
            return
    for name in ("mask", "mask_shapes"):
        probe.unknown(name, "no call with a mask runs and hides what the mask says")


def _distinct(probe: Probe) -> bool:
    """Whether no axis of a mask can be taken for another one."""
    return len({probe.sizes[axis] for axis in "BHQK"}) == 4


def _shapes(probe: Probe) -> list[str]:
    """The shapes to try, each once for the layout."""
    layout = "HSD" if probe.adapter.layout == "THD" else probe.adapter.layout
    declared = probe.adapter.mask_shapes
    found: dict[str, str] = {}
    for axes in (*declared, *CHOICES["mask_shapes"]):
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
