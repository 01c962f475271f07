"""Right implementations of attention in random conventions, each with the adapter that declares them.

They are written without the package: a function takes arrays as its convention has them, computes in float64, and
returns in the dtype that came. (The steps `on_heads`, `scores` and `softmax` are also the second derivation of the law:
test_by_hand.)
"""

import inspect
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from regard.conformance.conventions.fields import CHOICES, Adapter
from regard.conformance.conventions.parameters import NAMES


class Pair(NamedTuple):
    """An output with its lse."""

    result: Any
    logsumexp: Any


@dataclass
class Object:
    """The same as attributes."""

    result: Any
    logsumexp: Any


def right(rng, layout=None):
    """A function and its adapter. rng: a Generator; layout: one of CHOICES["layout"], or a random one."""

    def some(options):
        return options[rng.integers(len(options))]

    def has(share):
        return bool(rng.random() < share)

    layout = layout or some(CHOICES["layout"])
    chosen = Adapter(
        layout=layout,
        arrays="torch" if has(0.1) else "numpy",
        mask=some(CHOICES["mask"]),
        causal=some(CHOICES["causal"]),
        softcap=some(CHOICES["softcap"]),
        groups="none" if layout == "SD" else some(CHOICES["groups"]),
        lse=some(CHOICES["lse"]),
        lse_layout=some(CHOICES["lse_layout"]),
        empty_row=some(("zero", "nan", "mean")),
        empty_lse=some(("-inf", "inf")),
        scale=some((None, None, 0.25, 1.5)),
        dtypes=("float32", "float64"),
    )
    roles = ["q", "k", "v"]
    roles += [role for role in ("scale", "sinks") if has(0.5) and not (layout == "SD" and role == "sinks")]
    if layout != "THD" and has(0.8):
        roles += ["mask"]
        if layout in ("BHSD", "BSHD", "SBHD", "BSD"):
            broadcast = ("BHQK", "B1QK", "1HQK", "11QK", "B11K", "HQK", "QK", "K")
            chosen = replace(chosen, mask_shapes=some((broadcast, broadcast, ("BQK",), ("BK",))))
        else:
            chosen = replace(chosen, mask_shapes={"HSD": ("HQK", "QK", "K"), "SD": ("QK", "K")}[layout])
        if chosen.mask_shapes != ("BK",) and has(0.5):
            roles += ["bias"]
    if has(0.4):
        roles += ["softcap"]
    if has(0.7):
        roles += ["causal"]
    elif has(0.3):
        chosen = replace(chosen, always=("causal",))
    if "causal" in roles and has(0.5):
        chosen = replace(chosen, window=some(CHOICES["window"]))
        roles += ["window_before", "window_after"] if chosen.window.startswith("left") and has(0.5) else ["window"]
    if layout not in ("THD", "SD", "HSD") and has(0.3):
        roles += ["lengths"]
    if layout == "THD":
        roles += ["cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"]
    if layout == "BSD":
        roles += ["heads"]
    structures = ("out", ("out", "lse"), ("out", "weights"), ("out", None), "pair", "object", "dict", "flag")
    structure = some(structures if layout != "THD" else [each for each in structures if each != ("out", "weights")])
    returns = {
        "pair": ("out", "lse"),
        "flag": ("out", "lse"),
        "object": {"out": "result", "lse": "logsumexp"},
        "dict": {"out": "o", "lse": "l"},
    }.get(structure, structure)
    if structure == "flag":
        roles += ["return_lse"]
    known = has(0.7)  # names that the field uses, or others, which the adapter has to say
    parameters = {role: some(NAMES[role].split()) if known else f"{role}_of_mine" for role in roles}
    required = {parameters["mask"]} if "mask" in roles and has(0.2) else set()
    required |= {name for role, name in parameters.items() if role.startswith(("cu_", "max_", "heads"))}
    chosen = replace(chosen, parameters=parameters, returns=returns)
    by_position = has(0.3)
    function = _function(chosen, structure, required, by_position)
    return function, chosen


