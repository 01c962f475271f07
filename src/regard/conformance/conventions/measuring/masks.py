"""Measurements of masks: what true means, which shapes are accepted, biases, and rows that may attend to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..fields import CHOICES
from ..layouts import reduced
from .probe import Probe, base_pattern, base_powers, dtype_of

SAID = {"true-attends": "rows attend where the mask is true", "true-hides": "rows attend where the mask is false"}


def measure_masks(probe: Probe) -> None:
    """Polarity and shapes of the mask."""
    if not probe.has("mask"):
        if probe.has("bias"):
            measure_shapes_of_bias(probe)
        return
    own = [probe.adapter.mask, *(each for each in CHOICES["mask"][:2] if each != probe.adapter.mask)]
    # With a boolean mask, the opposite of the pattern tells the two polarities apart in one call.
    tries = list(dict.fromkeys(["additive" if each == "additive" else "true-attends" for each in [*own, "additive"]]))
    for requested in tries:
        shapes: dict[str, list[str]] = {}
        ran = []
        for axes in _shapes(probe):
            for mask, seen, expected in _seen(probe, axes, requested):
                ran.append(axes)
                polarity = _polarity(mask, seen, expected, requested)
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
    sizes = probe.mask_sizes
    shape = tuple(sizes[axis] if axis in axes else 1 for axis in "BHQK")
    return np.add.outer(np.arange(np.prod(shape[:3])) * 3, np.arange(shape[3])).reshape(shape) % 7 % 3 == 0


def _seen(probe: Probe, axes: str, polarity: str) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The mask, what the rows attended to, and where that is decided; nothing if the call does not run."""
    adapter = replace(probe.adapter, mask=polarity, mask_shapes=(axes,))
    mask = _pattern(probe, axes)
    sizes = probe.mask_sizes
    seen = probe.attended(sizes, adapter, mask=mask)
    if seen is not None:
        yield np.broadcast_to(mask, seen.shape), seen, np.broadcast_to(base_pattern(adapter, sizes), seen.shape)


def _polarity(mask: np.ndarray, seen: np.ndarray, base: np.ndarray, requested: str) -> str | None:
    """Which polarity explains what was seen, in rows that it leaves some keys; None if none does."""
    choices = {"additive": mask} if requested == "additive" else {"true-attends": mask, "true-hides": ~mask}
    for polarity, pattern in choices.items():
        expected = pattern & base
        rows = expected.any(-1)
        if rows.any() and (seen == expected)[rows].all():
            return polarity
    return None


def measure_shapes_of_bias(probe: Probe) -> None:
    """The accepted shapes of the bias, without a mask."""
    shapes = []
    for axes in _shapes(probe):
        if _bias_is_added(probe, axes, probe.adapter.parameters["bias"]):
            shapes.append(axes)
    if shapes:
        probe.found("mask_shapes", tuple(shapes), f"biases of the shapes {', '.join(shapes)} are added")
    else:
        probe.unknown("mask_shapes", "no call with a bias runs and adds it")


def _bias_is_added(probe: Probe, axes: str, name: str) -> bool:
    """Whether a bias of such a shape, passed to a parameter, is added to the scores."""
    adapter = replace(probe.adapter, mask_shapes=(axes,), parameters={**probe.adapter.parameters, "bias": name})
    sizes = probe.mask_sizes
    bias = np.where(_pattern(probe, axes), 1.0, 0.0).astype(dtype_of(probe.dtype))
    weights = probe.weights(sizes, adapter, bias=bias)
    if weights is None:
        return False
    powers = np.exp(np.broadcast_to(bias.astype(np.float64), weights.shape)) * base_powers(adapter, sizes)
    return probe.close(weights, powers / np.maximum(powers.sum(-1, keepdims=True), 1e-9))


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
    rng = np.random.default_rng(7)
    case = _empty_row(probe, sizes)
    if case is None:
        if probe.unmeasured.keys() & {"mask", "causal"}:
            _unknown(probe)
        return
    arguments, changed, row = case
    sizes = sizes | changed
    v = rng.standard_normal((sizes["B"], sizes["G"], sizes["K"], sizes["E"]))
    call = probe.call(sizes, v=v, **arguments)
    answer = probe.ask(call)
    if answer is None or answer.out is None:
        _unknown(probe)
        return
    out, values = answer.out[0, :, row], call.v[0].astype(np.float64)
    base = base_pattern(adapter, sizes)[row]
    means = [values.mean(1), (base @ values) / max(base.sum(), 1)]
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
        mask = np.ones(tuple(sizes[axis] if axis in axes else 1 for axis in "BHQK"), bool)
        mask[0, :, min(1, mask.shape[2] - 1)] = False
        return {"mask": mask}, {}, 1
    if probe.has("lengths") and adapter.layout != "THD":
        return {"lengths": np.array([0] + [sizes["K"]] * (sizes["B"] - 1))}, {}, 1
    return _longer(probe, sizes) or _without_keys(probe, sizes)


def _without_keys(probe: Probe, sizes: dict[str, int]) -> tuple[dict, dict[str, int], int] | None:
    """A packed batch entry that has no keys."""
    B = probe.sizes["B"]
    if probe.adapter.layout != "THD" or "cu_seqlens_k" not in probe.adapter.parameters or B == 1:
        return None
    return {"lengths": np.array([0] + [sizes["K"]] * (B - 1))}, {"B": B}, 1


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
