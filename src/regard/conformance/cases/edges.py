"""Level 2, edges: windows, fully masked rows, lse, sinks, softcap, extreme scores, infinities, strides, 16 bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...common.dtypes import FLOATS
from .case import Case, Draw, Limits, Maker


def edges(limits: Limits, seed: int) -> Iterator[Case]:
    """The cases of level 2."""
    maker = Maker(limits, seed, 2)
    yield from _windows(maker)
    yield from _empty_rows(maker)
    yield from _denominators(maker)
    yield from _softcap(maker)
    yield from _extreme(maker)
    yield from _memory(maker)
    yield from _dtypes(maker)
    yield from _one_row(maker)
    yield from _larger(maker)
    yield from _together(maker)


def _windows(maker: Maker) -> Iterator[Case]:
    limits = maker.limits
    says = "a window holds the row's own position and as many keys before it as declared"
    square = {"Q": 9, "K": 9}
    for before in (0, 1, 3, 20):
        yield maker.case(f"window-{before}", 4, says, square, window=limits.window(before))
        if limits.takes("causal") and limits.adapter.window != "both-sides":
            yield maker.case(f"window-{before}-causal", 4, says, square, window=(before, 0), causal=True)
    if limits.rectangular:
        yield maker.case("window-fewer-rows", 4, says, {"Q": 4, "K": 9}, window=limits.window(2))
    if limits.adapter.window.startswith("left-right") or limits.takes("window_before"):
        yield maker.case("window-both-sides", 4, says, square, window=(2, 1))
        yield maker.case("window-after-only", 4, says, square, window=(0, 3))
        yield maker.case("window-open-before", 4, says, square, window=(None, 1), optional=True)


def _empty_rows(maker: Maker) -> Iterator[Case]:
    limits = maker.limits
    results = {"zero": "0", "nan": "NaN", "mean": "the mean of all values", "any": "anything, and no other row changes"}
    says = f"the output of a fully masked row is {results[limits.adapter.empty_row]}"
    for kind in ("mask", "bias"):
        if kind == "bias" and not (limits.shares_mask and limits.adapter.empty_row == "zero"):
            continue  # the convention is about masks; floats are one where they are passed as the mask
        draw = maker.draw(f"empty-row-{kind}")
        mask = draw.mask()
        mask[0, 0, mask.shape[2] // 2] = False
        array: Any = mask if kind == "mask" else np.where(mask, 0, -np.inf).astype(np.float32)
        yield maker.case(f"empty-row-{kind}", 5, says, draw=draw, optional=kind == "bias", **{kind: array})
    yield maker.case("every-row-empty", 5, says, mask=lambda draw: np.zeros(draw.shape, bool))
    if limits.rectangular and limits.adapter.causal == "bottom-right":
        yield maker.case("empty-rows-causal", 5, says, {"Q": 6, "K": 4}, causal=True)
    beyond = "keys beyond the length of a batch entry are not attended to"
    yield maker.case("lengths", 2, beyond, {"K": 7}, lengths=np.array([7, 3] if limits.batch else [3]))
    yield maker.case("length-zero", 5, says, {"K": 7}, lengths=np.array([3, 0] if limits.batch else [3]))


def _denominators(maker: Maker) -> Iterator[Case]:
    limits = maker.limits
    if limits.returns_lse:
        base = "2" if limits.adapter.lse == "base-2" else "e"
        summed = "exp(q·k)" if limits.adapter.lse == "natural-unscaled" else "exp(score)"
        says = f"lse is the logarithm (base {base}) of the sum of {summed} over the allowed keys"
        yield maker.case("lse", 7, says)
        yield maker.case("lse-causal", 7, says, {"Q": 6, "K": 6}, causal=True)
        yield maker.case("lse-scale", 7, says, scale=0.8)
        yield maker.case("lse-large-scores", 7, says, {"size": 20.0})
        yield maker.case("lse-mask", 7, says, mask=Draw.mask)
    H = limits.sizes()["H"]
    says = "a sink is one more logit in the denominator, without a value"
    for name, sinks in (
        ("sinks", np.linspace(-1.5, 2.5, H)),
        ("sinks-zero", np.zeros(H)),
        ("sinks-high", np.full(H, 60.0)),
        ("sinks-low", np.full(H, -60.0)),
    ):
        yield maker.case(name, 8, says, sinks=sinks.astype(np.float32))
    ones = np.ones(H, np.float32)
    yield maker.case("sinks-causal", 8, says, {"Q": 6, "K": 6}, sinks=ones, causal=True)
    draw = maker.draw("sinks-empty-row")
    mask = draw.mask()
    mask[:, :, 0] = False
    yield maker.case("sinks-empty-row", 8, says, draw=draw, mask=mask, sinks=ones)


def _softcap(maker: Maker) -> Iterator[Case]:
    says = "scores become cap · tanh(score / cap), after the scale and before the mask"
    yield maker.case("softcap", 1, says, softcap=2.0)
    yield maker.case("softcap-causal", 1, says, {"Q": 6, "K": 6}, softcap=2.0, causal=True)
    yield maker.case("softcap-mask", 1, says, mask=Draw.mask, softcap=2.0)


def _extreme(maker: Maker) -> Iterator[Case]:
    large = "scores of 10000 and more neither overflow nor become NaN"
    small_range = FLOATS[maker.limits.dtype].small_range
    size = 60.0 if small_range else 100.0
    yield maker.case("scores-of-10000", 1, large, {"D": 16, "size": size})
    yield maker.case("scores-of-10000-causal", 1, large, {"Q": 6, "K": 6, "size": size}, causal=True)
    yield maker.case("scores-near-0", 1, "tiny scores give the mean of the values", {"size": 1e-4})
    for sign, where in (("negative", -1.0), ("positive", 1.0)):
        draw = maker.draw(f"all-scores-{sign}", {"D": 4})
        call = draw.call()
        q = np.abs(call.q.astype(np.float32)) * 40
        k = np.abs(call.k.astype(np.float32)) * 40 * where
        says = "adding a number to all scores of a row changes nothing"
        arrays: dict[str, Any] = {"q": q.astype(call.dtype), "k": k.astype(call.dtype)}
        yield maker.case(f"all-scores-{sign}", 1, says, draw=draw, **arrays)
    says, size = "a masked key has no weight, however large its score is", 12.0 if small_range else 30.0
    yield maker.case("scores-of-1000-masked", 2, says, {"size": size}, mask=lambda draw: draw.mask(share=0.4))
    draw = maker.draw("bias-of-minus-infinity")
    kept = draw.mask()
    kept[..., 0] = True  # a causal row sees this key at least
    bias = np.where(kept, draw.bias(), -np.inf).astype(np.float32)
    yield maker.case("bias-of-minus-infinity", 12, "a score of −∞ removes its key", draw=draw, bias=bias)
    says = "a finite number that is added to all scores of a row removes nothing"
    yield maker.case("bias-of-minus-10000", 12, says, bias=lambda draw: np.full(draw.shape, -1e4, np.float32))


def _memory(maker: Maker) -> Iterator[Case]:
    says = "the layout of the arrays in memory makes no difference"
    for memory in ("strided", "expanded", "readonly"):
        arrays = maker.draw(memory, {"B": 2}).arrays()
        if memory == "expanded":
            arrays = {name: np.repeat(array[:1], len(array), 0) for name, array in arrays.items()}
        yield maker.case(f"memory-{memory}", 11, says, optional=memory == "readonly", **arrays, memory=memory)


def _dtypes(maker: Maker) -> Iterator[Case]:
    usual = maker.limits.dtype
    for dtype in maker.limits.adapter.dtypes:
        says = f"{dtype}: errors are those of the usual computation in this dtype"
        if dtype != usual or FLOATS[dtype].bits == 16:  # a sum that is kept in 16 bits stops growing
            sizes = {"dtype": dtype, "B": 1, "H": 1, "Q": 1, "K": 4096}
            many = maker.case(f"4096-equal-keys-{dtype}", 10, says, sizes)
            v = np.ones_like(many.call.v)
            v[:, :, v.shape[2] // 2 :] = 3  # numerator and denominator may stop growing together
            yield replace(many, call=many.call.changed(q=np.zeros_like(many.call.q), v=v))
        if dtype == usual:
            continue
        yield maker.case(f"plain-{dtype}", 10, says, {"dtype": dtype})
        yield maker.case(f"100-keys-{dtype}", 10, says, {"dtype": dtype, "K": 100, "D": 32})
        yield maker.case(f"causal-{dtype}", 10, says, {"dtype": dtype, "Q": 6, "K": 6}, causal=True)
        yield maker.case(f"mask-{dtype}", 10, says, {"dtype": dtype}, mask=Draw.mask)


def _one_row(maker: Maker) -> Iterator[Case]:
    """Every argument in a call of one row, for which functions often have code of its own."""
    limits = maker.limits
    if not limits.rectangular:
        return
    says = "an argument has the same meaning in a call of one row"
    sizes = {"Q": 1, "K": 9}
    draw = maker.draw("one-row", sizes)
    options: dict[str, Any] = {
        "scale": 0.9,
        "softcap": 1.0,
        "window": limits.window(3),
        "mask": draw.mask(),
        "bias": draw.bias(),
        "sinks": np.linspace(-1, 2, draw.sizes["H"]).astype(np.float32),
    }
    for role, value in options.items():
        yield maker.case(f"one-row-{role}", 13, says, sizes, **{role: value})
    if limits.grouped and limits.heads in (None, 4):
        optional = "groups" not in limits.adapter.declared
        yield maker.case("one-row-groups", 13, says, {**sizes, "H": 4, "G": 2}, optional=optional)


def _larger(maker: Maker) -> Iterator[Case]:
    """Sizes of real models, beyond the first 128 numbers, 8 heads, 4 entries and 1,024 keys."""
    says = "a size of real models is computed as a small one is"
    limits = maker.limits
    for dtype in dict.fromkeys((limits.dtype, *(each for each in limits.adapter.dtypes if each == "float16"))):
        for name, sizes in (
            ("depth-192", {"B": 1, "H": 2, "D": 192}),
            ("heads-12", {"B": 1, "H": 12}),
            ("entries-6", {"B": 6, "H": 2}),
            ("keys-2000", {"B": 1, "H": 2, "Q": 4, "K": 2000}),
        ):
            yield maker.case(f"{name}-{dtype}", 1, says, {**sizes, "dtype": dtype}, optional=True)


def _together(maker: Maker) -> Iterator[Case]:
    """Random calls that use several arguments at once: an argument must not switch another one off."""
    limits = maker.limits
    roles = [
        role
        for role in ("mask", "bias", "causal", "window", "scale", "softcap", "sinks")
        if limits.takes(role) or (role == "window" and limits.takes("window_before"))
    ]
    if limits.shares_mask and "bias" in roles:
        roles.remove("bias")
    if len(roles) < 2:
        return
    for number in range(16):
        name = f"together-{number}"
        draw = maker.draw(name)
        rng = draw.rng
        chosen = [str(role) for role in rng.choice(roles, int(rng.integers(2, min(len(roles), 4) + 1)), replace=False)]
        G = int(rng.choice([1, 2, 4]))
        Q, K = ((6, 6), (5, 8), (1, 7), (9, 9))[int(rng.integers(4))]
        draw.sizes = limits.sizes(G=G, Q=Q, K=K)
        values: dict[str, Any] = {
            "mask": draw.mask(),
            "bias": draw.bias(),
            "causal": True,
            "window": limits.window(2),
            "scale": 0.6,
            "softcap": 3.0,
            "sinks": draw.sinks(),
        }
        says = f"{', '.join(chosen[:-1])} and {chosen[-1]} apply together"
        fields = {role: values[role] for role in chosen}
        yield maker.case(name, 13, says, draw=draw, optional=True, **fields)
