"""The operators `torch.ops.regard.attention`, `attention_backward` and `attention_tangent`, on each device.

A rule is passed as its text (`language.rule_text`), and the tensors x0, x1, … that it reads as operands, so that torch
tracks them and a program that holds the call needs nothing else.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.autograd import forward_ad

from ...common.arrays import read_array
from ...common.dtypes import torch_real
from ...common.errors import refuse
from ...engines import dispatch
from ...language.checks.arguments import Arguments
from ...language.problem import Problem, Tangents
from ...language.rule_text import read
from .derivative import Twice, as_tensors, differentiable, forward_of, gradients, one_by_one, tables_of_score

library = torch.library.Library("regard", "DEF")
_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor[] tables, Tensor? start, Tensor? batch_start, "
    "Tensor? head_start, Tensor? seed, str mask, str score, float? scale, float dropout, str engine"
)
library.define(f"attention({_ARGUMENTS}) -> (Tensor out, Tensor sums, Tensor lost)")
library.define(
    "attention_backward(Tensor? dout, Tensor? dsums, Tensor out, Tensor sums, Tensor lost, bool[] needs, "
    f"{_ARGUMENTS}) -> Tensor[]"
)
library.define(f"attention_tangent(Tensor?[] tangents, {_ARGUMENTS}) -> (Tensor dout, Tensor dsums)")


class Operands(NamedTuple):
    """The operands of `torch.ops.regard.attention`, in the order of its schema."""

    q: Any
    k: Any
    v: Any
    sinks: Any
    tables: Sequence[Any]
    start: Any
    batch_start: Any
    head_start: Any
    seed: Any
    mask: str
    score: str
    scale: float | None
    dropout: float
    engine: str

    @property
    def tensors(self) -> tuple:
        """Those for which there may be derivatives."""
        return self.q, self.k, self.v, self.sinks, *self.tables

    @property
    def numbers(self) -> tuple:
        """The integers, which are tensors so that another number does not recompile a program."""
        return self.start, self.batch_start, self.head_start, self.seed

    @property
    def rest(self) -> tuple:
        """The other operands."""
        return self.mask, self.score, self.scale, self.dropout, self.engine

    @classmethod
    def joined(cls, numbers: Sequence[Any], rest: Sequence[Any], tensors: Sequence[Any]) -> Operands:
        """The operands from their three parts."""
        return cls._make((*tensors[:4], tensors[4:], *numbers, *rest))

    @property
    def arguments(self) -> Arguments:
        """The arguments of the call besides q, k and v."""
        mask, score = (read(text, self.tables) if text else None for text in (self.mask, self.score))
        start, batch_start, head_start = (None if each is None else each.cpu().numpy() for each in self.numbers[:3])
        seed = None if self.seed is None else int(self.seed) % 2**64
        return Arguments(mask, score, self.scale, start, self.sinks, self.dropout, seed, batch_start, head_start)

    @property
    def problem(self) -> Problem:
        return Problem.of(self.q, self.k, self.v, gradients=True, **self.arguments._asdict())


# ---- on the CPU ------------------------------------------------------------------------------------------------------


def _on_cpu(*given):
    call = Operands(*given)
    return forward_of(call.problem, call.engine)


def _backward_on_cpu(*given):
    (*passed, needs), call = given[:6], Operands(*given[6:])
    return gradients(call.problem, call.engine, needs, passed, call.tensors)


def _tangent_on_cpu(tangents, *given):
    call = Operands(*given)
    problem = call.problem
    if call.engine not in ("auto", "reference"):
        raise refuse(
            "attention",
            f"engine {call.engine!r} has no forward-mode derivative",
            f"engine={call.engine!r}",
            "reference",
            'use engine="auto"',
        )
    read_by_score = tables_of_score(problem, call.tables, [tangent is not None for tangent in tangents[4:]])
    dq, dk, dv, dsinks = (
        None if tangent is None else read_array(tangent, "tangent").reshape(tensor.shape)
        for tangent, tensor in zip(tangents[:4], call.tensors, strict=False)
    )
    dtables = {
        read_by_score[id(tensor)]: read_array(tangent, "tangent")
        for tensor, tangent in zip(call.tables, tangents[4:], strict=True)
        if tangent is not None and id(tensor) in read_by_score
    }
    dout, dlse = dispatch.push_forward(problem, Tangents.of(tuple(call.q.shape[:-3]), dq, dk, dv, dtables, dsinks))
    return as_tensors(problem, dout.astype(problem.dtype), np.stack([dlse.astype(problem.real)] * 3))


# ---- on a GPU --------------------------------------------------------------------------------------------------------


def _on_gpu(*given):
    """The forward pass on a GPU, by torch's kernels."""
    call = Operands(*given)
    out, lse = dispatch.attend(call.q, call.k, call.v, call.arguments, call.engine, lse=True)
    return out, torch.stack([lse] * 3).to(torch_real(call.q.dtype)), out.new_empty(0, dtype=torch.int16)