def _function(adapter, structure, required, by_position):
    """A function with these parameters."""
    kinds = inspect.Parameter
    names = {name: role for role, name in adapter.parameters.items()}
    listed = []
    for name, role in names.items():
        if role in "qkv":
            listed.append(kinds(name, kinds.POSITIONAL_ONLY if by_position else kinds.POSITIONAL_OR_KEYWORD))
        else:
            default = kinds.empty if name in required else None
            listed.append(kinds(name, kinds.KEYWORD_ONLY, default=default))
    signature = inspect.Signature(listed)

    def function(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        given = {names[name]: _numpy(value) for name, value in bound.arguments.items()}
        assert ("torch" if hasattr(args[0] if args else next(iter(kwargs.values())), "requires_grad") else "numpy") == (
            adapter.arrays
        )
        result = _attention({role: value for role, value in given.items() if value is not None}, adapter)
        back = _torch if adapter.arrays == "torch" else np.asarray
        out, lse, weights = (back(each) for each in result)
        if structure == "flag":
            return (out, lse) if given.get("return_lse") else out
        special = {"pair": Pair(out, lse), "object": Object(out, lse), "dict": {"l": lse, "o": out}}
        if isinstance(structure, str) and structure in special:
            return special[structure]
        entries = {"out": out, "lse": lse, "weights": weights, None: "more"}
        return out if structure == "out" else tuple(entries[role] for role in structure)

    function.__signature__ = signature
    return function


def _numpy(value):
    return value.detach().numpy() if hasattr(value, "detach") else value


def _torch(value):
    import torch

    return torch.from_numpy(np.array(value))


def _attention(given, adapter):
    """The results in the layout of the adapter."""
    q, k, v, layout = given["q"], given["k"], given["v"], adapter.layout
    if layout == "THD":
        return _packed(given, adapter)
    dimensions = {"BSD": 3, "HSD": 3, "SD": 2}.get(layout, 4)
    assert q.ndim == k.ndim == v.ndim == dimensions, "another number of axes"
    rows, heads, missing = q.shape[:-1], given.get("heads"), {"HSD": 1, "SD": 2}.get(layout, 0)
    q, k, v = (x.reshape((1,) * missing + x.shape) for x in (q, k, v))
    if heads:
        depth = q.shape[2] // heads
        assert q.shape[2] % heads == 0 and k.shape[2] % depth == 0
        groups = k.shape[2] // depth
        parts = ((q, heads), (k, groups), (v, groups))
        q, k, v = (x.reshape(*x.shape[:2], each, x.shape[2] // each) for x, each in parts)
    axes = {"BSHD": "bshd", "BSD": "bshd", "SBHD": "sbhd"}.get(layout, "bhsd")
    q, k, v = (np.einsum(f"{axes}->bhsd", x) for x in (q, k, v))
    out, lse, weights = _canonical(q, k, v, given, adapter)
    out = np.einsum(f"bhsd->{axes}", out).reshape(*rows, out.shape[-1] * (heads or 1))
    results = out, _lse_out(lse, adapter), weights[(0,) * missing]
    return tuple(np.ascontiguousarray(each).astype(given["q"].dtype) for each in results)


def _lse_out(lse, adapter):
    """lse (B, H, Q) as the adapter says."""
    B, H, Q = lse.shape
    axes, layout = adapter.lse_layout, adapter.layout
    if axes == "HT":
        lse = lse.swapaxes(0, 1).reshape(H, B * Q)
    else:
        lse = lse.swapaxes(1, 2) if axes.startswith("BQ") else lse
        lse = lse.reshape(B * Q, H) if axes.startswith("BQ") and layout == "THD" else lse
        lse = lse[..., None] if axes.endswith("1") else lse
        lse = lse[0] if layout in ("HSD", "SD") else lse
    if layout == "SD":
        return lse[:, 0] if axes.startswith("BQ") else lse[0]
    return lse


def _packed(given, adapter):
    """Rows of several entries in one axis; all entries have the same number of queries."""
    starts = [np.asarray(given[f"cu_seqlens_{side}"]) for side in "qk"]
    assert given["max_seqlen_q"] == np.diff(starts[0]).max() and given["max_seqlen_k"] == np.diff(starts[1]).max()
    assert given["q"].ndim == given["k"].ndim == 3
    assert starts[0][-1] == len(given["q"]) and starts[1][-1] == len(given["k"])
    results = []
    for entry in range(len(starts[0]) - 1):
        rows, keys = (slice(each[entry], each[entry + 1]) for each in starts)
        parts = (given["q"][rows], given["k"][keys], given["v"][keys])
        results.append(_canonical(*(part.swapaxes(0, 1)[None] for part in parts), given, adapter))
    out = np.concatenate([each[0][0].swapaxes(0, 1) for each in results])
    lse = _lse_out(np.concatenate([each[1] for each in results]), adapter)
    return tuple(np.ascontiguousarray(each).astype(given["q"].dtype) for each in (out, lse, np.zeros(0)))


def _canonical(q, k, v, given, adapter):
    """out, lse and weights of (B, H, S, D) arrays."""
    q, k, v = on_heads(q, k, v, adapter, np.float64)
    kept, sinks = scores(q, k, given, adapter), given.get("sinks")
    out, lse, weights = softmax(kept, v, sinks, adapter)
    if adapter.lse == "natural-unscaled":
        products = np.where(np.isneginf(kept), -np.inf, np.einsum("bhqd,bhkd->bhqk", q, k))
        lse = softmax(products, v, sinks, adapter)[1]
    return out, lse, weights


def on_heads(q, k, v, adapter, kind):
    """The arrays in a dtype, with the keys and values that each query head reads."""
    H, G = q.shape[1], k.shape[1]
    assert H % G == 0 and (H == G or adapter.groups != "none"), "heads"
    share = np.arange(H) // (H // G) if adapter.groups == "repeat-interleave" else np.arange(H) % G
    return q.astype(kind), k[:, share].astype(kind), v[:, share].astype(kind)


def scores(q, k, given, adapter):
    """(B, H, Q, K): what the softmax takes; −∞ where a row does not attend."""
    (H, Q), K = q.shape[1:3], k.shape[2]
    scale = given.get("scale", q.shape[-1] ** -0.5 if adapter.scale is None else adapter.scale)
    found = np.einsum("bhqd,bhkd->bhqk", q, k) * scale
    distance = np.arange(K) - np.arange(Q)[:, None] - (0 if adapter.causal == "top-left" else K - Q)
    if "alibi" in adapter.always:  # as the code of its paper has it
        power = 2 ** int(np.log2(H))
        slopes = [-8 * (h + 1) / power if h < power else -4 * (2 * (h - power) + 1) / power for h in range(H)]
        found -= np.exp2(slopes)[:, None, None] * abs(distance)
    cap = given.get("softcap")
    capped = (lambda x: cap * np.tanh(x / cap)) if cap else (lambda x: x)
    bias = given.get("bias")
    bias = 0.0 if bias is None else _four(bias, adapter).astype(q.dtype)
    hidden = np.zeros((1, 1, 1, K), bool)
    if "mask" in given and adapter.mask == "additive":
        added = _four(given["mask"], adapter).astype(q.dtype)
        hidden, bias = np.isneginf(added), bias + np.where(np.isneginf(added), 0, added)
    found = capped(found) + bias if adapter.softcap == "before-bias" else capped(found + bias)
    return np.where(_allowed(given, adapter, distance) & ~hidden, found, -np.inf)


def _four(array, adapter):
    """A mask or bias with four axes."""
    if adapter.mask_shapes == ("BK",):
        assert array.ndim == 2
        return array[:, None, None]
    if adapter.mask_shapes == ("BQK",):
        assert array.ndim == 3
        return array[:, None]
    return array


def _allowed(given, adapter, distance):
    """Which pairs the arguments allow, but for added masks."""
    allowed = np.ones((1, 1, *distance.shape), bool)
    if given.get("causal") or "causal" in adapter.always:
        allowed = allowed & (distance <= 0)
    if "window" in given:
        size = given["window"]
        assert isinstance(size, tuple) == adapter.window.startswith("left"), "a number, or a pair"
        left, right = size if isinstance(size, tuple) else (size, size)
    else:
        left, right = given.get("window_before"), given.get("window_after")
    if left is not None:
        allowed = (
            allowed
            & {
                "self-included": (distance > -left) & (distance <= 0),
                "self-excluded": distance >= -left,
                "both-sides": (distance >= -left) & (distance <= right),
                "left-right": (distance >= -left) & (distance <= right),
                "left-right-self-included": (distance > -left) & (distance < right),
            }[adapter.window]
        )
    if "mask" in given and adapter.mask != "additive":
        mask = _four(given["mask"], adapter)
        assert mask.dtype == bool
        allowed = allowed & (mask if adapter.mask == "true-attends" else ~mask)
    if "lengths" in given:
        allowed = allowed & (np.arange(distance.shape[1]) < np.asarray(given["lengths"])[:, None])[:, None, None]
    return allowed


def softmax(kept, v, sinks, adapter):
    """out, lse and weights."""
    top = kept.max(-1, initial=-np.inf, keepdims=True)
    sinks = None if sinks is None else sinks[:, None, None].astype(kept.dtype)
    top = top if sinks is None else np.maximum(top, sinks)
    top = np.where(np.isneginf(top), 0, top)
    powers = np.exp(kept - top)
    total = powers.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - top)
    empty = np.isneginf(kept).all(-1, keepdims=True)
    with np.errstate(all="ignore"):
        weights = powers / total
        lse = (top + np.log(total))[..., 0]
    filled = {"zero": 0.0, "nan": np.nan, "mean": 1 / max(v.shape[2], 1)}[adapter.empty_row]
    weights = np.where(empty, filled, weights)
    out = np.einsum("bhqk,bhke->bhqe", weights, v)
    out = np.where(empty, np.nan, out) if adapter.empty_row == "nan" else out  # without any key, too
    if sinks is None:
        lse = np.where(empty[..., 0], -np.inf if adapter.empty_lse == "-inf" else np.inf, lse)
    return out, lse / np.log(2) if adapter.lse == "base-2" else lse, weights
