"""Device implementation of the public functions, for tensors that are not on the CPU; cpu.py is that for the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...common.arrays import device_of, stand_in
from ...language.checks.arguments import Arguments, picked
from ...language.measures import checked_request
from ..choice import Explained, known
from ..cost import read_of
from . import flex, sdpa
from . import tiles as streamed
from .choose import choose
from .device_call import DeviceCall
from .flex import SIZE
from .statistics import statistics as answers
from .statistics import weights as weights_of


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
    call = DeviceCall.of(q, k, v, **arguments._asdict(), where="explain")
    name, why = choose(call, engine)
    return Explained(call.problem, name, why, (SIZE, SIZE), skips=True, read=read_of(q=call.q, k=call.k, v=call.v))
