"""Random calls that use what an adapter has."""

import numpy as np

from regard.laws.call import Call


def random_call(rng, adapter):
    """A call with a random subset of the arguments."""
    names = adapter.parameters
    Q, K, D, E = (int(rng.integers(1, 7)) for _ in range(4))
    B = 1 if adapter.layout in ("HSD", "SD") else int(rng.integers(1, 4))
    G = 1 if adapter.layout == "SD" else int(rng.integers(1, 4))
    H = G if adapter.groups == "none" or adapter.layout == "SD" else G * int(rng.integers(1, 3))

    def normal(*shape):
        return rng.standard_normal(shape)

    given = {}
    axes = adapter.mask_shapes[rng.integers(len(adapter.mask_shapes))]
    axes = {"HSD": axes.replace("B", ""), "SD": axes.replace("B", "").replace("H", "")}.get(adapter.layout, axes)
    shape = tuple(size if axis in axes else 1 for axis, size in zip("BHQK", (B, H, Q, K)))

    def has(role):
        return role in names and rng.random() < 0.5

    if has("mask"):
        given["mask"] = rng.random(shape) < 0.6
    if has("bias"):
        given["bias"] = normal(*shape)
    if has("causal"):
        given["causal"] = True
    if has("window") or has("window_before"):
        before, after = (int(n) for n in rng.integers(0, 4, 2))
        one = {"self-included": (before, 0), "self-excluded": (before, 0), "both-sides": (before, before)}
        given["window"] = one.get(adapter.window, (before, after))
    if has("lengths") or (adapter.layout == "THD" and adapter.empty_row != "mean" and rng.random() < 0.4):
        given["lengths"] = rng.integers(0, K + 1, B)
    if has("scale"):
        given["scale"] = float(rng.uniform(0.1, 2))
    if has("softcap"):
        given["softcap"] = float(rng.uniform(0.5, 3))
    if has("sinks"):
        given["sinks"] = normal(H)
    memory = ("contiguous", "strided", "expanded", "readonly")[rng.integers(4)]
    q, k, v = normal(B, H, Q, D), normal(B, G, K, D), normal(B, G, K, E)
    if memory == "expanded":
        q, k, v = (np.repeat(part[:1], B, 0) for part in (q, k, v))
    return Call(q=q, k=k, v=v, memory=memory, **given)
