"""Engine selection for tensors on a device."""

from __future__ import annotations

import torch

from ...common.errors import refuse
from ..choice import known, possible
from . import flex, sdpa
from .device_call import DeviceCall, capturing

ENGINES = ("sdpa", "flex", "tiles")
REASONS = {
    "sdpa": "plain or causal: torch's fused kernels compute it",
    "flex": "FlexAttention compiled from the rules, blocks from the plan",
    "tiles": "torch operations, tile by tile",
}


def choose(call: DeviceCall, engine: str = "auto", lse: bool = False) -> tuple[str, list[str]]:
    """(engine that will run, reasons); raises `Refused` with every reason if the requested engine cannot compute it.

    In the library kernels NaN and infinity pass through a mask inside the blocks that they visit (0 · NaN is NaN). With
    a mask, "auto" therefore checks that all values are finite, which reads them once and synchronizes with the device,
    and selects "tiles" if they are not. An explicitly requested engine skips this check.

    >>> import regard as rg
    >>> q = k = v = torch.eye(3)
    >>> choose(DeviceCall.of(q, k, v, mask=rg.causal()))
    ('sdpa', ["plain or causal: torch's fused kernels compute it"])
    """
    if engine in ("jit", "reference"):
        raise refuse(
            "attention",
            f"engine {engine!r} computes on the CPU",
            f"tensors on {call.q.device}",
            f"one of auto, {', '.join(ENGINES)}",
            "move q, k and v: tensor.cpu()",
        )
    known(engine, ENGINES, "attention")
    if engine != "auto":
        possible(engine, why_not(call, engine, lse), "attention")
        return engine, ["requested explicitly"]
    passed: list[str] = []
    for name in ENGINES:
        against = why_not(call, name, lse)
        if against:
            passed += against
        elif name != "tiles" and call.problem.mask is not None and not _finite(call):
            return "tiles", ["q, k or v contains NaN or infinity, which pass through a mask in the library kernels"]
        else:
            return name, [REASONS[name], *passed]
    raise AssertionError("tiles supports every call")


def why_not(call: DeviceCall, engine: str, lse: bool) -> list[str]:
    """Every reason why an engine cannot compute the call; empty if it can."""
    return {"sdpa": lambda: sdpa.why_not(call, lse), "flex": lambda: flex.why_not(call), "tiles": list}[engine]()


def _finite(call: DeviceCall) -> bool:
    """Whether k and v, and in a backward pass q, are finite, so that no masked value can reach the result."""
    if capturing(call.q.device):
        raise refuse(
            "attention",
            "values cannot be checked during CUDA graph capture",
            'engine="auto" and a mask',
            "an explicitly requested engine, which skips the check for NaN",
            'pass engine="flex" or engine="sdpa"',
        )
    backward = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (call.q, call.k, call.v))
    read = (call.k, call.v, call.q) if backward else (call.k, call.v)
    ends = [end for tensor in read if tensor.numel() for end in torch.aminmax(tensor.detach())]
    return bool(torch.isfinite(torch.stack(ends)).all()) if ends else True
