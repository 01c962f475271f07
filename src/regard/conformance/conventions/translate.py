"""How a canonical call becomes arguments of the function that is judged, in its array type, layout and names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...common.dtypes import FLOATS
from ...laws.call import Answer, Call
from .fields import Adapter
from .layouts import MISSING, batch_axis, fitting, merged, on_call, pack
from .parameters import Parameter


class Absent(Exception):
    """The function cannot be given such a call. role: what it lacks; words: why."""

    def __init__(self, role: str, words: str = ""):
        self.role = role
        self.words = words or f"the function has no parameter for {role}"
        super().__init__(self.words)

    def __reduce__(self):
        return Absent, (self.role, self.words)


class Asks(Protocol):
    """What calls the function: a `Session` in a process of its own, or `InProcess`."""

    def call(self, call: Call, adapter: Adapter) -> Answer:
        """The answer to one call."""
        ...


@dataclass(frozen=True, eq=False)
class Prepared:
    """Arguments of the function.

    args, kwargs: what it is called with · given: the arrays among them, by role
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    given: Mapping[str, Any]

    def call(self, function: Callable[..., Any], replaced: Mapping[str, Any] | None = None) -> Any:
        """The result of the function. replaced: other arrays, by role."""
        new = {id(self.given[role]): array for role, array in (replaced or {}).items()}
        args = [new.get(id(value), value) for value in self.args]
        return function(*args, **{name: new.get(id(value), value) for name, value in self.kwargs.items()})


def prepare(call: Call, adapter: Adapter, parameters: Sequence[Parameter]) -> Prepared:
    """The arguments for a call. adapter: completed with the roles of the parameters · parameters: those of the function

    Raises:
        Absent: if the function has no parameter for an argument of the call, or its layout cannot hold the call.
    """
    _check_sizes(call, adapter)
    values = _values(call, adapter)
    given = {role: value for role, value in values.items() if hasattr(value, "dtype")}
    args, kwargs = _bound(values, call, adapter, parameters)
    return Prepared(args, kwargs, given)


def _check_sizes(call: Call, adapter: Adapter) -> None:
    """Raises Absent if the layout or the groups of the function cannot hold the call."""
    sizes, layout, names = call.dims, adapter.layout, adapter.parameters
    B, H, G = (sizes[name] for name in "BHG")
    if B != 1 and "B" in MISSING.get(layout, ""):
        raise Absent("batch", f"layout {layout} has no batch axis")
    if (H, G) != (1, 1) and "H" in MISSING.get(layout, ""):
        raise Absent("heads", f"layout {layout} has no heads")
    if layout == "BSD" and "heads" not in names and adapter.heads != H:
        what = "heads is not declared" if adapter.heads is None else f"it has {adapter.heads} heads, not {H}"
        raise Absent("heads", f"layout BSD: {what}")
    if H != G and adapter.groups == "none":
        raise Absent("groups", "query heads do not share key heads")
    if call.dlse is not None and adapter.lse == "natural-unscaled":
        raise Absent("dlse", "the lse is that of products without the scale")
    if B != 1 and layout == "THD" and "cu_seqlens_q" not in names:
        raise Absent("batch", "the function has no parameter for cu_seqlens_q")


def _values(call: Call, adapter: Adapter) -> dict[str, Any]:
    """The value of each role that the call passes, in the type of the function."""
    names, layout, sizes = adapter.parameters, adapter.layout, call.dims
    values: dict[str, Any] = {}
    for role, array, rows in (("q", call.q, None), ("k", call.k, call.lengths), ("v", call.v, call.lengths)):
        values[role] = on_call(pack(array, layout, rows), adapter.arrays, call.memory, batch_axis(layout))
    values |= _masks(call, adapter)
    if call.causal and "causal" not in adapter.always:
        values["causal"] = True
    if call.window is not None:
        values |= _window(call.window, call, adapter)
    for role, number in (("scale", call.scale), ("softcap", call.softcap), ("dropout", call.dropout)):
        if number is not None:
            values[role] = float(number)
    if call.dropout is not None and "seed" in names:
        values["seed"] = int(call.seed)
    if call.sinks is not None:
        values["sinks"] = on_call(call.sinks, adapter.arrays)
    if call.lengths is not None and layout != "THD":
        values["lengths"] = on_call(np.asarray(call.lengths, np.int32), adapter.arrays)
    for role in values:
        if role not in names and role not in ("q", "k", "v"):
            raise Absent(role)
    for role in ("lse", "weights"):
        if role in adapter.returns and f"return_{role}" in names:
            values[f"return_{role}"] = True
    if layout == "THD":
        values |= _sequences(call, adapter)
    for role, heads in (("heads", sizes["H"]), ("key_heads", sizes["G"])):
        if role in names:
            values[role] = heads
    return values


def _masks(call: Call, adapter: Adapter) -> dict[str, Any]:
    """The mask and the bias. If one parameter takes both, they are added."""
    names, found = adapter.parameters, {}
    together = call.bias if call.mask is not None and names.get("mask") == names.get("bias") else None
    if call.mask is not None:
        mask = call.mask
        if together is not None:
            mask = np.where(call.mask, together, np.asarray(-np.inf, together.dtype))
        elif adapter.mask == "additive":
            mask = np.where(call.mask, np.zeros((), call.dtype), np.asarray(-np.inf, call.dtype))
        elif adapter.mask == "true-hides":
            mask = ~call.mask
        found["mask"] = _shaped(mask, "mask", call, adapter)
    if call.bias is not None:
        found["bias"] = found["mask"] if together is not None else _shaped(call.bias, "bias", call, adapter)
    return found


