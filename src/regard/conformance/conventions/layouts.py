"""Layouts: the axes of q, k, v, masks and lse as the function takes them, and back to (B, H, S, D)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray
Lengths = Sequence[int] | None  # how many rows of each batch entry exist; None for all

ORDER = {"BHSD": (0, 1, 2, 3), "BSHD": (0, 2, 1, 3), "SBHD": (2, 0, 1, 3)}
# The axes that a layout has not; the call must have size 1 there.
MISSING = {"HSD": "B", "SD": "BH"}


def batch_axis(layout: str) -> int | None:
    """The axis of batch entries; None if the layout has none."""
    return ORDER[layout].index(0) if layout in ORDER else 0 if layout == "BSD" else None


def pack(array: Array, layout: str, lengths: Lengths = None) -> Array:
    """An array (B, H, S, D) in a layout, contiguous."""
    if layout in ORDER:
        packed = array.transpose(ORDER[layout])
    elif layout == "BSD":
        B, H, S, D = array.shape
        packed = array.transpose(0, 2, 1, 3).reshape(B, S, H * D)
    elif layout == "THD":
        rows = [array.shape[2]] * len(array) if lengths is None else lengths
        entries = [entry[:, :n].swapaxes(0, 1) for entry, n in zip(array, rows)]
        packed = np.concatenate(entries) if entries else np.zeros((0, array.shape[1], array.shape[3]), array.dtype)
    else:
        packed = array[0] if layout == "HSD" else array[0, 0]
    return np.ascontiguousarray(packed)


def packed_shape(layout: str, shape: Sequence[int], lengths: Lengths = None) -> tuple[int, ...]:
    """The shape in a layout of an array (B, H, S, D)."""
    B, H, S, D = shape
    if layout in ORDER:
        return tuple(shape[axis] for axis in ORDER[layout])
    total = B * S if lengths is None else sum(lengths)
    return {"BSD": (B, S, H * D), "THD": (total, H, D), "HSD": (H, S, D), "SD": (S, D)}[layout]


def unpack(array: Array, layout: str, shape: Sequence[int], lengths: Lengths = None) -> Array:
    """An array of `packed_shape` as (B, H, S, D). Rows that do not exist are 0."""
    B, H, S, D = shape
    if layout in ORDER:
        return array.transpose(np.argsort(ORDER[layout]))
    if layout == "BSD":
        return array.reshape(B, S, H, D).transpose(0, 2, 1, 3)
    if layout == "THD":
        found = np.zeros((B, H, S, D), array.dtype)
        ends = np.cumsum([S] * B if lengths is None else lengths)
        for entry, rows in zip(found, np.split(array, ends[:-1])):
            entry[:, : len(rows)] = rows.swapaxes(0, 1)
        return found
    return array.reshape(B, H, S, D)


def shown(layout: str, shape: Sequence[int], last: str = "D") -> str:
    """What the axes of a layout are: `BSHD with B=2, S=5, H=3, D=4`. last: the name of the depth."""
    B, H, S, D = shape
    sizes = {"T": f"T={B * S}", "B": f"B={B}", "S": f"S={S}", "H": f"H={H}", "D": f"{last}={D}"}
    if layout == "BSD":
        sizes["D"] = f"H·{last}={H * D}"
    return f"{layout} with {', '.join(sizes[axis] for axis in layout)}"


def reduced(axes: str, layout: str) -> str:
    """Axes such as BHQK without those that the layout has not."""
    for missing in MISSING.get(layout, ""):
        axes = axes.replace(missing, "", 1)
    return axes.lstrip("1") if layout in MISSING else axes


def fitting(shape: Sequence[int], accepted: Sequence[str], layout: str) -> str | None:
    """The accepted axes in which a mask (B or 1, H or 1, Q or 1, K) is passed: its own if accepted, else the first that
    can hold it; None if none can."""
    own = "".join(axis if size > 1 or axis == "K" else "1" for axis, size in zip("BHQK", shape))
    listed = list(dict.fromkeys(reduced(axes, layout) for axes in accepted))
    can = [axes for axes in listed if all(size == 1 or axis in axes for axis, size in zip("BHQK", shape))]
    return own if own in can else next(iter(can), None)


def merged(array: Array, axes: str, sizes: dict[str, int]) -> Array:
    """A mask (B or 1, H or 1, Q or 1, K) with these axes, each of its full size except those written 1."""
    full = np.broadcast_to(array, tuple(sizes[axis] if axis in axes else 1 for axis in "BHQK"))
    return np.ascontiguousarray(full.reshape(tuple(1 if axis == "1" else sizes[axis] for axis in axes)))


def in_words(shape: Sequence[int]) -> str:
    """A shape as Python writes it."""
    return str(tuple(int(size) for size in shape))
