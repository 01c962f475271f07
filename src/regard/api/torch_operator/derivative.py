"""Attention and its gradients over tensors, from checked problems; and derivatives as operations of autograd, which
have derivatives themselves (`reference.second`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.utils._pytree as pytree

from ...common.arrays import as_tensor, read_array
from ...common.errors import refuse
from ...engines import dispatch
from ...language.problem import Problem, Saved, Tangents
from ..backward import fitted, learned


def forward_of(problem: Problem, engine: str) -> tuple[torch.Tensor, ...]:
    """(out, sums, lost) in the layout of the caller's tensors."""
    out, sums, lost, _ = dispatch.keep(problem, engine)
    if lost is None:
        lost = np.zeros(out.shape if problem.dtype.itemsize == 2 else 0, np.int16)
    flat = as_tensor(lost.reshape(*problem.lead, *out.shape[2:]) if lost.size else lost.reshape(0))
    return *as_tensors(problem, out, sums), flat


def as_tensors(problem: Problem, out: np.ndarray, sums: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    rows = out.shape[2]
    return as_tensor(out.reshape(*problem.lead, *out.shape[2:])), as_tensor(sums.reshape(3, *problem.lead, rows))


def gradients(problem: Problem, engine: str, needs: Sequence[bool], passed, tensors) -> list[torch.Tensor]:
    """The gradients of the tensors that need them: q, k, v, sinks, and those that the rules read.

    passed: the gradients of the results of the forward pass, or None for 0, and these results: dout, dsums, out, sums,
    and what rounding took from out (`Saved`): for inputs of 16 bits in the shape of out, otherwise empty.
    """
    dout, dsums, out, sums, lost = passed
    B, H, Q, _ = problem.q.shape
    four = (B, H, Q, problem.v.shape[3])
    name, _ = dispatch.choose(problem, engine)
    saved = Saved(
        read_array(out, "out").reshape(four),
        sums.numpy().reshape(3, B, H, Q),
        lost.numpy().reshape(four) if problem.dtype.itemsize == 2 else None,
        name,
    )
    given = np.zeros(four, problem.dtype) if dout is None else read_array(dout, "dout").reshape(four)
    dlse = None if dsums is None else dsums[0].numpy().reshape(B, H, Q)
    tables = tables_of_score(problem, tensors[4:], needs[4:])
    wanted = [
        tables[id(each)] for each, needed in zip(tensors[4:], needs[4:], strict=True) if needed and id(each) in tables
    ]
    found = dispatch.pull_back(problem, saved, given, dlse, wanted)

    def gradient(place: int, tensor) -> torch.Tensor:
        array = read_array(tensor, "attention")
        if place < 3:
            return as_tensor(fitted((found.q, found.k, found.v)[place], array, problem))
        if place == 3:
            assert found.sinks is not None
            return as_tensor(found.sinks.astype(array.dtype).reshape(array.shape))
        if id(tensor) not in tables:
            return torch.zeros_like(tensor)
        return as_tensor(found.tables[tables[id(tensor)]].astype(array.dtype))

    inputs = zip(enumerate(tensors), needs, strict=True)
    return [gradient(place, tensor) for (place, tensor), needed in inputs if needed]


def tables_of_score(problem: Problem, tensors, needs) -> dict[int, Any]:
    """The tables of the score by the id of their tensors. What only the mask reads has none: its derivative is 0."""
    tables = {id(table.source): table for table in learned(problem)}
    masked = () if problem.mask is None else problem.mask.sources
    known = {*tables, *map(id, masked)}
    for tensor, needed in zip(tensors, needs, strict=True):
        if needed and id(tensor) not in known:
            raise refuse(
                "attention",
                "a tensor of a rule has no derivative",
                f"a tensor {list(tensor.shape)} that requires gradients, of which a rule reads the value only",
                "a table that the score reads: table(tensor)[…]",
                "pass tensor.detach(), or read it as a table",
            )
    return tables


# ---- derivatives of derivatives --------------------------------------------------------------------------------------


class Twice(NamedTuple):
    """How a derivative is differentiated again. problem: of the numbers and the tensors of the call, and its engine.
    needs: of a backward pass, which tensors have a gradient; None for a forward-mode derivative. before: the tensors
    before those of the call: (dout, dsums, out, sums, lost), or the tangents of the tensors; numbers: those after them.
    """

    problem: Callable[[Sequence[Any], Sequence[Any]], tuple[Problem, str]]
    needs: Sequence[bool] | None
    before: int
    numbers: int

    def parts(self, given: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """What is before, the numbers and the tensors."""
        end = self.before + self.numbers
        return given[: self.before], given[self.before : end], given[end:]

    def backward(self, slopes: Sequence[Any], needed: Sequence[bool], given: Sequence[Any]) -> list[Any]:
        """The gradient of each of `given` that needs one, from those of the results of the derivative."""
        first, numbers, tensors = self.parts(given)
        _refuse_constants(needed[self.before + self.numbers + 3 :])
        problem, engine = self.problem(numbers, tensors)
        if self.needs is None:  # (dout, dsums) of tangents: linear in them, and their gradients are first ones
            _refuse_constants([each is not None for each in first[3:]])
            (dout, dsums), along = slopes, first[:3]
            passed = dout, dsums, *forward_of(problem, engine)
            wanted = [each is not None for each in along] + [False] * (len(tensors) - 3)
            slopes_along = iter(gradients(problem, engine, wanted, passed, tensors))
            found: list[Any] = [next(slopes_along) if each is not None else None for each in along]
            found += [None] * (self.before - 3)
        else:
            given_slopes = iter(slopes)
            along = [next(given_slopes) if needed_before else None for needed_before in self.needs]
            _refuse_constants([each is not None for each in along[3:]])
            dout, dsums = first[:2]
            found = [None] * self.before
        twice = _second(problem, along[:3], dout, dsums, tensors)
        if self.needs is not None:
            lead, rows = problem.lead, problem.dims["Q"]
            found[0] = as_tensor(twice.dout.astype(problem.dtype).reshape(*lead, rows, -1))
            sums = np.zeros((3, *lead, rows), problem.real)
            sums[0] = twice.dlse.reshape(*lead, rows)
            found[1] = as_tensor(sums)
        found += [None] * self.numbers
        for array, tensor in zip(twice[:3], tensors[:3]):
            found.append(as_tensor(fitted(array, read_array(tensor, "attention"), problem)))
        found += [None] * (len(tensors) - 3)
        return [each for each, wanted in zip(found, needed, strict=True) if wanted]

    def forward(self, tangents: Sequence[Any], given: Sequence[Any]) -> list[torch.Tensor]:
        """How the gradients change along tangents of `given`."""
        (dout, dsums, *kept), numbers, tensors = self.parts(given)
        moved, _, along = self.parts(tangents)
        if self.needs is None:
            raise _refusal("a forward-mode derivative in forward mode", "use reverse mode for one of the two")
        _refuse_constants([each is not None for each in along[3:]] + [bool(each) for each in self.needs[3:]])
        problem, engine = self.problem(numbers, tensors)
        twice = _second(problem, along[:3], dout, dsums, tensors)
        found = [
            as_tensor(fitted(array, read_array(tensor, "attention"), problem))
            for array, tensor, needed in zip(twice[:3], tensors, self.needs)
            if needed
        ]
        if moved[0] is None and moved[1] is None:
            return found
        others = gradients(problem, engine, self.needs, (*moved[:2], *kept), tensors)
        return [one + other for one, other in zip(found, others, strict=True)]


def _second(problem: Problem, along: Sequence[Any], dout, dsums, tensors: Sequence[Any]):
    B, H, Q, E = (problem.dims[name] for name in "BHQE")
    q, k, v = (None if each is None else read_array(each, "tangent") for each in along)
    direction = Tangents.of(tuple(tensors[0].shape[:-3]), q, k, v, {}, None)
    slope = np.zeros((B, H, Q, E)) if dout is None else read_array(dout, "dout").reshape(B, H, Q, E)
    dlse = None if dsums is None else read_array(dsums, "dlse")[0].reshape(B, H, Q)
    return dispatch.second(problem, direction, slope, dlse)


def _refuse_constants(needed: Sequence[bool]) -> None:
    """Raises `Refused` if sinks or tables of rules are to have second derivatives."""
    if any(needed):
        raise _refusal(
            "of sinks, or of tensors that rules read", "detach them, or differentiate once (create_graph=False)"
        )


def _refusal(given: str, fix: str):
    return refuse("attention", "this second derivative is not supported", given, "those of q, k and v", fix)


class Derivative(torch.autograd.Function):
    """A derivative: work(…) returns tensors, and `twice` differentiates it."""

    @staticmethod
    def forward(work, twice, *tensors):
        return tuple(work(*tensors))

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.twice, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *slopes):
        needed, count = ctx.needs_input_grad[2:], len(slopes)
        twice = ctx.twice

        def work(*given):
            return twice.backward(given[:count], needed, given[count:])

        def linear(moved, given):
            along = iter(moved)
            return twice.forward([next(along) if wanted else None for wanted in needed], given[count:])

        found = iter(_last(work, None if twice.needs is None else linear, *slopes, *ctx.saved_tensors))
        return None, None, *(next(found) if wanted else None for wanted in needed)

    @staticmethod
    def jvp(ctx, _, __, *tangents):
        count, twice = len(tangents), ctx.twice

        def work(*given):
            return twice.forward(given[:count], given[count:])

        return tuple(_last(work, None, *tangents, *ctx.saved_tensors))

    @staticmethod
    def vmap(info, dims, *given):
        return one_by_one(Derivative, info.batch_size, dims, given)


class _Last(torch.autograd.Function):
    """A second derivative, which has none itself, except that it is linear in the first of its tensors: as many as
    `linear` returns gradients for, from those of the results. That is how torch.autograd.functional.hvp uses it.
    """

    @staticmethod
    def forward(work, linear, *tensors):
        return tuple(work(*tensors))

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.linear, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *slopes):
        given, needed = ctx.saved_tensors, ctx.needs_input_grad[2:]
        found = [] if ctx.linear is None else ctx.linear(slopes, given)
        found = [slope if wanted else None for slope, wanted in zip(found, needed)]
        functions = iter(ctx.next_functions)  # of those that are tensors
        nodes = [None if tensor is None else next(functions)[0] for tensor in given]
        for node, wanted in list(zip(nodes, needed, strict=True))[len(found) :]:
            if wanted and node is not None and torch._C._will_engine_execute_node(node):
                raise _third()
        return None, None, *found, *[None] * (len(given) - len(found))

    @staticmethod
    def jvp(ctx, *_):
        raise _third()

    @staticmethod
    def vmap(info, dims, *given):
        return one_by_one(_Last, info.batch_size, dims, given)


