"""Device implementation of the public functions, for tensors that are not on the CPU, and the choice of their engine;
cpu.py is that for the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...common.arrays import device_of, stand_in
from ...common.errors import refuse
from ...language.checks.arguments import Arguments, picked
from ...language.measures import checked_request
from ..choice import Explained, known, possible
from ..cost import read_of
from . import flex, sdpa
from . import tiles as streamed
from .device_call import DeviceCall, capturing
from .flex import SIZE
from .statistics import statistics as answers
from .statistics import weights as weights_of

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


def attend(
    q, k, v, arguments: Arguments, engine="auto", *, lse=False, rows_first=False, where="attention", autograd=None
) -> tuple[torch.Tensor, ...]:
    """(out,) or (out, lse) of one call; rows_first: out is (B, Q, H, E). Torch's autograd computes the gradients, so
    `autograd` is not used.

    >>> import regard as rg
    >>> q = k = v = torch.eye(3)
    >>> attend(q, k, v, Arguments(mask=rg.causal()), "tiles")[0].round(decimals=2)[0]
    tensor([1., 0., 0.])
    """
    call = DeviceCall.of(q, k, v, **arguments._asdict(), where=where, gradients=True)
    name, _ = choose(call, engine, lse=lse)
    found: tuple[Any, ...] = {"sdpa": sdpa, "flex": flex, "tiles": streamed}[name].attend(call)
    shaped = tuple(each.reshape(*call.problem.lead, *each.shape[2:]) for each in found[: 1 + lse])
    return (found[0].transpose(1, 2).contiguous(), *shaped[1:]) if rows_first else shaped


@torch.no_grad()
def weights(q, k, arguments: Arguments, rows, keys) -> torch.Tensor:
    """The weights of selected rows and keys, (…, H, rows, keys) in the dtype of q."""
    call = DeviceCall.of(q, k, None, **arguments._asdict(), where="attention_weights")
    parts = picked(rows, keys, call.problem.dims)
    some = [torch.from_numpy(np.ascontiguousarray(np.atleast_1d(part))).to(q.device) for part in parts]
    found = weights_of(call, *some).to(q.dtype)
    return found.reshape((*call.problem.lead, *parts[0].shape, *parts[1].shape))


@torch.no_grad()
def statistics(q, k, of, arguments: Arguments, engine="auto") -> dict[str, Any]:
    """The results by name, with the leading axes of the caller's tensors."""
    known(engine, ("tiles",), "attention_stats", "no such engine for tensors on a device")
    call = DeviceCall.of(q, k, None, **arguments._asdict(), where="attention_stats")
    sinks = None if arguments.sinks is None else stand_in(arguments.sinks)
    rest = arguments._replace(sinks=sinks)._asdict()
    request = checked_request(stand_in(q), stand_in(k), of, device=device_of(q), **rest)

    def shaped(value):
        if isinstance(value, tuple):
            return type(value)(*map(shaped, value))
        return value.reshape(*call.problem.lead, *value.shape[2:])

    return {name: shaped(value) for name, value in answers(request, call).items()}


def explained(q, k, v, arguments: Arguments, engine="auto") -> Explained:
    """How `attend` would compute the call."""
    call = DeviceCall.of(q, k, v, **arguments._asdict(), where="explain", gradients=True)
    name, why = choose(call, engine)
    return Explained(call.problem, name, why, (SIZE, SIZE), skips=True, read=read_of(q=call.q, k=call.k, v=call.v))
