"""The operators under torch's transforms: autograd in both directions, torch.func, and torch.compile."""

from __future__ import annotations

import contextlib
import functools

import torch
import torch.utils._pytree as pytree
from torch.autograd import forward_ad

from ...common.errors import refuse
from .operator import Operands, library


def run(call: Operands):
    """(out, sums, lost) of the operator as one operation of torch.func."""
    return _Attention.apply(*call.numbers, *call.rest, *call.tensors)


NUMBERS, FIXED = 4, 9  # operands that are numbers; those before the tensors


class _Attention(torch.autograd.Function):
    """The operator and its derivatives: its numbers and the rest, then the tensors."""

    @staticmethod
    def forward(*flat):
        with below_autograd():
            return _forward(*Operands.joined(flat[:NUMBERS], flat[NUMBERS:FIXED], flat[FIXED:]))

    @staticmethod
    def setup_context(ctx, inputs, output):
        numbers, ctx.rest, tensors = inputs[:NUMBERS], inputs[NUMBERS:FIXED], inputs[FIXED:]
        ctx.save_for_backward(*numbers, *tensors, *output)
        if forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active():
            ctx.save_for_forward(*numbers, *tensors)
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, dout, dsums, _):
        *given, out, sums, lost = ctx.saved_tensors
        needs = list(ctx.needs_input_grad[FIXED:])
        work = functools.partial(_pull_back, needs, ctx.rest)
        found = iter(_differentiable_once()(work, dout, dsums, out, sums, lost, *given))
        return *[None] * FIXED, *(next(found) if needed else None for needed in needs)

    @staticmethod
    def jvp(ctx, *tangents):
        tensors = ctx.saved_tensors[NUMBERS:]
        given = [
            None if tangent is None else tangent.to(tensor.dtype)
            for tangent, tensor in zip(tangents[FIXED:], tensors, strict=True)
        ]
        work = functools.partial(_push_forward, len(tensors), ctx.rest)
        return *_differentiable_once()(work, *given, *ctx.saved_tensors), None

    @staticmethod
    def vmap(info, dims, *given):
        return _one_by_one(_Attention, info.batch_size, dims, given)


class _Once(torch.autograd.Function):
    """A derivative, which is not differentiable itself: work(…) returns tensors."""

    @staticmethod
    def forward(work, *tensors):
        return tuple(work(*tensors))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *_):
        raise _second_derivative()

    @staticmethod
    def jvp(ctx, *_):
        raise _second_derivative()

    @staticmethod
    def vmap(info, dims, *given):
        return _one_by_one(_Once, info.batch_size, dims, given)


@contextlib.contextmanager
def below_autograd():
    """Calls go to the device at once, and their tensors are what they are: their derivatives are computed here."""
    with torch._C._AutoDispatchBelowAutograd(), forward_ad._set_fwd_grad_enabled(False):
        yield


def _second_derivative():
    return refuse(
        "attention",
        "second derivatives are not supported",
        "the derivative of a derivative of attention",
        "first derivatives",
        "differentiate once (create_graph=False), or use torch's own attention for this step",
    )


def _one_by_one(step, count: int, dims, given):
    """torch.vmap: the step runs for each entry separately, so that any operand may differ between entries."""
    parts, form = pytree.tree_flatten(given)
    along = pytree.tree_leaves(dims)

    def entry(number: int):
        chosen = [part if axis is None else part.select(axis, number) for part, axis in zip(parts, along, strict=True)]
        return step.apply(*pytree.tree_unflatten(chosen, form))

    found = tuple(map(torch.stack, zip(*map(entry, range(count)), strict=True)))
    return found, (0,) * len(found)


# Function.apply also binds default arguments. `forward` has none, and binding takes longer than the rest of `apply`.
_apply, once = (super(torch.autograd.Function, each).apply for each in (_Attention, _Once))
_forward = torch.ops.regard.attention.default
_backward = torch.ops.regard.attention_backward.default
_tangent = torch.ops.regard.attention_tangent.default


def _differentiable_once():
    return _Once.apply if torch._C._are_functorch_transforms_active() else once


def _pull_back(needs, rest, *given):
    """The backward pass, below autograd; given: the five results, the numbers, and the tensors."""
    passed, numbers, tensors = given[:5], given[5 : 5 + NUMBERS], given[5 + NUMBERS :]
    with below_autograd():
        return _backward(*passed, needs, *Operands.joined(numbers, rest, tensors))


def _push_forward(count, rest, *given):
    """The forward-mode derivative, below autograd; given: the tangents, the numbers, and the tensors."""
    tangents, numbers, tensors = given[:count], given[count : count + NUMBERS], given[count + NUMBERS :]
    with below_autograd():
        return _tangent(tangents, *Operands.joined(numbers, rest, tensors))


def _of_autograd(*given):
    call = Operands(*given)
    return _apply(*call.numbers, *call.rest, *call.tensors)


def _backward_of_autograd(*given):
    (*passed, needs), call = given[:6], Operands(*given[6:])
    work = functools.partial(_pull_back, needs, call.rest)
    return list(once(work, *passed, *call.numbers, *call.tensors))


def _tangent_of_autograd(tangents, *given):
    call = Operands(*given)
    work = functools.partial(_push_forward, len(call.tensors), call.rest)
    return once(work, *tangents, *call.numbers, *call.tensors)


library.impl("attention", _of_autograd, "Autograd")
library.impl("attention_backward", _backward_of_autograd, "Autograd")
library.impl("attention_tangent", _tangent_of_autograd, "Autograd")