def _backward_on_gpu(*given):
    """Runs the forward pass again under torch's autograd, and differentiates it."""
    (dout, dsums, *_, needs), call = given[:6], Operands(*given[6:])
    tensors = [
        None if tensor is None else tensor.detach().requires_grad_(needed)
        for tensor, needed in zip(call.tensors, needs, strict=True)
    ]
    wanted = [tensor for tensor, needed in zip(tensors, needs, strict=True) if needed]
    if dout is None and dsums is None:
        return [torch.zeros_like(tensor) for tensor in wanted]
    with torch.enable_grad(), _recorded():
        results = zip(_on_gpu(*Operands.joined(call.numbers, call.rest, tensors))[:2], (dout, dsums), strict=True)
        (*some,) = [(result, slope) for result, slope in results if slope is not None]
        slopes = [slope for _, slope in some]
        found = torch.autograd.grad([result for result, _ in some], wanted, slopes, allow_unused=True)
    return [torch.zeros_like(tensor) if part is None else part for tensor, part in zip(wanted, found, strict=True)]


def _tangent_on_gpu(tangents, *given):
    raise refuse(
        "attention",
        "this device has no forward-mode derivative",
        f"tensors on {given[0].device}",
        "tensors on the CPU",
        "use backward(), or move the tensors: tensor.cpu()",
    )


def _recorded():
    """Enables torch's autograd, which is disabled inside an operator."""
    hidden = torch._C._dispatch_tls_local_exclude_set().remove(torch._C.DispatchKey.AutogradFunctionality)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), hidden)


# ---- without data ----------------------------------------------------------------------------------------------------


def _fake(*given):
    call = Operands(*given)
    sizes = (*call.q.shape[:-1], call.v.shape[-1])
    lost = call.q.new_empty(sizes if call.q.itemsize == 2 and not call.q.is_cuda else 0, dtype=torch.int16)
    return call.q.new_empty(sizes), call.q.new_empty((3, *call.q.shape[:-1]), dtype=torch_real(call.q.dtype)), lost


def _fake_backward(*given):
    needs, call = given[5], Operands(*given[6:])
    return [tensor.new_empty(tensor.shape) for tensor, needed in zip(call.tensors, needs, strict=True) if needed]


def _fake_tangent(tangents, *given):
    return _fake(*given)[:2]


for _device, _implementations in {
    "CPU": (_on_cpu, _backward_on_cpu, _tangent_on_cpu),
    "CUDA": (_on_gpu, _backward_on_gpu, _tangent_on_gpu),
}.items():
    for _name, _implementation in zip(("", "_backward", "_tangent"), _implementations, strict=True):
        library.impl(f"attention{_name}", _implementation, _device)
torch.library.register_fake("regard::attention", _fake, lib=library)
torch.library.register_fake("regard::attention_backward", _fake_backward, lib=library)
torch.library.register_fake("regard::attention_tangent", _fake_tangent, lib=library)


# ---- under transforms: autograd in both directions, torch.func, torch.compile ----------------------------------------


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
        found = iter(differentiable(work, _twice(needs, ctx.rest, 5), dout, dsums, out, sums, lost, *given))
        return *[None] * FIXED, *(next(found) if needed else None for needed in needs)

    @staticmethod
    def jvp(ctx, *tangents):
        tensors = ctx.saved_tensors[NUMBERS:]
        given = [
            None if tangent is None else tangent.to(tensor.dtype)
            for tangent, tensor in zip(tangents[FIXED:], tensors, strict=True)
        ]
        work = functools.partial(_push_forward, len(tensors), ctx.rest)
        return *differentiable(work, _twice(None, ctx.rest, len(tensors)), *given, *ctx.saved_tensors), None

    @staticmethod
    def vmap(info, dims, *given):
        return one_by_one(_Attention, info.batch_size, dims, given)


@contextlib.contextmanager
def below_autograd():
    """Calls go to the device at once, and their tensors are what they are: their derivatives are computed here."""
    with torch._C._AutoDispatchBelowAutograd(), forward_ad._set_fwd_grad_enabled(False):
        yield


# Function.apply also binds default arguments. `forward` has none, and binding takes longer than the rest of `apply`.
_apply = super(torch.autograd.Function, _Attention).apply
_forward = torch.ops.regard.attention.default
_backward = torch.ops.regard.attention_backward.default
_tangent = torch.ops.regard.attention_tangent.default


def _twice(needs: Sequence[bool] | None, rest: Sequence[Any], before: int) -> Twice:
    """How a derivative of the operator is differentiated again."""

    def problem(numbers, tensors) -> tuple[Problem, str]:
        call = Operands.joined(numbers, rest, tensors)
        return call.problem, call.engine

    return Twice(problem, needs, before, NUMBERS)


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
    return list(differentiable(work, _twice(needs, call.rest, 5), *passed, *call.numbers, *call.tensors))


def _tangent_of_autograd(tangents, *given):
    call = Operands(*given)
    work = functools.partial(_push_forward, len(call.tensors), call.rest)
    twice = _twice(None, call.rest, len(call.tensors))
    return differentiable(work, twice, *tangents, *call.numbers, *call.tensors)


library.impl("attention", _of_autograd, "Autograd")
library.impl("attention_backward", _backward_of_autograd, "Autograd")
library.impl("attention_tangent", _tangent_of_autograd, "Autograd")