def _third():
    return refuse(
        "attention",
        "third derivatives are not supported",
        "the derivative of a second derivative of attention",
        "first and second derivatives",
        "differentiate twice (create_graph=False in the second step)",
    )


def one_by_one(step, count: int, dims, given):
    """torch.vmap: the step runs for each entry separately, so that any operand may differ between entries."""
    parts, form = pytree.tree_flatten(given)
    along = pytree.tree_leaves(dims)

    def entry(number: int):
        chosen = [part if axis is None else part.select(axis, number) for part, axis in zip(parts, along, strict=True)]
        return step.apply(*pytree.tree_unflatten(chosen, form))

    found = tuple(map(torch.stack, zip(*map(entry, range(count)), strict=True)))
    return found, (0,) * len(found)


# Function.apply also binds default arguments. `forward` has none, and binding takes longer than the rest of `apply`.
derivative, last = (super(torch.autograd.Function, each).apply for each in (Derivative, _Last))


def _last(work, linear, *tensors):
    return (_Last.apply if torch._C._are_functorch_transforms_active() else last)(work, linear, *tensors)


def differentiable(work, twice: Twice, *tensors) -> tuple[torch.Tensor, ...]:
    """What work(…) returns, as an operation that can be differentiated."""
    return (Derivative.apply if torch._C._are_functorch_transforms_active() else derivative)(work, twice, *tensors)
