"""Levels 1 to 3: textbook, edges, gradients. Calls whose results are compared with the law."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...common.dtypes import FLOATS
from ...laws.call import shape_of
from ..judge import Judge
from .case import Case, Draw, Limits, Maker, Result

SIZES = (
    ("one-row", {"Q": 1, "K": 1}),
    ("one-row-of-many", {"Q": 1, "K": 9}),
    ("one-head", {"H": 1, "Q": 6, "K": 6}),
    ("one-entry", {"B": 1, "Q": 4, "K": 4}),
    ("more-rows-than-keys", {"Q": 7, "K": 3}),
    ("fewer-rows-than-keys", {"Q": 3, "K": 8}),
    ("deep", {"Q": 3, "K": 5, "D": 64}),
    ("depth-one", {"Q": 4, "K": 4, "D": 1}),
    ("odd-depth", {"Q": 4, "K": 6, "D": 5}),
    ("other-value-depth", {"D": 8, "E": 3}),
    ("wider-values", {"D": 3, "E": 10}),
    ("100-keys", {"Q": 9, "K": 100, "D": 16}),
    ("70-rows", {"B": 1, "H": 2, "Q": 70, "K": 9}),
    ("130-rows", {"B": 1, "H": 1, "Q": 130, "K": 130}),
    ("520-keys", {"B": 1, "H": 1, "Q": 2, "K": 520}),
    ("three-heads", {"B": 3, "H": 3, "Q": 4, "K": 5}),
    ("rows-equal-heads", {"B": 2, "H": 4, "Q": 4, "K": 4, "D": 4}),
)
# Masks over many keys, and where batch entries, heads and rows are equally many, so that axes can be mistaken.
LONG_MASKS = (
    ("mask-of-100-keys", {"B": 1, "H": 2, "Q": 5, "K": 100}),
    ("mask-of-300-keys", {"B": 1, "H": 1, "Q": 3, "K": 300}),
    ("mask-equal-sizes", {"B": 3, "H": 3, "Q": 3, "K": 3}),
)
TILES = {"B": 1, "H": 2, "Q": 20, "K": 300}  # more tiles of keys than of rows
MAY_REFUSE = ("wider-values", "other-value-depth", "520-keys", "mask-of-300-keys")  # other depths, long contexts
EMPTY = (("no-rows", {"Q": 0, "K": 3}), ("no-keys", {"Q": 3, "K": 0}), ("no-entries", {"B": 0}))


def textbook(limits: Limits, seed: int) -> Iterator[Case]:
    """Level 1: scale, score, mask, softmax; masks; alignment; heads that share keys; other sizes."""
    maker = Maker(limits, seed, 1)
    formula = "the output is softmax(q·k / √D) · v"
    yield maker.case(1, formula, "plain")
    for name, sizes in SIZES:
        yield maker.case(1, formula, name, sizes, optional=name in MAY_REFUSE)
    for name, sizes in EMPTY:
        if name == "no-keys" and not (limits.takes("mask") or limits.takes("lengths")):
            continue  # a row without keys is a fully masked row, of which the function may know nothing
        yield maker.case(5, "without rows the result is empty; without keys it is 0", name, sizes, optional=True)
    for scale in (0.3, 1.0, 2.5):
        yield maker.case(1, f"scale={scale:g} replaces 1/√D", f"scale-{scale:g}", scale=scale)
    yield from _groups(maker)
    yield from _masks(maker)
    yield from _causal(maker)


def _groups(maker: Maker) -> Iterator[Case]:
    limits = maker.limits
    says = "query head h attends with key head h // (H / G)"
    optional = "groups" not in limits.adapter.declared
    for name, H, G in (("groups-of-two", 4, 2), ("groups-of-three", 6, 2), ("one-key-head", 4, 1)):
        if limits.grouped and limits.heads in (None, H):
            sizes = {"H": H, "G": G}
            yield maker.case(1, says, name, sizes, optional=optional)
            if limits.takes("causal"):
                sizes |= {"Q": 6, "K": 6}
                yield maker.case(3, says, f"{name}-causal", sizes, optional=optional, causal=True)
    if limits.grouped and limits.heads in (None, 4) and limits.batch:
        yield from _masks_of_groups(maker, optional)


def _masks_of_groups(maker: Maker, optional: bool) -> Iterator[Case]:
    """Masks in calls with as many entries as key heads: a mask may be applied along the wrong one of the two, and a
    shape that raises an error at other sizes may be accepted at these.
    """
    limits = maker.limits
    says = "a mask of each batch entry is that of this entry, also if there are as many key heads"
    known = limits.adapter.mask_shapes
    others = () if "mask_shapes" in limits.adapter.declared or not known else ("BHQK", "B1QK")
    for shape in dict.fromkeys((*known, *others)):
        for kind in _kinds(limits):
            name, sizes = f"{kind}-of-groups-{shape}", {"B": 2, "H": 4, "G": 2, "Q": 5, "K": 7}
            draw = maker.draw(name, sizes)
            array = getattr(draw, kind)(shape)
            made = maker.case(2, says, name, sizes, optional=optional or shape not in known, **{kind: array})
            yield made if shape in known else replace(made, check=partial(_in_shape, shape))


def _kinds(limits: Limits) -> list[str]:
    """Which of masks and biases the function takes; both if nothing is known of its parameters."""
    return [kind for kind in ("mask", "bias") if limits.takes(kind) or not limits.adapter.parameters]


def _in_shape(shape: str, case: Case, judge: Judge) -> Result:
    """Judges a call whose mask has a shape that the function refuses at other sizes."""
    other = Judge(judge.session, replace(judge.adapter, mask_shapes=(shape,)))
    return replace(other.result(replace(case, check=None)), case=case)


def _masks(maker: Maker) -> Iterator[Case]:
    limits = maker.limits
    case = partial(maker.case, 2, "a row attends to the keys where the mask is true, and to no others")
    shapes = limits.adapter.mask_shapes
    for shape in shapes:
        for kind in _kinds(limits):
            name = f"{kind}-{shape}"
            draw = maker.draw(name)
            array = getattr(draw, kind)(shape)
            of_kind = case if kind == "mask" else partial(maker.case, 1, "the bias is added to the scaled scores")
            yield of_kind(name, draw=draw, **{kind: array})
    first = (*shapes, "BHQK")[0]
    square = {"Q": 6, "K": 6}
    for name, share in (("mask-of-one-key", 0.0), ("mask-of-most-keys", 0.9), ("mask-true", 2.0)):
        draw = maker.draw(name, square)
        yield case(name, draw=draw, mask=draw.mask(first, share))
    for name, sizes in LONG_MASKS:
        draw = maker.draw(name, sizes)
        for shape in shapes[:1] if "keys" in name else shapes:
            label = name if "keys" in name else f"{name}-{shape}"
            yield case(label, draw=draw, optional=name in MAY_REFUSE, mask=draw.mask(shape))
    words = "masks and biases that are passed together all apply"
    for name in ("mask-and-causal", "mask-and-bias", "bias-and-causal"):
        if name == "mask-and-bias" and limits.shares_mask:
            continue
        draw = maker.draw(name, square)
        mask = draw.mask(first)
        mask[..., 0] = True  # no row is fully masked
        fields: dict[str, Any] = {"mask": mask, "bias": draw.bias(first), "causal": True}
        fields = {kind: value for kind, value in fields.items() if kind in name}
        yield maker.case(2, words, name, draw=draw, optional=True, **fields)


def _causal(maker: Maker) -> Iterator[Case]:
    says = "a row attends to its own position and to earlier ones"
    for name, sizes in (
        ("causal", {"Q": 6, "K": 6}),
        ("causal-one-row", {"Q": 1, "K": 1}),
        ("causal-of-33-rows", {"Q": 33, "K": 33, "H": 2}),
        ("causal-of-130-rows", {"B": 1, "H": 1, "Q": 130, "K": 130}),
    ):
        yield maker.case(3, says, name, sizes, causal=True)
    if maker.limits.rectangular:
        top_left = maker.limits.adapter.causal == "top-left"
        first = "the first row at the first key" if top_left else "the last row at the last key"
        for name, sizes in (("fewer-rows", {"Q": 3, "K": 7}), ("last-row", {"Q": 1, "K": 6}), ("over-300-keys", TILES)):
            yield maker.case(3, f"causal masks begin with {first}", f"causal-{name}", sizes, causal=True)


def edges(limits: Limits, seed: int) -> Iterator[Case]:
    """Level 2: windows, fully masked rows, lse, sinks, softcap, extreme scores, infinities, strides, 16 bits."""
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
    case = partial(maker.case, 4, "a window holds the row's own position and as many keys before it as declared")
    square = {"Q": 9, "K": 9}
    for before in (0, 1, 3, 20):
        yield case(f"window-{before}", square, window=limits.window(before))
        if limits.takes("causal") and limits.adapter.window != "both-sides":
            yield case(f"window-{before}-causal", square, window=(before, 0), causal=True)
    if limits.rectangular:
        yield case("window-fewer-rows", {"Q": 4, "K": 9}, window=limits.window(2))
        yield case("window-over-300-keys", TILES, window=limits.window(40))
    if limits.adapter.window.startswith("left-right") or limits.takes("window_before"):
        yield case("window-both-sides", square, window=(2, 1))
        yield case("window-after-only", square, window=(0, 3))
        yield case("window-open-before", square, window=(None, 1), optional=True)


def _empty_rows(maker: Maker) -> Iterator[Case]:
    limits = maker.limits
    results = {"zero": "0", "nan": "NaN", "mean": "the mean of all values", "any": "anything, and no other row changes"}
    case = partial(maker.case, 5, f"the output of a fully masked row is {results[limits.adapter.empty_row]}")
    for kind in ("mask", "bias"):
        if kind == "bias" and not (limits.shares_mask and limits.adapter.empty_row == "zero"):
            continue  # the convention is about masks; floats are one where they are passed as the mask
        draw = maker.draw(f"empty-row-{kind}")
        mask = draw.mask()
        mask[0, 0, mask.shape[2] // 2] = False
        array: Any = mask if kind == "mask" else np.where(mask, 0, -np.inf).astype(np.float32)
        yield case(f"empty-row-{kind}", draw=draw, optional=kind == "bias", **{kind: array})
    yield case("every-row-empty", mask=lambda draw: np.zeros(draw.shape, bool))
    if limits.rectangular and limits.adapter.causal == "bottom-right":
        yield case("empty-rows-causal", {"Q": 6, "K": 4}, causal=True)
    beyond = "keys beyond the length of a batch entry are not attended to"
    yield maker.case(2, beyond, "lengths", {"K": 7}, lengths=np.array([7, 3] if limits.batch else [3]))
    many = np.array([300, 130] if limits.batch else [130])
    yield maker.case(2, beyond, "lengths-of-300-keys", {"K": 300}, lengths=many)
    yield case("length-zero", {"K": 7}, lengths=np.array([3, 0] if limits.batch else [3]))


def _denominators(maker: Maker) -> Iterator[Case]:
    limits = maker.limits
    if limits.returns_lse:
        base = "2" if limits.adapter.lse == "base-2" else "e"
        summed = "exp(q·k)" if limits.adapter.lse == "natural-unscaled" else "exp(score)"
        says = f"lse is the logarithm (base {base}) of the sum of {summed} over the allowed keys"
        case = partial(maker.case, 7, says)
        yield case("lse")
        yield case("lse-causal", {"Q": 6, "K": 6}, causal=True)
        yield case("lse-scale", scale=0.8)
        yield case("lse-large-scores", {"size": 20.0})
        yield case("lse-mask", mask=Draw.mask)
        yield case("lse-over-300-keys", TILES)
    H = limits.sizes()["H"]
    case = partial(maker.case, 8, "a sink is one more logit in the denominator, without a value")
    for name, sinks in (
        ("sinks", np.linspace(-1.5, 2.5, H)),
        ("sinks-zero", np.zeros(H)),
        ("sinks-high", np.full(H, 60.0)),
        ("sinks-low", np.full(H, -60.0)),
    ):
        yield case(name, sinks=sinks.astype(np.float32))
    ones = np.ones(H, np.float32)
    yield case("sinks-causal", {"Q": 6, "K": 6}, sinks=ones, causal=True)
    yield case("sinks-over-300-keys", {"K": 300}, sinks=ones)
    draw = maker.draw("sinks-empty-row")
    mask = draw.mask()
    mask[:, :, 0] = False
    yield case("sinks-empty-row", draw=draw, mask=mask, sinks=ones)


def _softcap(maker: Maker) -> Iterator[Case]:
    case = partial(maker.case, 1, "scores become cap · tanh(score / cap), after the scale and before the mask")
    yield case("softcap", softcap=2.0)
    yield case("softcap-causal", {"Q": 6, "K": 6}, softcap=2.0, causal=True)
    yield case("softcap-mask", mask=Draw.mask, softcap=2.0)


def _extreme(maker: Maker) -> Iterator[Case]:
    large = "scores of 10000 and more neither overflow nor become NaN"
    small_range = FLOATS[maker.limits.dtype].small_range
    size = 60.0 if small_range else 100.0
    yield maker.case(1, large, "scores-of-10000", {"D": 16, "size": size})
    yield maker.case(1, large, "scores-of-10000-causal", {"Q": 6, "K": 6, "size": size}, causal=True)
    yield maker.case(1, "tiny scores give the mean of the values", "scores-near-0", {"size": 1e-4})
    for sign, where in (("negative", -1.0), ("positive", 1.0)):
        draw = maker.draw(f"all-scores-{sign}", {"D": 4})
        call = draw.call()
        q = np.abs(call.q.astype(np.float32)) * 40
        k = np.abs(call.k.astype(np.float32)) * 40 * where
        says = "adding a number to all scores of a row changes nothing"
        arrays: dict[str, Any] = {"q": q.astype(call.dtype), "k": k.astype(call.dtype)}
        yield maker.case(1, says, f"all-scores-{sign}", draw=draw, **arrays)
    says, size = "a masked key has no weight, however large its score is", 12.0 if small_range else 30.0
    yield maker.case(2, says, "scores-of-1000-masked", {"size": size}, mask=lambda draw: draw.mask(share=0.4))
    draw = maker.draw("bias-of-minus-infinity")
    kept = draw.mask()
    kept[..., 0] = True  # a causal row sees this key at least
    bias = np.where(kept, draw.bias(), -np.inf).astype(np.float32)
    yield maker.case(12, "a score of −∞ removes its key", "bias-of-minus-infinity", draw=draw, bias=bias)
    says = "a finite number that is added to all scores of a row removes nothing"
    yield maker.case(12, says, "bias-of-minus-10000", bias=lambda draw: np.full(draw.shape, -1e4, np.float32))


def _memory(maker: Maker) -> Iterator[Case]:
    says = "the layout of the arrays in memory makes no difference"
    for memory in ("strided", "expanded", "readonly"):
        arrays = maker.draw(memory, {"B": 2}).arrays()
        if memory == "expanded":
            arrays = {name: np.repeat(array[:1], len(array), 0) for name, array in arrays.items()}
        yield maker.case(11, says, f"memory-{memory}", optional=memory == "readonly", **arrays, memory=memory)


def _dtypes(maker: Maker) -> Iterator[Case]:
    usual = maker.limits.dtype
    for dtype in maker.limits.adapter.dtypes:
        case = partial(maker.case, 10, f"{dtype}: errors are those of the usual computation in this dtype")
        if dtype != usual or FLOATS[dtype].bits == 16:  # a sum that is kept in 16 bits stops growing
            sizes = {"dtype": dtype, "B": 1, "H": 1, "Q": 1, "K": 4096}
            many = case(f"4096-equal-keys-{dtype}", sizes)
            v = np.ones_like(many.call.v)
            v[:, :, v.shape[2] // 2 :] = 3  # numerator and denominator may stop growing together
            yield replace(many, call=many.call.changed(q=np.zeros_like(many.call.q), v=v))
        if dtype == usual:
            continue
        yield case(f"plain-{dtype}", {"dtype": dtype})
        yield case(f"100-keys-{dtype}", {"dtype": dtype, "K": 100, "D": 32})
        yield case(f"causal-{dtype}", {"dtype": dtype, "Q": 6, "K": 6}, causal=True)
        yield case(f"mask-{dtype}", {"dtype": dtype}, mask=Draw.mask)


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
        yield maker.case(13, says, f"one-row-{role}", sizes, **{role: value})
    if limits.grouped and limits.heads in (None, 4):
        optional = "groups" not in limits.adapter.declared
        yield maker.case(13, says, "one-row-groups", {**sizes, "H": 4, "G": 2}, optional=optional)


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
            yield maker.case(1, says, f"{name}-{dtype}", {**sizes, "dtype": dtype}, optional=True)


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
        yield maker.case(13, says, name, draw=draw, optional=True, **fields)


SMALL = {"B": 1, "H": 2, "Q": 3, "K": 4, "D": 4}  # for finite differences


def gradients(limits: Limits, seed: int) -> Iterator[Case]:
    """Level 3: gradients of queries, keys, values, biases and sinks, through the output and through lse."""
    if limits.adapter.gradients == "none":
        return
    case = partial(_case, Maker(limits, seed, 3))
    yield case("plain", 1)
    yield case("square", 1, {"Q": 6, "K": 6})
    yield case("one-row", 1, {"Q": 1, "K": 1})
    yield case("over-300-keys", 1, TILES)
    yield case("scale", 1, scale=0.7)
    yield case("other-value-depth", 1, {"D": 8, "E": 3}, optional=True)
    yield case("large-scores", 1, {"size": 12.0})
    yield case("causal", 3, {"Q": 6, "K": 6}, causal=True)
    if limits.rectangular:
        yield case("causal-fewer-rows", 3, {"Q": 3, "K": 7}, causal=True)
        yield case("causal-over-300-keys", 3, TILES, causal=True)
        if limits.adapter.empty_row == "zero" and limits.adapter.causal == "bottom-right":
            yield case("causal-more-rows", 5, {"Q": 6, "K": 4}, causal=True)
    if limits.grouped and limits.heads is None:
        yield case("groups-of-two", 1, {"H": 4, "G": 2})
        yield case("one-key-head", 1, {"H": 4, "G": 1})
    yield case("window", 4, {"Q": 9, "K": 9}, window=limits.window(2))
    yield case("softcap", 1, softcap=2.0)
    yield case("lengths", 2, lengths=np.array([7, 3] if limits.batch else [3]))
    H = limits.sizes()["H"]
    yield case("sinks", 8, sinks=np.linspace(-1, 2, H).astype(np.float32))
    for name, law in (("mask", 2), ("bias", 1), ("empty-row", 5)):
        if name == "empty-row" and limits.adapter.empty_row != "zero":
            continue  # the other conventions have gradients of their own
        draw = Draw(limits, seed, f"gradient-{name}", SMALL)
        if name == "bias":
            yield case(name, law, draw=draw, bias=draw.bias())
        else:
            mask = draw.mask()
            if name == "empty-row":
                mask[:, :, -1] = False
            yield case(name, law, draw=draw, mask=mask)
    for dtype in limits.adapter.dtypes:
        if dtype != limits.dtype:
            yield case(f"plain-{dtype}", 10, {"dtype": dtype})
            yield case(f"causal-{dtype}", 10, {"dtype": dtype, "Q": 6, "K": 6}, causal=True)
    if limits.returns_lse:
        yield case("lse", 7, through_lse=True, optional=True)
        yield case("lse-causal", 7, {"Q": 6, "K": 6}, through_lse=True, causal=True, optional=True)


def leaking_gradients(limits: Limits, seed: int) -> Iterator[Case]:
    """Gradients of a call with NaN in masked keys and values; a case of level 4."""
    if limits.adapter.gradients == "none":
        return
    maker, name = Maker(limits, seed, 4), "nan-behind-mask"
    draw = maker.draw(f"gradient-{name}", SMALL)
    mask = draw.mask()
    mask[..., -2:], mask[..., 0] = False, True
    arrays = draw.arrays()
    for axis in "kv":
        arrays[axis][:, :, -2:] = np.nan
    yield _case(maker, name, 6, draw=draw, arrays=arrays, mask=mask)


def _case(
    maker: Maker,
    name: str,
    law: int,
    sizes: Mapping[str, Any] | None = None,
    *,
    draw: Draw | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
    through_lse: bool = False,
    **fields: Any,
) -> Case:
    """A case with gradients of the results."""
    name = f"gradient-{name}"
    draw = draw or maker.draw(name, sizes)
    arrays = arrays or draw.arrays()
    dout, dlse = (draw.rng.standard_normal(shape_of(what, draw.sizes)).astype(np.float32) for what in ("out", "lse"))
    says = "gradients are those of Σ out · dout" + (" + Σ lse · dlse" if through_lse else "")
    return maker.case(
        law,
        says,
        name,
        draw=draw,
        **arrays,
        **fields,
        dout=dout.astype(arrays["q"].dtype),
        dlse=dlse if through_lse else None,
    )
