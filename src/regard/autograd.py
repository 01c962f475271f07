"""Attention as one step of torch's autograd: forward keeps what the engine wants to know, backward asks the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from . import engines
from .arrays import as_tensor, is_tensor, read_array
from .errors import refuse
from .expr import Table
from .gradients import fitted, learned
from .problem import Problem

__all__ = ["attend", "wanting"]


def wanting(problem: Problem, q, k, v, sinks) -> dict[Any, torch.Tensor]:
    """The tensors of a call, if one of them waits for a gradient: q, k, v, sinks by name, what the score reads by its table."""
    given = {"q": q, "k": k, "v": v, "sinks": sinks} | {table: table.source for table in learned(problem)}
    found = {name: value for name, value in given.items() if is_tensor(value)}
    return found if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in found.values()) else {}


def attend(problem: Problem, given: dict[Any, torch.Tensor], engine: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(out (B, H, Q, E), lse (B, H, Q)) of which gradients lead back to the tensors that want them."""
    return _Attention.apply(problem, tuple(given), engine, *given.values())


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, problem: Problem, names: tuple, engine: str, *tensors):
        ctx.problem, ctx.names = problem, names
        ctx.saved = engines.keep(problem, engine)
        out, lse = as_tensor(ctx.saved.out), as_tensor(ctx.saved.lse)
        ctx.save_for_backward(*tensors, out)  # torch then sees whether one of them was changed in between
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        problem, names, (*tensors, _) = ctx.problem, ctx.names, ctx.saved_tensors
        needed = dict(zip(names, ctx.needs_input_grad[3:], strict=True))
        shape = (*problem.q.shape[:3], problem.v.shape[3])
        given = np.zeros(shape, problem.dtype) if dout is None else read_array(dout, "dout")
        tables = [name for name, needs in needed.items() if needs and isinstance(name, Table)]
        found = engines.pull_back(problem, ctx.saved, given, None if dlse is None else read_array(dlse, "dlse"), tables)

        def gradient(name, like: np.ndarray) -> np.ndarray:
            if isinstance(name, Table):
                return found.tables[name].astype(like.dtype)
            if name == "sinks":
                assert found.sinks is not None
                return found.sinks.astype(like.dtype).reshape(like.shape)
            return fitted(getattr(found, name), like, problem)

        gradients = [as_tensor(gradient(name, read_array(tensor, "tensor"))) if needed[name] else None
                     for name, tensor in zip(names, tensors, strict=True)]  # fmt: skip
        if torch.is_grad_enabled():  # somebody wants to differentiate what is given here
            gradients = _Once.apply(len(gradients), *gradients, dout, dlse, *tensors)
        return None, None, None, *gradients


class _Once(torch.autograd.Function):
    """Gradients as they are; their own gradients are refused."""

    @staticmethod
    def forward(ctx, count: int, *values):
        return tuple(None if value is None else value.clone() for value in values[:count])

    @staticmethod
    def backward(ctx, *_):
        raise refuse("attention", "a second derivative", "the gradient of a gradient of attention",
                     "first derivatives", "differentiate once (create_graph=False), or use torch's own attention for this step")  # fmt: skip
