"""Level 1, textbook: scale, score, mask, softmax; masks; alignment; heads that share keys; other sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from ..judge import Judge
from .case import Case, Limits, Maker, Result

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
MAY_REFUSE = ("wider-values", "other-value-depth", "520-keys", "mask-of-300-keys")  # other depths, long contexts
EMPTY = (("no-rows", {"Q": 0, "K": 3}), ("no-keys", {"Q": 3, "K": 0}), ("no-entries", {"B": 0}))


def textbook(limits: Limits, seed: int) -> Iterator[Case]:
    """The cases of level 1."""
    maker = Maker(limits, seed, 1)
    formula = "the output is softmax(q·k / √D) · v"
    yield maker.case("plain", 1, formula)
    for name, sizes in SIZES:
        yield maker.case(name, 1, formula, sizes, optional=name in MAY_REFUSE)
    for name, sizes in EMPTY:
        if name == "no-keys" and not (limits.takes("mask") or limits.takes("lengths")):
            continue  # a row without keys is a fully masked row, of which the function may know nothing
        yield maker.case(name, 5, "without rows the result is empty; without keys it is 0", sizes, optional=True)
    for scale in (0.3, 1.0, 2.5):
        yield maker.case(f"scale-{scale:g}", 1, f"scale={scale:g} replaces 1/√D", scale=scale)
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
            yield maker.case(name, 1, says, sizes, optional=optional)
            if limits.takes("causal"):
                sizes |= {"Q": 6, "K": 6}
                yield maker.case(f"{name}-causal", 3, says, sizes, optional=optional, causal=True)
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
            made = maker.case(name, 2, says, sizes, optional=optional or shape not in known, **{kind: array})
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
    says = "a row attends to the keys where the mask is true, and to no others"
    shapes = limits.adapter.mask_shapes
    for shape in shapes:
        for kind in _kinds(limits):
            name = f"{kind}-{shape}"
            draw = maker.draw(name)
            array = getattr(draw, kind)(shape)
            law, words = (2, says) if kind == "mask" else (1, "the bias is added to the scaled scores")
            yield maker.case(name, law, words, draw=draw, **{kind: array})
    first = (*shapes, "BHQK")[0]
    square = {"Q": 6, "K": 6}
    for name, share in (("mask-of-one-key", 0.0), ("mask-of-most-keys", 0.9), ("mask-true", 2.0)):
        draw = maker.draw(name, square)
        yield maker.case(name, 2, says, draw=draw, mask=draw.mask(first, share))
    for name, sizes in LONG_MASKS:
        draw = maker.draw(name, sizes)
        for shape in shapes[:1] if "keys" in name else shapes:
            label = name if "keys" in name else f"{name}-{shape}"
            yield maker.case(label, 2, says, draw=draw, optional=name in MAY_REFUSE, mask=draw.mask(shape))
    words = "masks and biases that are passed together all apply"
    for name in ("mask-and-causal", "mask-and-bias", "bias-and-causal"):
        if name == "mask-and-bias" and limits.shares_mask:
            continue
        draw = maker.draw(name, square)
        mask = draw.mask(first)
        mask[..., 0] = True  # no row is fully masked
        fields: dict[str, Any] = {"mask": mask, "bias": draw.bias(first), "causal": True}
        fields = {kind: value for kind, value in fields.items() if kind in name}
        yield maker.case(name, 2, words, draw=draw, optional=True, **fields)


def _causal(maker: Maker) -> Iterator[Case]:
    says = "a row attends to its own position and to earlier ones"
    for name, sizes in (
        ("causal", {"Q": 6, "K": 6}),
        ("causal-one-row", {"Q": 1, "K": 1}),
        ("causal-of-33-rows", {"Q": 33, "K": 33, "H": 2}),
        ("causal-of-130-rows", {"B": 1, "H": 1, "Q": 130, "K": 130}),
    ):
        yield maker.case(name, 3, says, sizes, causal=True)
    if maker.limits.rectangular:
        top_left = maker.limits.adapter.causal == "top-left"
        first = "the first row at the first key" if top_left else "the last row at the last key"
        for name, sizes in (("causal-fewer-rows", {"Q": 3, "K": 7}), ("causal-last-row", {"Q": 1, "K": 6})):
            yield maker.case(name, 3, f"causal masks begin with {first}", sizes, causal=True)
