"""Level 1, textbook: scale, score, mask, softmax; masks; alignment; heads that share keys; other sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .case import Case, Draw, Limits, Result, resized

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

    def case(name: str, law: int, says: str, optional=False, sizes=None, **fields) -> Case:
        call = Draw(seed, name).call(**limits.sizes(**(sizes or {})), **fields)
        return Case(name=name, law=law, level=1, says=says, call=call, optional=optional)

    formula = "the output is softmax(q·k / √D) · v"
    yield case("plain", 1, formula)
    for name, sizes in SIZES:
        yield case(name, 1, formula, sizes=sizes, optional=name in MAY_REFUSE)
    for name, sizes in EMPTY:
        if name == "no-keys" and not (limits.takes("mask") or limits.takes("lengths")):
            continue  # a row without keys is a fully masked row, of which the function may know nothing
        yield case(name, 5, "without rows the result is empty; without keys it is 0", optional=True, sizes=sizes)
    yield from _scales(limits, case)
    yield from _groups(limits, seed, case)
    yield from _masks(limits, seed)
    yield from _causal(limits, seed)


def _scales(limits: Limits, case) -> Iterator[Case]:
    for scale in (0.3, 1.0, 2.5):
        yield case(f"scale-{scale:g}", 1, f"scale={scale:g} replaces 1/√D", scale=scale)


def _groups(limits: Limits, seed: int, case) -> Iterator[Case]:
    says = "query head h attends with key head h // (H / G)"
    for name, H, G in (("groups-of-two", 4, 2), ("groups-of-three", 6, 2), ("one-key-head", 4, 1)):
        if limits.grouped and limits.heads in (None, H):
            optional = "groups" not in limits.adapter.declared
            yield case(name, 1, says, optional, {"H": H, "G": G})
            if limits.takes("causal"):
                yield case(f"{name}-causal", 3, says, optional, {"H": H, "G": G, "Q": 6, "K": 6}, causal=True)
    if limits.grouped and limits.heads in (None, 4) and limits.batch:
        yield from _masks_of_groups(limits, seed, case)


def _masks_of_groups(limits: Limits, seed: int, case) -> Iterator[Case]:
    """Masks in calls with as many entries as key heads: a mask may be applied along the wrong one of the two, and a
    shape that raises an error at other sizes may be accepted at these.
    """
    says = "a mask of each batch entry is that of this entry, also if there are as many key heads"
    optional = "groups" not in limits.adapter.declared
    known = limits.adapter.mask_shapes
    others = () if "mask_shapes" in limits.adapter.declared or not known else ("BHQK", "B1QK")
    for shape in dict.fromkeys((*known, *others)):
        for kind in ("mask", "bias"):
            if limits.adapter.parameters and not limits.takes(kind):
                continue
            name, sizes = f"{kind}-of-groups-{shape}", {"B": 2, "H": 4, "G": 2, "Q": 5, "K": 7}
            draw, dims = Draw(seed, name), resized(shape, *(limits.sizes(**sizes)[axis] for axis in "BHQK"))
            array = draw.mask(*dims) if kind == "mask" else draw.bias(*dims)
            made = case(name, 2, says, optional or shape not in known, sizes, **{kind: array})
            yield made if shape in known else replace(made, check=_in_shape(shape))


def _in_shape(shape: str) -> Callable[[Case, Any], Result]:
    """Judges a call whose mask has a shape that the function refuses at other sizes."""

    def check(case: Case, judge: Any) -> Result:
        other = type(judge)(judge.session, replace(judge.adapter, mask_shapes=(shape,)))
        return replace(other.result(replace(case, check=None)), case=case)

    return check


def _masks(limits: Limits, seed: int) -> Iterator[Case]:
    says = "a row attends to the keys where the mask is true, and to no others"
    for shape in limits.adapter.mask_shapes:
        for kind in ("mask", "bias"):
            if not limits.takes(kind) and limits.adapter.parameters:
                continue
            name = f"{kind}-{shape}"
            draw, sizes = Draw(seed, name), limits.sizes()
            dims = resized(shape, *(sizes[axis] for axis in "BHQK"))
            array = draw.mask(*dims) if kind == "mask" else draw.bias(*dims)
            words = says if kind == "mask" else "the bias is added to the scaled scores"
            yield Case(
                name=name, law=2 if kind == "mask" else 1, level=1, says=words, call=draw.call(**sizes, **{kind: array})
            )
    for name, share in (("mask-of-one-key", 0.0), ("mask-of-most-keys", 0.9), ("mask-true", 2.0)):
        draw, sizes = Draw(seed, name), limits.sizes(Q=6, K=6)
        dims = resized(
            limits.adapter.mask_shapes[0] if limits.adapter.mask_shapes else "BHQK", *(sizes[a] for a in "BHQK")
        )
        yield Case(name=name, law=2, level=1, says=says, call=draw.call(**sizes, mask=draw.mask(*dims, share=share)))
    for name, sizes in LONG_MASKS:
        draw, known = Draw(seed, name), limits.sizes(**sizes)
        for shape in limits.adapter.mask_shapes[:1] if "keys" in name else limits.adapter.mask_shapes:
            mask = draw.mask(*resized(shape, *(known[a] for a in "BHQK")))
            label = name if "keys" in name else f"{name}-{shape}"
            call = draw.call(**known, mask=mask)
            yield Case(name=label, law=2, level=1, says=says, call=call, optional=name in MAY_REFUSE)
    for name in ("mask-and-causal", "mask-and-bias", "bias-and-causal"):
        draw, sizes = Draw(seed, name), limits.sizes(Q=6, K=6)
        dims = resized(
            limits.adapter.mask_shapes[0] if limits.adapter.mask_shapes else "BHQK", *(sizes[a] for a in "BHQK")
        )
        mask = draw.mask(*dims)
        mask[..., 0] = True  # no row is fully masked
        given: dict[str, Any] = {"mask": mask, "bias": draw.bias(*dims), "causal": True}
        given = {kind: value for kind, value in given.items() if kind in name}
        shared = limits.adapter.parameters.get("mask") == limits.adapter.parameters.get("bias")
        if not (shared and name == "mask-and-bias"):
            words = "masks and biases that are passed together all apply"
            yield Case(name=name, law=2, level=1, says=words, call=draw.call(**sizes, **given), optional=True)


def _causal(limits: Limits, seed: int) -> Iterator[Case]:
    says = "a row attends to its own position and to earlier ones"
    for name, sizes in (
        ("causal", {"Q": 6, "K": 6}),
        ("causal-one-row", {"Q": 1, "K": 1}),
        ("causal-of-33-rows", {"Q": 33, "K": 33, "H": 2}),
        ("causal-of-130-rows", {"B": 1, "H": 1, "Q": 130, "K": 130}),
    ):
        call = Draw(seed, name).call(**limits.sizes(**sizes), causal=True)
        yield Case(name=name, law=3, level=1, says=says, call=call)
    if limits.rectangular:
        first = (
            "the first row at the first key" if limits.adapter.causal == "top-left" else "the last row at the last key"
        )
        for name, sizes in (("causal-fewer-rows", {"Q": 3, "K": 7}), ("causal-last-row", {"Q": 1, "K": 6})):
            call = Draw(seed, name).call(**limits.sizes(**sizes), causal=True)
            yield Case(name=name, law=3, level=1, says=f"causal masks begin with {first}", call=call)
