"""Eager calls with gradients, and such calls again: torch keeps the tensors of a call, and nothing else does.

Autograd then decides how long they live and where: it can compute them again (checkpointing), move them to another
device, or notice that one was changed in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from ...common.arrays import as_tensor, is_tensor, read_array
from ...engines import fast_path
from ...engines.fast_path import CachedCall
from ...language.checks.arrays import four_axes
from ...language.expr import Expr, Table
from ...language.problem import Problem
from ...language.rule_text import read
from ...language.tree.writing import operand, write
from .derivative import Twice, differentiable, forward_of, gradients

NOTHING = np.empty(0)
NEEDS = True, True, True, False  # q, k, v and no sinks


def _over(bare: Problem, rules: tuple, *tensors) -> Problem:
    """A checked problem without its tensors and its rules, over these; a rule that reads arrays is its text."""
    q, k, v, sinks, *tables = tensors
    batch = tuple(q.shape[:-3])
    q, k, v = (four_axes(read_array(each, "attention"), batch) for each in (q, k, v))
    sinks = None if sinks is None else read_array(sinks, "sinks")
    if sinks is not None and sinks.ndim == 1:
        sinks = sinks[:, None]
    mask, score = (read(rule, tables) if isinstance(rule, str) else rule for rule in rules)
    return replace(bare, q=q, k=k, v=v, mask=mask, score=score, sinks=sinks)


def attend(problem: Problem, q, k, v, sinks, engine: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(out (…, H, Q, E), lse (…, H, Q)), differentiable with respect to the tensors that require gradients."""
    tables: list[torch.Tensor] = []
    mask, score = _without_arrays(problem.mask, tables), _without_arrays(problem.score, tables)
    bare = replace(problem, q=NOTHING, k=NOTHING, v=NOTHING, mask=None, score=None, sinks=None)
    over = functools.partial(_over, bare, (mask, score))
    given = [
        None if each is None else each if is_tensor(each) else as_tensor(np.array(each)) for each in (q, k, v, sinks)
    ]
    out, sums = _Eager.apply(problem, over, engine, *given, *tables)
    return out, sums[0]


def _without_arrays(rule: Expr | None, tables: list[torch.Tensor]) -> Expr | str | None:
    """The rule, or its text if it reads arrays that may change; these are appended to the tables."""
    if rule is None or all(table.frozen for table in rule.tables):
        return rule
    return write(rule, tables, _kept)


def _kept(table: Table) -> torch.Tensor:
    """The tensor of a table; a copy of an array of NumPy that may change."""
    return operand(table) if table.frozen or is_tensor(table.source) else operand(table).clone()


class _Eager(torch.autograd.Function):
    """The checked problem goes directly to its engine."""

    @staticmethod
    def forward(ctx, problem: Problem, over: Callable[..., Problem], engine: str, *tensors):
        out, sums, lost = forward_of(problem, engine)
        ctx.over, ctx.engine = over, engine
        ctx.save_for_backward(*tensors, out, sums, lost)
        ctx.set_materialize_grads(False)
        return out, sums

    @staticmethod
    def backward(ctx, dout, dsums):
        over, engine, needs = ctx.over, ctx.engine, ctx.needs_input_grad[3:]
        *tensors, out, sums, lost = ctx.saved_tensors

        def work(*given):
            passed, tensors = given[:5], given[5:]
            return gradients(over(*tensors), engine, needs, passed, tensors)

        given = dout, dsums, out, sums, lost, *tensors
        if torch.is_grad_enabled():
            twice = Twice(lambda _, held: (over(*held), engine), needs, 5, 0)
            found = iter(differentiable(work, twice, *given))
        else:
            found = iter(work(*given))
        return None, None, None, *(next(found) if needed else None for needed in needs)


class _Again(torch.autograd.Function):
    """A call of a known kind; autograd keeps its tensors, as in eager.py."""

    @staticmethod
    def forward(ctx, kind: CachedCall, q, k, v, *given):
        kept = fast_path.keep(kind, q, k, v, *given)
        ctx.kind = kind
        ctx.save_for_backward(*given, q, k, v, *kept)
        return kept[0]

    @staticmethod
    def backward(ctx, dout):
        kind, needs, count = ctx.kind, ctx.needs_input_grad[1:4], len(ctx.kind.tables)
        saved = ctx.saved_tensors  # read once: a checkpoint computes them again each time
        given, tensors = saved[:count], (*saved[count:], dout)
        if torch.is_grad_enabled():
            q, k, v, dout, out, sums, *lost = _heads_first(kind, tensors)
            called = Twice(lambda _, held: (kind.problem(*held[:3], *given), kind.engine), NEEDS, 5, 0)
            found: Sequence = differentiable(
                lambda *_: _checked(kind, given, tensors),
                called,
                dout,
                None,
                out,
                sums,
                *(lost or [None]),
                q,
                k,
                v,
                None,
            )
        else:
            found = fast_path.pull_back(kind, given, *tensors) or _checked(kind, given, tensors)
        return None, *(part if needed else None for part, needed in zip(found, needs, strict=True)), *[None] * count


def _heads_first(kind: CachedCall, tensors: tuple) -> tuple:
    """(q, k, v, dout, out, sums, lost if there is) of (q, k, v, *kept, dout), in the shapes of a call."""
    q, k, v, out, sums, *lost, dout = tensors
    out, dout = kind.swapped((out, dout))
    return q, k, v, dout, out, sums, *lost


def _checked(kind: CachedCall, given: tuple, tensors: tuple) -> list[torch.Tensor]:
    """The gradients of q, k and v; the next call with such tensors need not be checked."""
    problem = kind.problem(*tensors[:3], *given)
    q, k, v, dout, out, sums, *lost = _heads_first(kind, tensors)
    passed = dout, None, out, sums, *(lost or [dout])
    found = gradients(problem, kind.engine, NEEDS, passed, (q, k, v, None))
    fast_path.learn(kind, problem, given, *tensors)
    return found


# Function.apply also binds default arguments. `forward` has none, and binding takes longer than the rest of `apply`.
again = super(torch.autograd.Function, _Again).apply
