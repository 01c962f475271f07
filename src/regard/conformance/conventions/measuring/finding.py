"""The first measurement: with which arrays, layout and sizes the function runs, and what it returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ....common.dtypes import FLOATS
from ....laws.call import Answer, Call, shape_of
from ..fields import CHOICES, Adapter
from ..layouts import packed_shape, reduced
from ..read import lse_shape
from ..validation import Parameter
from .probe import Probe, law, normal, plain, sizes_for

GENERAL = {"B": 2, "H": 3, "G": 3, "Q": 5, "K": 7, "D": 4, "E": 6}  # all sizes differ
LARGE = GENERAL | {"H": 4, "G": 4, "Q": 64, "K": 64, "D": 64, "E": 64}
# What runs decides what the function supports: E ≠ D, then Q ≠ K, then small depths, then float32.
SMALL: tuple[tuple[dict[str, int], str], ...] = (
    (GENERAL, "float32"),
    (GENERAL | {"D": 8, "E": 8}, "float32"),
    (GENERAL | {"Q": 7}, "float32"),
    (GENERAL | {"Q": 8, "K": 8, "D": 8, "E": 8}, "float32"),
)
RARE = (*((LARGE, row.name) for row in FLOATS.values() if row.bits <= 32), (GENERAL, "float64"))


def find(probe: Probe, parameters: Sequence[Parameter], function: str) -> bool:
    """Sets arrays, layout, returns and sizes of the probe. False if no call ran. function: its qualified name."""
    masked = probe.adapter.parameters.get("mask") in {each.name for each in parameters if each.required}
    kinds = _kinds(probe.adapter, parameters, function)
    for kind, (sizes, dtype) in [*product(kinds, SMALL), *product(kinds, RARE)]:
        fallback = None
        probe.dtype = dtype
        for adapter in _candidates(replace(probe.adapter, arrays=kind), parameters):
            size = sizes_for(sizes, adapter)
            call = _call(probe, size, masked)
            answer, adapter = _read(probe, call, adapter, size)
            if answer.out is None:
                continue
            if (settled := _means(probe, call, answer, adapter)) is not None:
                split = _with_fixed_heads(probe, settled)
                if split is not settled:
                    size = sizes_for(sizes | {"E": sizes["D"]}, split)
                    settled, call = split, _call(probe, size, masked)
                return _keep(probe, settled, size, call)
            fallback = fallback or (adapter, size, call)
        if fallback:
            return _keep(probe, *fallback)
    return False


def _candidates(adapter: Adapter, parameters: Sequence[Parameter]) -> Iterator[Adapter]:
    """Adapters to try, the declared one first."""
    required = {each.name for each in parameters if each.required}
    polarities, shapes, windows = [adapter.mask], [adapter.mask_shapes], [adapter.window]
    if adapter.parameters.get("mask") in required:
        polarities += [each for each in CHOICES["mask"] if each != adapter.mask]
        shapes += [(each,) for each in ("QK", "BQK", "B11K", "BK", "HQK") if (each,) != adapter.mask_shapes]
    if adapter.parameters.get("window") in required:
        windows += ["left-right"]
    for layout in _layouts(adapter):
        heads = adapter.heads
        if layout == "BSD" and "heads" not in adapter.parameters and heads is None:
            heads = 1
        for shape, mask, window in product(shapes, polarities, windows):
            yield replace(adapter, layout=layout, heads=heads, mask=mask, mask_shapes=shape, window=window)


def _kinds(adapter: Adapter, parameters: Sequence[Parameter], function: str) -> list[str]:
    """Kinds of arrays: the declared one, the one that annotations or the package of the function name, and the rest.

    NumPy comes before torch and jax, which may have to be imported for the question.
    """
    text = " ".join(each.annotation for each in parameters)
    hints = {"torch": ("Tensor", "torch"), "jax": ("jax", "jnp"), "numpy": ("ndarray", "NDArray", "np.")}
    named = [kind for kind, words in hints.items() if any(word in text for word in words)]
    named += [kind for kind in ("torch", "jax") if function.startswith(f"{kind}.")]
    declared = [adapter.arrays] if adapter.declares("arrays") else []
    return list(dict.fromkeys([*declared, *named, *CHOICES["arrays"]]))


def _layouts(adapter: Adapter) -> list[str]:
    """Layouts: the declared one, those that the parameters suggest, and the rest."""
    names = adapter.parameters
    declared = [adapter.layout] if adapter.declares("layout") else []
    likely = ["THD"] * ("cu_seqlens_q" in names) + ["BSD"] * ("heads" in names or adapter.heads is not None)
    return list(dict.fromkeys([*declared, *likely, "BHSD", "BSHD", "SBHD", "HSD", "THD", "SD", "BSD"]))


def _call(probe: Probe, size: Mapping[str, int], masked: bool = False) -> Call:
    """A call with q = 0 and ordinary values: the output is their mean over the attended keys. masked: whether the last
    key is hidden, so that a function which requires a mask shows what true means.
    """
    mask = np.arange(size["K"])[None, None, None] < size["K"] - 1 if masked else None
    return probe.call(size, **normal(size, 3, "kv"), mask=mask)


def _read(probe: Probe, call: Call, adapter: Adapter, size: Mapping[str, int]) -> tuple[Answer, Adapter]:
    """The answer, and the adapter with the structure that was returned."""
    answer = probe.ask(call, adapter)
    for correct in (_kind, _roles):
        if answer.returned is None:  # it was read, or nothing came
            break
        changed = correct(answer.returned, adapter, size)
        if changed != adapter:
            adapter = changed
            answer = probe.ask(call, adapter)
    return answer, adapter


def _kind(returned: Mapping[str, Any], adapter: Adapter, size: Mapping[str, int]) -> Adapter:
    """The adapter with the kind of the first array that was returned."""
    entries = returned.get("entries", [returned])
    listed = entries.values() if isinstance(entries, Mapping) else entries
    return replace(adapter, arrays=next((each["arrays"] for each in listed if each["is"] == "array"), adapter.arrays))


def _roles(returned: Mapping[str, Any], adapter: Adapter, size: Mapping[str, int]) -> Adapter:
    """The adapter with what each array is by its shape, and the layout of lse; itself if no array is the output."""
    shapes = {
        "out": packed_shape(adapter.layout, shape_of("out", size)),
        "weights": tuple(size[axis] for axis in reduced("BHQK", adapter.layout)),
    }
    if returned["is"] == "array":
        return replace(adapter, returns="out") if _fits(returned, shapes["out"]) else adapter
    entries = returned.get("entries", [])
    named = list(entries.items()) if isinstance(entries, Mapping) else list(enumerate(entries))
    found: dict[str, Any] = {}
    layout = adapter.lse_layout
    for key, entry in named:
        role = next((role for role in ("out", "weights") if role not in found and _fits(entry, shapes[role])), None)
        if role is None and "lse" not in found:
            axes = [adapter.lse_layout, *(axes for axes in CHOICES["lse_layout"] if axes != adapter.lse_layout)]
            fitting = [each for each in axes if _fits(entry, lse_shape(replace(adapter, lse_layout=each), size))]
            if fitting:
                role, layout = "lse", fitting[0]
        if role is not None:
            found[role] = key
    if "out" not in found:
        return adapter
    by_key = {key: role for role, key in found.items()}
    returns = found if isinstance(entries, Mapping) else tuple(by_key.get(key) for key, _ in named)
    return replace(adapter, returns=returns, lse_layout=layout)


def _fits(entry: Mapping[str, Any], shape: Sequence[int]) -> bool:
    return entry["is"] == "array" and tuple(entry["shape"]) == tuple(shape) and "float" in entry["dtype"]


def _means(probe: Probe, call: Call, answer: Answer, adapter: Adapter) -> Adapter | None:
    """The adapter if the output is the mean of the values over all keys, or over all up to each row, alike or weighted
    as ALiBi does, which it then says."""
    causal = [adapter.causal, *(each for each in CHOICES["causal"] if each != adapter.causal)]
    always = [replace(adapter, always=(), causal=adapter.causal)]
    always += [replace(adapter, always=("causal",), causal=each) for each in causal]
    always += [replace(each, always=(*each.always, "alibi")) for each in always]
    for each in always:
        right = law(call, each)
        if right.allowed.any(-1).all() and probe.close(answer.out, right.out):
            return each
    return None


def _keep(probe: Probe, adapter: Adapter, size: dict[str, int], call: Call) -> bool:
    """Sets what was found, and sizes whose values are one-hot over the keys."""
    shape = packed_shape(adapter.layout, call.q.shape)
    words = f"a call with queries of shape {shape} returns the output in that layout"
    sample = probe.adapter
    probe.adapter = adapter
    probe.evidence |= {"arrays": f"it takes and returns {adapter.arrays} arrays", "layout": words}
    probe.evidence["returns"] = f"it returns {adapter.returns!r}" if adapter.returns != "out" else "it returns an array"
    if adapter.always or sample.always:
        probe.evidence["always"] = _always_words(adapter, size)
    if adapter.always and size["Q"] != size["K"]:
        probe.evidence["causal"] = _always_words(adapter, size)
    if adapter.mask != sample.mask:
        probe.evidence["mask"] = f"a call that hides nothing runs as {adapter.mask}"
    if size["D"] == size["E"]:  # values one-hot over the keys need E = K, so D = E = K
        larger = max(size["K"], size["D"])
        size = size | {"K": larger, "E": larger, "D": larger, "Q": larger if size["Q"] == size["K"] else size["Q"]}
    else:
        size = size | {"E": size["K"]}
    probe.sizes = size
    return True


def _always_words(adapter: Adapter, size: Mapping[str, int]) -> str:
    """What was seen of masks that no argument requested."""
    if not adapter.always:
        return "without arguments each row attends to all keys"
    first = int(plain(adapter, size).allowed[0, 0, 0].sum())
    words = f"without arguments, at {size['Q']} rows over {size['K']} keys, row 0 attends to the first {first}"
    return f"{words}, with the weights of ALiBi" if "alibi" in adapter.always else words


def with_flags(probe: Probe) -> None:
    """What is returned if lse and weights are requested by their parameters."""
    roles = ["out"] if probe.adapter.returns == "out" else list(probe.adapter.returns)
    wanted = [role for role in ("lse", "weights") if probe.has(f"return_{role}") and role not in roles]
    if not wanted or ("returns" in probe.adapter.declared and probe.adapter.returns == "out"):
        return
    size = probe.sizes | ({"E": probe.sizes["K"] - 1} if probe.sizes["E"] != probe.sizes["D"] else {})
    for more in [wanted] if len(wanted) == 1 else [wanted, wanted[:1], wanted[1:]]:
        requested = replace(probe.adapter, returns=("out", *more))
        answer, adapter = _read(probe, _call(probe, size), requested, size)
        if answer.out is not None and set(more) <= set(adapter.returns):
            probe.adapter = adapter
            probe.evidence["returns"] = f"it returns {adapter.returns!r} if requested"
            return


# Heads that are written into the code: a function of three axes that splits the last one without being given a number.
# With large scores each row of each head takes one value, that of the key with the largest product, whatever the scale.
# Only with the right number of heads are these the rows of v.
NUMBERS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32)
OF_HEADS = {"B": 2, "H": 1, "G": 1, "Q": 6, "K": 6, "D": 4, "E": 4}
STRONG = 30.0  # of numbers in q and k
SHARE = 0.9  # of the rows: in some, two products are nearly equal


def _with_fixed_heads(probe: Probe, adapter: Adapter) -> Adapter:
    """The adapter, in layout BSD with a number of heads if the function has more than one in its code."""
    if adapter.layout not in ("HSD", "BSD") or {"heads", "key_heads"} & set(adapter.parameters):
        return adapter
    if adapter.heads not in (None, 1) or {"layout", "heads"} & set(adapter.declared):
        return adapter
    tried = (replace(adapter, layout="BSD", heads=heads, groups="none") for heads in NUMBERS)
    first = next((each for each in tried if _takes_largest(probe, each)), adapter)
    return first if (first.heads or 1) > 1 else adapter


def _takes_largest(probe: Probe, adapter: Adapter) -> bool:
    """Whether each row of each head is the value of the key with the largest product."""
    size = sizes_for(OF_HEADS, adapter)
    q, k, v = normal(size, 5).values()
    call = probe.call(size, q=STRONG * q, k=STRONG * k, v=v)
    answer = probe.ask(call, adapter)
    if answer.out is None:
        return False
    products = np.where(plain(adapter, size).allowed, q @ k.swapaxes(-1, -2), -np.inf)
    largest = np.take_along_axis(v, products.argmax(-1)[..., None], 2)
    rows = np.isclose(answer.out, largest, rtol=0.02, atol=0.02).all(-1)
    return bool(rows.mean() > SHARE)
