"""Attention as an operator of torch, for autograd, torch.func and torch.compile.

The operators are `torch.ops.regard.attention` and `torch.ops.regard.attention_backward`. A rule is passed as its
digest, and the tensors that it reads are passed as operands, so that torch tracks them.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.utils._pytree as pytree

from ..common.arrays import as_tensor, is_tensor, read_array
from ..common.dtypes import torch_real
from ..common.errors import refuse
from ..engines import dispatch
from ..language.checks.arguments import Arguments
from ..language.expr import Expr, Op, Read, fold
from ..language.expr import table as as_table
from ..language.problem import Problem
from ..language.tree import interning as nodes
from ..language.tree.interning import known
from .backward import fitted, learned

__all__ = ["Operands", "attend", "named", "run", "seed_tensor"]

ARRAY = "array"  # instead of a digest: the next tensor is the mask, or is added to the score

nodes.traced = torch.compiler.is_dynamo_compiling

_library = torch.library.Library("regard", "DEF")
_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor[] tables, Tensor? start, Tensor? seed, str mask, str score, "
    "float? scale, float dropout, str engine"
)
_library.define(f"attention({_ARGUMENTS}) -> (Tensor out, Tensor sums, Tensor lost)")
_library.define(
    "attention_backward(Tensor? dout, Tensor? dsums, Tensor out, Tensor sums, Tensor lost, bool[] needs, "
    f"{_ARGUMENTS}) -> Tensor[]"
)
_held: dict[str, Expr] = {}  # the rules of compiled graphs, which refer to them by digest only


class Operands(NamedTuple):
    """The operands of `torch.ops.regard.attention`, in the order of its schema."""

    q: Any
    k: Any
    v: Any
    sinks: Any
    tables: Any
    start: Any
    seed: Any
    mask: str
    score: str
    scale: float | None
    dropout: float
    engine: str

    @property
    def tensors(self) -> tuple:
        """Those for which there may be gradients."""
        return self.q, self.k, self.v, self.sinks, *self.tables


class Forward(NamedTuple):
    """The results of the forward pass, as the backward pass needs them, and their gradients, or None for 0.

    lost: what rounding took from out (`dispatch.Saved`), or no numbers.
    """

    dout: Any
    dsums: Any
    out: Any
    sums: Any
    lost: Any


def attend(problem: Problem, q, k, v, sinks, engine: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(out (…, H, Q, E), lse (…, H, Q)), differentiable with respect to the tensors that require gradients."""
    rules = [() if rule is None else rule.sources for rule in (problem.mask, problem.score)]
    given = [each if is_tensor(each) else None for each in (q, k, v, sinks)]
    out, sums, _ = _Eager.apply(problem, engine, len(rules[0]), *given, *rules[0], *rules[1])
    return out, sums[0]


def named(rule: Any, tables: list[torch.Tensor]) -> str:
    """The operand that represents a rule; the tensors that it reads are appended to the list."""
    if rule is None:
        return ""
    if isinstance(rule, torch.Tensor):
        tables.append(rule)
        return ARRAY
    tables.extend(rule.sources)
    return rule.digest


def seed_tensor(seed: int) -> torch.Tensor:
    """A seed of 64 bits as a tensor, so that a different seed does not recompile the program."""
    return torch.tensor(seed - 2**64 if seed >= 2**63 else seed)


def run(call: Operands):
    """(out, sums, lost) of the operator inside a transform of torch.func, as one operation."""
    return _Attention.apply(*call[5:], *call.tensors)


class _Eager(torch.autograd.Function):
    """An eager call outside torch.compile and functorch: the checked problem goes directly to its engine."""

    @staticmethod
    def forward(ctx, problem: Problem, engine: str, masking: int, *tensors):
        found = _forward_of(problem, engine)
        ctx.call = problem, engine, masking
        ctx.save_for_backward(*tensors, *found)  # torch then detects changes in place before the backward pass
        ctx.set_materialize_grads(False)
        return found

    @staticmethod
    def backward(ctx, dout, dsums, _):
        *tensors, out, sums, lost = ctx.saved_tensors
        (problem, engine, masking), needs = ctx.call, ctx.needs_input_grad[3:]

        def work(dout, dsums, out, sums, lost, *tensors):
            return _gradients(problem, engine, masking, needs, Forward(dout, dsums, out, sums, lost), tensors)

        given = dout, dsums, out, sums, lost, *tensors
        found = iter(_once(work, *given) if torch.is_grad_enabled() else work(*given))
        return None, None, None, *(next(found) if needed else None for needed in needs)


