"""Which engine computes a call on a device, and why."""

from __future__ import annotations

import torch

from ...common.errors import refuse
from ..choice import known, possible
from . import flex, sdpa
from .device_call import DeviceCall

__all__ = ["ENGINES", "choose", "why_not"]

ENGINES = ("sdpa", "flex", "tiles")
REASONS = {
    "sdpa": "plain or causal: torch's fused kernels compute it",
    "flex": "FlexAttention compiled from the rules, blocks from the plan",
    "tiles": "torch operations, tile by tile",
}


def choose(call: DeviceCall, engine: str = "auto", lse: bool = False) -> tuple[str, list[str]]:
    """The engine that will run and why; a named engine that cannot is refused with all its reasons.

    The library kernels let NaN and infinity pass through a mask inside the blocks that they visit (0 · NaN is NaN). So
    where there is a mask, "auto" first looks whether all numbers are finite, which reads them once and waits for the
    device, and takes "tiles" where they are not. A named engine does not look.

    >>> import regard as rg
    >>> q = k = v = torch.eye(3)
    >>> choose(DeviceCall.of(q, k, v, mask=rg.causal()))
    ('sdpa', ["plain or causal: torch's fused kernels compute it"])
    """
    if engine in ("jit", "reference"):
        raise refuse(
            "attention",
            f"engine {engine!r} computes on the CPU",
            given=f"tensors on {call.q.device}",
            expected=f"one of auto, {', '.join(ENGINES)}",
            fix="move q, k and v: tensor.cpu()",
        )
    known(engine, ENGINES, "attention")
    if engine != "auto":
        possible(engine, why_not(call, engine, lse), "attention")
        return engine, ["asked for by name"]
    passed: list[str] = []
    for name in ENGINES:
        against = why_not(call, name, lse)
        if against:
            passed += against
        elif name != "tiles" and call.problem.mask is not None and not _finite(call):
            return "tiles", ["q, k or v holds NaN or infinity, which the library kernels let through a mask"]
        else:
            return name, [REASONS[name], *passed]
    raise AssertionError("tiles takes every call")


def why_not(call: DeviceCall, engine: str, lse: bool) -> list[str]:
    """Every reason why an engine cannot solve the call; empty if it can."""
    return {"sdpa": lambda: sdpa.why_not(call, lse), "flex": lambda: flex.why_not(call), "tiles": list}[engine]()


def _finite(call: DeviceCall) -> bool:
    """Whether nothing could leak: a masked key or value, and in a backward pass a query."""
    if call.q.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise refuse(
            "attention",
            "the numbers cannot be looked at while a CUDA graph is captured",
            given='engine="auto" and a mask',
            expected="an engine by name, which does not look for NaN",
            fix='say engine="flex" or engine="sdpa"',
        )
    backward = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (call.q, call.k, call.v))
    read = (call.k, call.v, call.q) if backward else (call.k, call.v)
    ends = [end for tensor in read if tensor.numel() for end in torch.aminmax(tensor.detach())]
    return bool(torch.isfinite(torch.stack(ends)).all()) if ends else True
