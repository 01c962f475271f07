"""Level 2, edges: windows, fully masked rows, lse, sinks, softcap, extreme scores, infinities, strides, 16 bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...common.dtypes import FLOATS
from .case import Case, Draw, Limits, resized


def edges(limits: Limits, seed: int) -> Iterator[Case]:
    """The cases of level 2."""
    yield from _windows(limits, seed)
    yield from _empty_rows(limits, seed)
    yield from _denominators(limits, seed)
    yield from _softcap(limits, seed)
    yield from _extreme(limits, seed)
    yield from _memory(limits, seed)
    yield from _dtypes(limits, seed)
    yield from _one_row(limits, seed)
    yield from _larger(limits, seed)
    yield from _together(limits, seed)


def _case(limits: Limits, seed: int, name: str, law: int, says: str, sizes=None, **fields) -> Case:
    optional = fields.pop("optional", False)
    call = Draw(seed, name).call(**limits.sizes(**(sizes or {})), **fields)
    return Case(name=name, law=law, level=2, says=says, call=call, optional=optional)


def _shape(limits: Limits, sizes: dict, wanted: str = "BHQK") -> tuple[int, ...]:
    """The canonical shape of a mask that the function takes: the wanted one, if it does."""
    shapes = limits.adapter.mask_shapes
    shape = wanted if wanted in shapes else next((each for each in shapes if "Q" in each), (*shapes, wanted)[0])
    return resized(shape, *(sizes[axis] for axis in "BHQK"))


def _windows(limits: Limits, seed: int) -> Iterator[Case]:
    kind = limits.adapter.window
    pairs = kind.startswith("left-right") or limits.takes("window_before")
    says = "a window holds the row's own position and as many keys before it as declared"
    both = kind == "both-sides"
    for before in (0, 1, 3, 20):
        after = before if both else 0
        yield _case(limits, seed, f"window-{before}", 4, says, {"Q": 9, "K": 9}, window=(before, after))
        if limits.takes("causal") and not both:
            yield _case(
                limits, seed, f"window-{before}-causal", 4, says, {"Q": 9, "K": 9}, window=(before, 0), causal=True
            )
    if limits.rectangular:
        window = (2, 2) if both else (2, 0)
        yield _case(limits, seed, "window-fewer-rows", 4, says, {"Q": 4, "K": 9}, window=window)
    if pairs:
        yield _case(limits, seed, "window-both-sides", 4, says, {"Q": 9, "K": 9}, window=(2, 1))
        yield _case(limits, seed, "window-after-only", 4, says, {"Q": 9, "K": 9}, window=(0, 3))
        yield _case(limits, seed, "window-open-before", 4, says, {"Q": 9, "K": 9}, window=(None, 1), optional=True)


def _empty_rows(limits: Limits, seed: int) -> Iterator[Case]:
    results = {"zero": "0", "nan": "NaN", "mean": "the mean of all values", "any": "anything, and no other row changes"}
    says = f"the output of a fully masked row is {results[limits.adapter.empty_row]}"
    for kind in ("mask", "bias"):
        names = limits.adapter.parameters
        if kind == "bias" and not (names.get("mask") == names.get("bias") and limits.adapter.empty_row == "zero"):
            continue  # the convention is about masks; floats are one where they are passed as the mask
        name = f"empty-row-{kind}"
        draw, sizes = Draw(seed, name), limits.sizes()
        mask = draw.mask(*_shape(limits, sizes))
        if mask.shape[2] > 1:
            mask[0, 0, mask.shape[2] // 2] = False
        else:
            mask[0, 0] = False
        given = {"mask": mask} if kind == "mask" else {"bias": np.where(mask, 0, -np.inf).astype(np.float32)}
        yield Case(name=name, law=5, level=2, says=says, call=draw.call(**sizes, **given), optional=kind == "bias")
    name = "every-row-empty"
    draw, sizes = Draw(seed, name), limits.sizes()
    yield Case(
        name=name, law=5, level=2, says=says, call=draw.call(**sizes, mask=np.zeros(_shape(limits, sizes), bool))
    )
    if limits.rectangular and limits.adapter.causal == "bottom-right":
        yield _case(limits, seed, "empty-rows-causal", 5, says, {"Q": 6, "K": 4}, causal=True)
    lengths = np.array([3, 0] if limits.batch else [3])
    yield _case(limits, seed, "lengths", 2, "keys beyond the length of a batch entry are not attended to", {"K": 7},
                lengths=np.array([7, 3] if limits.batch else [3]))  # fmt: skip
    yield _case(limits, seed, "length-zero", 5, says, {"K": 7}, lengths=lengths)


def _denominators(limits: Limits, seed: int) -> Iterator[Case]:
    if limits.takes("return_lse") or "lse" in str(limits.adapter.returns):
        base = "2" if limits.adapter.lse == "base-2" else "e"
        summed = "exp(q·k)" if limits.adapter.lse == "natural-unscaled" else "exp(score)"
        says = f"lse is the logarithm (base {base}) of the sum of {summed} over the allowed keys"
        yield _case(limits, seed, "lse", 7, says)
        yield _case(limits, seed, "lse-causal", 7, says, {"Q": 6, "K": 6}, causal=True)
        yield _case(limits, seed, "lse-scale", 7, says, scale=0.8)
        yield _case(limits, seed, "lse-large-scores", 7, says, {"size": 20.0})
        draw, sizes = Draw(seed, "lse-mask"), limits.sizes()
        yield Case(
            name="lse-mask", law=7, level=2, says=says, call=draw.call(**sizes, mask=draw.mask(*_shape(limits, sizes)))
        )
    H = limits.sizes()["H"]
    says = "a sink is one more logit in the denominator, without a value"
    for name, sinks in (
        ("sinks", np.linspace(-1.5, 2.5, H)),
        ("sinks-zero", np.zeros(H)),
        ("sinks-high", np.full(H, 60.0)),
        ("sinks-low", np.full(H, -60.0)),
    ):
        yield _case(limits, seed, name, 8, says, sinks=sinks.astype(np.float32))
    yield _case(limits, seed, "sinks-causal", 8, says, {"Q": 6, "K": 6}, sinks=np.ones(H, np.float32), causal=True)
    draw, sizes = Draw(seed, "sinks-empty-row"), limits.sizes()
    mask = draw.mask(*_shape(limits, sizes))
    mask[:, :, 0] = False
    yield Case(
        name="sinks-empty-row",
        law=8,
        level=2,
        says=says,
        call=draw.call(**sizes, mask=mask, sinks=np.ones(H, np.float32)),
    )


def _softcap(limits: Limits, seed: int) -> Iterator[Case]:
    says = "scores become cap · tanh(score / cap), after the scale and before the mask"
    yield _case(limits, seed, "softcap", 1, says, softcap=2.0)
    yield _case(limits, seed, "softcap-causal", 1, says, {"Q": 6, "K": 6}, softcap=2.0, causal=True)
    draw, sizes = Draw(seed, "softcap-mask"), limits.sizes()
    yield Case(
        name="softcap-mask",
        law=1,
        level=2,
        says=says,
        call=draw.call(**sizes, softcap=2.0, mask=draw.mask(*_shape(limits, sizes))),
    )


def _extreme(limits: Limits, seed: int) -> Iterator[Case]:
    large = "scores of 10000 and more neither overflow nor become NaN"
    size = 60.0 if FLOATS[limits.dtype].small_range else 100.0
    yield _case(limits, seed, "scores-of-10000", 1, large, {"D": 16, "size": size})
    yield _case(limits, seed, "scores-of-10000-causal", 1, large, {"Q": 6, "K": 6, "size": size}, causal=True)
    yield _case(limits, seed, "scores-near-0", 1, "tiny scores give the mean of the values", {"size": 1e-4})
    for name, where in (("negative", -1.0), ("positive", 1.0)):
        draw = Draw(seed, f"all-scores-{name}")
        call = draw.call(**limits.sizes(D=4))
        q = np.abs(call.q.astype(np.float32)) * 40
        k = np.abs(call.k.astype(np.float32)) * 40 * where
        yield Case(
            name=f"all-scores-{name}",
            law=1,
            level=2,
            says="adding a number to all scores of a row changes nothing",
            call=draw.call(**limits.sizes(D=4), q=q.astype(call.dtype), k=k.astype(call.dtype)),
        )
    draw, sizes = Draw(seed, "scores-of-1000-masked"), limits.sizes()
    mask = draw.mask(*_shape(limits, sizes), share=0.4)
    yield Case(
        name="scores-of-1000-masked",
        law=2,
        level=2,
        says="a masked key has no weight, however large its score is",
        call=draw.call(**sizes | {"size": 12.0 if FLOATS[limits.dtype].small_range else 30.0}, mask=mask),
    )
    draw, sizes = Draw(seed, "bias-of-minus-infinity"), limits.sizes()
    kept = draw.mask(*_shape(limits, sizes))
    kept[..., 0] = True  # a causal row sees this key at least
    bias = np.where(kept, draw.bias(*_shape(limits, sizes)), -np.inf).astype(np.float32)
    yield Case(
        name="bias-of-minus-infinity",
        law=12,
        level=2,
        says="a score of −∞ removes its key",
        call=draw.call(**sizes, bias=bias),
    )
    draw, sizes = Draw(seed, "bias-of-minus-10000"), limits.sizes()
    low = np.full(_shape(limits, sizes), -1e4, np.float32)
    yield Case(
        name="bias-of-minus-10000",
        law=12,
        level=2,
        says="a finite number that is added to all scores of a row removes nothing",
        call=draw.call(**sizes, bias=low),
    )


def _memory(limits: Limits, seed: int) -> Iterator[Case]:
    says = "the layout of the arrays in memory makes no difference"
    for memory in ("strided", "expanded", "readonly"):
        sizes = {"B": 2}
        call = Draw(seed, memory).call(**limits.sizes(**sizes))
        if memory == "expanded":
            same = {name: np.repeat(getattr(call, name)[:1], call.q.shape[0], 0) for name in "qkv"}
            call = Draw(seed, memory).call(**limits.sizes(**sizes), **same, memory=memory)
        else:
            call = Draw(seed, memory).call(**limits.sizes(**sizes), memory=memory)
        yield Case(name=f"memory-{memory}", law=11, level=2, says=says, call=call, optional=memory == "readonly")


def _dtypes(limits: Limits, seed: int) -> Iterator[Case]:
    for dtype in limits.adapter.dtypes:
        says = f"{dtype}: errors are those of the usual computation in this dtype"
        sizes = {"dtype": dtype, "B": 1, "H": 1, "Q": 1, "K": 4096}
        if dtype != limits.dtype or FLOATS[dtype].bits == 16:  # a sum that is kept in 16 bits stops growing
            many = _case(limits, seed, f"4096-equal-keys-{dtype}", 10, says, sizes)
            v = np.ones_like(many.call.v)
            v[:, :, v.shape[2] // 2 :] = 3  # numerator and denominator may stop growing together
            yield replace(many, call=many.call.changed(q=np.zeros_like(many.call.q), v=v))
        if dtype == limits.dtype:
            continue
        yield _case(limits, seed, f"plain-{dtype}", 10, says, {"dtype": dtype})
        yield _case(limits, seed, f"100-keys-{dtype}", 10, says, {"dtype": dtype, "K": 100, "D": 32})
        yield _case(limits, seed, f"causal-{dtype}", 10, says, {"dtype": dtype, "Q": 6, "K": 6}, causal=True)
        draw, sizes = Draw(seed, f"mask-{dtype}"), limits.sizes(dtype=dtype)
        mask = draw.mask(*_shape(limits, sizes))
        yield Case(name=f"mask-{dtype}", law=10, level=2, says=says, call=draw.call(**sizes, mask=mask))


def _one_row(limits: Limits, seed: int) -> Iterator[Case]:
    """Every argument in a call of one row, for which functions often have code of its own."""
    if not limits.rectangular:
        return
    says = "an argument has the same meaning in a call of one row"
    sizes = {"Q": 1, "K": 9}
    known = limits.sizes(**sizes)
    shape = _shape(limits, known)
    after = 3 if limits.adapter.window == "both-sides" else 0
    draw = Draw(seed, "one-row")
    options: dict[str, dict[str, Any]] = {
        "scale": {"scale": 0.9},
        "softcap": {"softcap": 1.0},
        "window": {"window": (3, after)},
        "mask": {"mask": draw.mask(*shape)},
        "bias": {"bias": draw.bias(*shape)},
        "sinks": {"sinks": np.linspace(-1, 2, known["H"]).astype(np.float32)},
    }
    for role, fields in options.items():
        yield _case(limits, seed, f"one-row-{role}", 13, says, sizes, **fields)
    if limits.grouped and limits.heads in (None, 4):
        optional = "groups" not in limits.adapter.declared
        yield _case(limits, seed, "one-row-groups", 13, says, {**sizes, "H": 4, "G": 2}, optional=optional)


def _larger(limits: Limits, seed: int) -> Iterator[Case]:
    """Sizes of real models, beyond the first 128 numbers, 8 heads, 4 entries and 1,024 keys."""
    says = "a size of real models is computed as a small one is"
    for dtype in dict.fromkeys((limits.dtype, *(each for each in limits.adapter.dtypes if each == "float16"))):
        for name, sizes in (
            ("depth-192", {"B": 1, "H": 2, "D": 192}),
            ("heads-12", {"B": 1, "H": 12}),
            ("entries-6", {"B": 6, "H": 2}),
            ("keys-2000", {"B": 1, "H": 2, "Q": 4, "K": 2000}),
        ):
            yield _case(limits, seed, f"{name}-{dtype}", 1, says, {**sizes, "dtype": dtype}, optional=True)


def _together(limits: Limits, seed: int) -> Iterator[Case]:
    """Random calls that use several arguments at once: an argument must not switch another one off."""
    roles = [
        role
        for role in ("mask", "bias", "causal", "window", "scale", "softcap", "sinks")
        if limits.takes(role) or (role == "window" and limits.takes("window_before"))
    ]
    if limits.adapter.parameters.get("mask") == limits.adapter.parameters.get("bias") and "bias" in roles:
        roles.remove("bias")
    if len(roles) < 2:
        return
    for number in range(16):
        name = f"together-{number}"
        draw = Draw(seed, name)
        rng = draw.rng
        chosen = [str(role) for role in rng.choice(roles, int(rng.integers(2, min(len(roles), 4) + 1)), replace=False)]
        G = int(rng.choice([1, 2, 4]))
        Q, K = ((6, 6), (5, 8), (1, 7), (9, 9))[int(rng.integers(4))]
        sizes = limits.sizes(G=G, Q=Q, K=K)
        shape = _shape(limits, sizes)
        both = limits.adapter.window == "both-sides"
        mask = draw.mask(*shape)
        given = {
            "mask": mask,
            "bias": draw.bias(*shape),
            "causal": True,
            "window": (2, 2 if both else 0),
            "scale": 0.6,
            "softcap": 3.0,
            "sinks": rng.standard_normal(sizes["H"]).astype(np.float32),
        }
        says = f"{', '.join(chosen[:-1])} and {chosen[-1]} apply together"
        call = draw.call(**sizes, **{role: given[role] for role in chosen})
        yield Case(name=name, law=13, level=2, says=says, call=call, optional=True)