class _Attention(torch.autograd.Function):
    """The operator for torch's compiler and transforms: its last seven operands, then the tensors."""

    @staticmethod
    def forward(*flat):
        with torch._C._AutoDispatchBelowAutograd():
            return _forward(*_operands(flat[:7], flat[7:]))

    @staticmethod
    def setup_context(ctx, inputs, output):
        start, seed, *ctx.rest = inputs[:7]
        # References, so that the rules live until the backward pass.
        ctx.rules = [known(name) for name in ctx.rest[:2] if name not in ("", ARRAY)]
        ctx.save_for_backward(start, seed, *inputs[7:], *output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, dout, dsums, _):
        start, seed, *tensors, out, sums, lost = ctx.saved_tensors
        needs = list(ctx.needs_input_grad[7:])
        once = _Once.apply if torch._C._are_functorch_transforms_active() else _once
        work = functools.partial(_operate, needs, ctx.rest)
        found = iter(once(work, dout, dsums, out, sums, lost, start, seed, *tensors))
        return *[None] * 7, *(next(found) if needed else None for needed in needs)

    @staticmethod
    def vmap(info, dims, *given):
        return _one_by_one(_Attention, info.batch_size, dims, given)


class _Once(torch.autograd.Function):
    """The backward pass, which is not differentiable: work(…) returns the gradients of the tensors that need them."""

    @staticmethod
    def forward(work, *tensors):
        return tuple(work(*tensors))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *_):
        raise refuse(
            "attention",
            "second derivatives are not supported",
            given="the gradient of a gradient of attention",
            expected="first derivatives",
            fix="differentiate once (create_graph=False), or use torch's own attention for this step",
        )

    @staticmethod
    def vmap(info, dims, *given):
        return _one_by_one(_Once, info.batch_size, dims, given)


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
_apply, _once = (super(torch.autograd.Function, each).apply for each in (_Attention, _Once))
_forward, _backward = torch.ops.regard.attention.default, torch.ops.regard.attention_backward.default


def _operands(rest, tensors) -> Operands:
    """The operands from the last seven and the tensors."""
    return Operands._make((*tensors[:4], tensors[4:], *rest))


def _of_autograd(*given):
    call = Operands(*given)
    return _apply(*call[5:], *call.tensors)


def _backward_of_autograd(*given):
    (*passed, needs), call = given[:6], Operands(*given[6:])
    work = functools.partial(_operate, needs, call[7:])
    return list(_once(work, *passed, call.start, call.seed, *call.tensors))


def _operate(needs, rest, *given):
    """The operator's backward pass, below autograd; given: the results, start and seed, and the tensors."""
    passed, start_and_seed, tensors = given[:5], given[5:7], given[7:]
    with torch._C._AutoDispatchBelowAutograd():
        return _backward(*passed, needs, *_operands((*start_and_seed, *rest), tensors))


def _on_cpu(*given):
    call = Operands(*given)
    arguments, _ = _arguments_of(call)
    return _forward_of(Problem.of(call.q, call.k, call.v, gradients=True, **arguments._asdict()), call.engine)


def _backward_on_cpu(*given):
    (*passed, needs), call = given[:6], Operands(*given[6:])
    arguments, masking = _arguments_of(call)
    problem = Problem.of(call.q, call.k, call.v, gradients=True, **arguments._asdict())
    return _gradients(problem, call.engine, masking, needs, Forward(*passed), call.tensors)


