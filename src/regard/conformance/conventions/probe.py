"""Probe: small calls of the function under the conventions found so far, and what was found; and the first measurement:
with which arrays, layout and sizes the function runs, and what it returns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from ...common.dtypes import FLOATS
from ...common.errors import Refused
from ...laws.call import Answer, Call, shape_of
from ...laws.forward import Outcome, forward, meaning
from .fields import CHOICES, Adapter
from .layouts import packed_shape, reduced
from .parameters import Parameter
from .read import lse_shape
from .translate import Absent, Asks

SECONDS = 60.0  # after this time nothing more is measured
FAILURES = 3  # calls that may end the process or run into the time limit


def now() -> float:
    """The seconds of a clock."""
    return time.monotonic()


def dtype_of(name: str) -> np.dtype:
    """The NumPy dtype of a name."""
    return FLOATS[name].numpy


def normal(sizes: Mapping[str, int], seed: int, names: str = "qkv") -> dict[str, np.ndarray]:
    """Normal numbers for these arrays of a call."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape_of(name, sizes)) for name in names}


def sizes_for(sizes: Mapping[str, int], adapter: Adapter) -> dict[str, int]:
    """Sizes that a layout can hold."""
    found = dict(sizes)
    if adapter.layout in ("HSD", "SD") or (adapter.layout == "THD" and "cu_seqlens_q" not in adapter.parameters):
        found["B"] = 1
    if adapter.layout == "SD":
        found |= {"H": 1, "G": 1}
    if adapter.layout == "BSD" and "heads" not in adapter.parameters and adapter.heads:
        found |= {"H": adapter.heads, "G": adapter.heads}
    return found


def law(call: Call, adapter: Adapter) -> Outcome:
    """What the law says of a call."""
    return forward(meaning(call, adapter), call.q, call.k, call.v)


def plain(adapter: Adapter, sizes: Mapping[str, int]) -> Outcome:
    """What the law says of queries of 0 without any argument: which keys rows attend to, and scores of ALiBi."""
    arrays: dict[str, Any] = {name: np.zeros(shape_of(name, sizes)) for name in "qkv"}
    return law(Call(**arrays), adapter)


@dataclass(eq=False)
class Probe:
    """Calls the function, and collects the conventions that are found.

    adapter: what is known · sizes: of the calls, with values one-hot over the keys (E ≥ K) · dtype: of the calls ·
    evidence: words by field · unmeasured: why no call decided a field · failing_dtypes: what calls with a mask raise,
    in dtypes in which others run · ended: whether a call was not made, because of the time limit or of too many
    failures
    """

    session: Asks
    adapter: Adapter
    sizes: dict[str, int] = field(default_factory=dict)
    dtype: str = "float32"
    evidence: dict[str, str] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    failing_dtypes: dict[str, str] = field(default_factory=dict)
    failures: int = 0
    ended: bool = False
    started: float = field(default_factory=lambda: now())

    def found(self, name: str, value: Any, words: str) -> None:
        """Keeps the measured value of a field."""
        self.adapter = replace(self.adapter, **{name: value})
        self.evidence[name] = words

    def unknown(self, name: str, why: str = "no call that tells it runs") -> None:
        """Keeps why a field is not measured."""
        self.unmeasured.setdefault(name, why)

    @property
    def mask_sizes(self) -> dict[str, int]:
        """Sizes of calls with masks or biases; rows of several entries have none in common."""
        return self.sizes | ({"B": 1} if self.adapter.layout == "THD" else {})

    def has(self, role: str) -> bool:
        """Whether the function has a parameter for a role."""
        return role in self.adapter.parameters

    def ask(self, call: Call, adapter: Adapter | None = None) -> Answer:
        """The answer to a call; "absent" if the function cannot be given it, or too many calls failed before."""
        self.ended = self.ended or self.failures >= FAILURES or now() - self.started > SECONDS
        absent = Answer(status="absent", words="no call ran")
        if self.ended:
            return absent
        try:
            answer = self.session.call(call, adapter or self.adapter)
        except (Absent, Refused):  # no such argument, or arrays of a library that is not installed
            return absent
        self.failures += answer.status in ("timeout", "crashed")
        return answer

    def call(self, sizes: Mapping[str, int] | None = None, **arguments: Any) -> Call:
        """A call with q = 0, so that weights are uniform whatever the scale, and values one-hot over the keys."""
        size = {**self.sizes, **(sizes or {})}
        dtype = dtype_of(self.dtype)
        arrays = {
            "q": np.zeros(shape_of("q", size)),
            **normal(size, 5, "k"),
            "v": np.broadcast_to(np.eye(size["K"], size["E"]), shape_of("v", size)),
        }
        given: dict[str, Any] = {
            name: np.ascontiguousarray(arguments.pop(name, array)).astype(dtype) for name, array in arrays.items()
        }
        return Call(**given, **arguments)

    def weights(self, sizes: Mapping[str, int] | None = None, adapter: Adapter | None = None, **arguments: Any):
        """The weights (B, H, Q, K) of such a call, read from its output; None if it does not run."""
        call = self.call(sizes, **arguments)
        answer = self.ask(call, adapter)
        return None if answer.out is None else answer.out[..., : call.dims["K"]]

    def attended(self, sizes: Mapping[str, int] | None = None, adapter: Adapter | None = None, **arguments: Any):
        """Which keys each row attends to, (B, H, Q, K); None if the call does not run."""
        weights = self.weights(sizes, adapter, **arguments)
        return None if weights is None else np.nan_to_num(weights) > 0.1 / weights.shape[-1]

    def close(self, first: Any, second: Any) -> bool:
        """Whether two arrays agree to what the dtype of the calls can hold."""
        row = FLOATS[self.dtype]
        most = max(10 * row.roundoff, 1e-6 if row.bits > 32 else 1e-4)  # functions may use float32 or TF32 inside
        return bool(np.allclose(first, second, rtol=most, atol=most))


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