def _shaped(array: np.ndarray, role: str, call: Call, adapter: Adapter) -> Any:
    """A mask or bias in a shape that the function accepts."""
    if adapter.packed and call.dims["B"] != 1:
        raise Absent(role, f"layout THD: a {role} for several batch entries")
    axes = fitting(array.shape, adapter)
    if axes is None:
        raise Absent(role, f"no shape of {', '.join(adapter.mask_shapes)} can hold a {role} of shape {array.shape}")
    memory = call.memory if call.memory != "expanded" else "contiguous"
    return on_call(merged(array, axes, call.dims), adapter.arrays, memory)


def _window(window: tuple[int | None, int | None], call: Call, adapter: Adapter) -> dict[str, Any]:
    """The window in the parameters of the function: one number or pair, or two numbers.

    One number says how far a row sees back. What it says about the keys after a row differs between libraries, so a
    window without such keys is passed with a causal mask, which means the same.
    """
    names, convention = adapter.parameters, adapter.window
    unlimited = call.dims["Q"] + call.dims["K"]
    before, after = (unlimited if keys is None else keys for keys in window)
    ends_here = after == 0 or call.causal or "causal" in adapter.always
    before += convention in ("self-included", "left-right-self-included")
    after += convention == "left-right-self-included"
    if "window" not in names and "window_before" in names:
        if "window_after" in names:
            return {"window_before": before, "window_after": after}
        found, absent = {"window_before": before}, Absent("window_after")
    elif convention.startswith("left-right"):
        return {"window": (before, after)}
    elif convention == "both-sides" and before == after:
        return {"window": before}
    else:
        found = {"window": before}
        absent = Absent("window", f"a window of {window} cannot be said in convention {convention}")
    if not ends_here:
        raise absent
    return found | ({"causal": True} if "causal" in names and "causal" not in adapter.always else {})


def _sequences(call: Call, adapter: Adapter) -> dict[str, Any]:
    """The limits of the batch entries in layout THD."""
    names, B = adapter.parameters, call.dims["B"]
    keys = [call.dims["K"]] * B if call.lengths is None else [int(n) for n in call.lengths]
    rows = {"q": [call.dims["Q"]] * B, "k": keys}
    if "cu_seqlens_k" not in names and rows["k"] != rows["q"] and B != 1:
        raise Absent("cu_seqlens_k")
    values: dict[str, Any] = {}
    for side, each in rows.items():
        if f"cu_seqlens_{side}" in names:
            values[f"cu_seqlens_{side}"] = on_call(np.cumsum([0, *each]).astype(np.int32), adapter.arrays)
        if f"max_seqlen_{side}" in names:
            values[f"max_seqlen_{side}"] = max(each, default=0)
    return values


def _neutral(role: str, call: Call, adapter: Adapter) -> Any:
    """The value that changes nothing, for a parameter that must be passed."""
    sizes = call.dims
    unlimited = sizes["Q"] + sizes["K"]
    if role in ("mask", "bias"):
        shape = (1, 1, 1, sizes["K"])
        additive = role == "bias" or adapter.mask == "additive"
        filled = np.zeros(shape, call.dtype) if additive else np.full(shape, adapter.mask == "true-attends")
        axes = fitting(shape, adapter)
        return None if axes is None else on_call(merged(filled, axes, sizes), adapter.arrays)
    if role == "sinks":
        return on_call(np.full(sizes["H"], -np.inf, call.dtype), adapter.arrays)
    if role == "lengths":
        return on_call(np.full(sizes["B"], sizes["K"], np.int32), adapter.arrays)
    pair = adapter.window.startswith("left-right")
    numbers: dict[str, Any] = {
        "causal": False,
        "window": (unlimited, unlimited) if pair else unlimited,
        "window_before": unlimited,
        "window_after": unlimited,
        "start": 0 if adapter.causal == "top-left" else sizes["K"] - sizes["Q"],
        "scale": sizes["D"] ** -0.5 if adapter.scale is None else adapter.scale,
        "softcap": _high_cap(call.dtype),
        "dropout": 0.0,
        "seed": 0,
        "return_lse": False,
        "return_weights": False,
    }
    return numbers.get(role)


def _high_cap(dtype: np.dtype) -> float:
    """A cap far above any score of a case, whose quotients the dtype still holds."""
    row = FLOATS[dtype.name]
    return 2.0**13 if row.small_range else 2.0**24 if row.bits <= 32 else 2.0**40


def _bound(values: Mapping[str, Any], call: Call, adapter: Adapter, listed: Sequence[Parameter]) -> tuple[tuple, dict]:
    """The values by position and by name, with neutral ones where the function requires them."""
    names = adapter.parameters
    by_name = dict(adapter.fixed) | {names[role]: value for role, value in values.items() if role in names}
    roles = {name: role for role, name in names.items()}
    for each in listed:
        if each.required and each.name not in by_name:
            by_name[each.name] = _neutral(roles[each.name], call, adapter)
    args: list[Any] = [values[role] for role in "qkv" if role not in names]
    positional = [each.name for each in listed if each.kind == "positional"]
    last = max((number for number, name in enumerate(positional) if name in by_name), default=-1)
    for name in positional[: last + 1]:
        args.append(by_name.pop(name) if name in by_name else _neutral(roles.get(name, ""), call, adapter))
    for each in listed:  # q, k and v by position, as most functions are called
        if each.kind != "either" or roles.get(each.name) not in ("q", "k", "v") or each.name not in by_name:
            break
        args.append(by_name.pop(each.name))
    takes_any = not listed or any(each.kind == "names" for each in listed)
    for name in by_name:
        if not takes_any and name not in [each.name for each in listed]:
            raise Absent(roles.get(name, name), f"the function has no parameter {name}")
    return tuple(args), by_name