def _forward_of(problem: Problem, engine: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(out, sums, lost) in the layout of the caller's tensors."""
    _, out, sums, lost = dispatch.keep(problem, engine)
    if lost is None:
        lost = np.empty(0, np.int16)
    return (
        as_tensor(out.reshape(*problem.lead, *out.shape[2:])),
        as_tensor(sums.reshape(3, *problem.lead, out.shape[2])),
        as_tensor(lost.reshape(-1)),
    )


def _gradients(problem: Problem, engine: str, masking: int, needs, passed: Forward, tensors):
    """The gradients of the tensors that need them: q, k, v, sinks, and tables, of which the first `masking` belong to
    the mask.
    """
    (dout, dsums, out, sums, lost), tables = passed, tensors[4:]
    B, H, Q, _ = problem.q.shape
    four = (B, H, Q, problem.v.shape[3])
    name, _ = dispatch.choose(problem, engine)
    lost = lost.numpy().reshape(four) if lost.numel() else None
    saved = dispatch.Saved(name, read_array(out, "out").reshape(four), sums.numpy().reshape(3, B, H, Q), lost)
    given = np.zeros(four, problem.dtype) if dout is None else read_array(dout, "dout").reshape(four)
    dlse = None if dsums is None else dsums[0].numpy().reshape(B, H, Q)
    read = {id(table.source): table for table in learned(problem)}
    wanted = [read[id(tensor)] for tensor, needed in zip(tables[masking:], needs[4 + masking :], strict=True) if needed]
    found = dispatch.pull_back(problem, saved, given, dlse, wanted)

    def gradient(place: int, tensor) -> torch.Tensor:
        array = read_array(tensor, "attention")
        if place < 3:
            return as_tensor(fitted((found.q, found.k, found.v)[place], array, problem))
        if place == 3:
            assert found.sinks is not None
            return as_tensor(found.sinks.astype(array.dtype).reshape(array.shape))
        if place < 4 + masking:  # a mask has derivative 0
            return torch.zeros_like(tensor)
        return as_tensor(found.tables[read[id(tensor)]].astype(array.dtype))

    inputs = zip(enumerate(tensors), needs, strict=True)
    return [gradient(place, tensor) for (place, tensor), needed in inputs if needed]


def _on_gpu(*given):
    """The forward pass on a GPU, by torch's kernels."""
    call = Operands(*given)
    arguments, _ = _arguments_of(call)
    out, lse = dispatch.attend(call.q, call.k, call.v, arguments, call.engine, lse=True)
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
        results = zip(_on_gpu(*_operands(call[5:], tensors))[:2], (dout, dsums), strict=True)
        (*some,) = [(result, slope) for result, slope in results if slope is not None]
        slopes = [slope for _, slope in some]
        found = torch.autograd.grad([result for result, _ in some], wanted, slopes, allow_unused=True)
    return [torch.zeros_like(tensor) if part is None else part for tensor, part in zip(wanted, found, strict=True)]


def _recorded():
    """Enables torch's autograd, which is disabled inside an operator."""
    hidden = torch._C._dispatch_tls_local_exclude_set().remove(torch._C.DispatchKey.AutogradFunctionality)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), hidden)


def _arguments_of(call: Operands) -> tuple[Arguments, int]:
    """The arguments of a call, and how many of its tables belong to the mask."""
    rest = list(call.tables)
    rules: list[Any] = []
    counts: list[int] = []
    for name in (call.mask, call.score):
        rule = None if name in ("", ARRAY) else known(name)
        own = [rest.pop(0) for _ in range(len(rule.sources) if rule is not None else name == ARRAY)]
        rules.append(_over(rule, own) if rule is not None else own[0] if own else None)
        counts.append(len(own))
    start = None if call.start is None else call.start.cpu().numpy()
    seed = None if call.seed is None else int(call.seed) % 2**64
    arguments = Arguments(rules[0], rules[1], call.scale, start, call.sinks, call.dropout, seed)
    return arguments, counts[0]


def _over(rule: Expr, tensors: list[torch.Tensor]) -> Expr:
    """The rule, over these tensors instead of those that it was built with."""
    instead = {id(source): as_table(given) for given, source in zip(tensors, rule.sources, strict=True)}
    if all(instead.get(id(table.source), table) is table for table in rule.tables):  # the memory is the same too
        return rule

    def read(node, *index):
        made = instead.get(id(node.table.source), node.table)
        return Read(made, *index)

    return fold(rule, lambda node: node, lambda node: node, read, lambda node, *args: Op(node.name, *args))


def _fake(*given):
    call = Operands(*given)
    _held.update((name, known(name)) for name in (call.mask, call.score) if name not in ("", ARRAY))
    out = call.q.new_empty((*call.q.shape[:-1], call.v.shape[-1]))
    real = torch_real(call.q.dtype)
    rounded = call.q.dtype != real and call.q.device.type == "cpu" and call.engine != "reference"
    lost = call.q.new_empty(out.numel() if rounded else 0, dtype=torch.int16)
    return out, call.q.new_empty((3, *call.q.shape[:-1]), dtype=real), lost


def _fake_backward(*given):
    needs, call = given[5], Operands(*given[6:])
    return [tensor.new_empty(tensor.shape) for tensor, needed in zip(call.tensors, needs, strict=True) if needed]


for _device, _impl, _backward_impl in (("CPU", _on_cpu, _backward_on_cpu), ("CUDA", _on_gpu, _backward_on_gpu)):
    _library.impl("attention", _impl, _device)
    _library.impl("attention_backward", _backward_impl, _device)
_library.impl("attention", _of_autograd, "Autograd")
_library.impl("attention_backward", _backward_of_autograd, "Autograd")
torch.library.register_fake("regard::attention", _fake, lib=_library)
torch.library.register_fake("regard::attention_backward", _fake_backward, lib=_library)
