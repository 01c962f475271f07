"""What the functions people call do with tensors that are not on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...common.arrays import device_of, stand_in
from ...common.errors import did_you_mean, refuse
from ...language.measures import asked
from . import flex, sdpa
from . import tiles as streamed
from .choose import choose
from .device_call import DeviceCall
from .statistics import statistics
from .statistics import weights as weights_of

__all__ = ["attention", "stats", "weights"]


def attention(q, k, v, *, engine: str = "auto", wanted: int = 1, **given) -> tuple[torch.Tensor, ...]:
    """out, or out and lse (wanted=2), of one call, with gradients; arguments as for `regard.attention`, tensors of any
    one device.

    >>> import regard as rg
    >>> q = k = v = torch.eye(3)
    >>> attention(q, k, v, mask=rg.causal(), engine="tiles")[0].round(decimals=2)[0]
    tensor([1., 0., 0.])
    """
    call = DeviceCall.of(q, k, v, gradients=True, **given)
    name, _ = choose(call, engine, lse=wanted == 2)
    found: tuple[Any, ...] = {"sdpa": sdpa, "flex": flex, "tiles": streamed}[name].attend(call)
    return tuple(each.reshape(*call.problem.lead, *each.shape[2:]) for each in found[:wanted])


@torch.no_grad()
def weights(call: DeviceCall, rows: np.ndarray, keys: np.ndarray) -> torch.Tensor:
    """The weights of chosen rows and keys, counted from 0 -> (B, H, rows, keys) in q's dtype."""
    return weights_of(
        call, *(torch.from_numpy(np.ascontiguousarray(part)).to(call.q.device) for part in (rows, keys))
    ).to(call.q.dtype)


@torch.no_grad()
def stats(q, k, of, *, engine: str = "auto", sinks=None, **given) -> dict[str, Any]:
    """The answers by name, shaped as the caller's tensors are; arguments as for `attention_stats`."""
    if engine not in ("auto", "tiles"):
        raise refuse(
            "attention_stats",
            "no such engine for tensors on a device",
            given=f"engine={engine!r}",
            expected="auto or tiles",
            fix=did_you_mean(str(engine), ("auto", "tiles")),
        )
    call = DeviceCall.of(q, k, None, sinks=sinks, where="attention_stats", **given)
    question = asked(
        stand_in(q), stand_in(k), of, sinks=None if sinks is None else stand_in(sinks), device=device_of(q), **given
    )

    def shaped(value):
        if isinstance(value, tuple):
            return type(value)(*map(shaped, value))
        return value.reshape(*call.problem.lead, *value.shape[2:])

    return {name: shaped(value) for name, value in statistics(question, call).items()}
