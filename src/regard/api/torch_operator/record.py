"""Calls that torch compiles, transforms or traces: they become one operator of its program."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...common.arrays import as_tensor, read_array
from ...common.call_hooks import compiling
from ...language.checks.arguments import Arguments
from ...language.expr import Expr, batch, head, key, query
from ...language.expr import score as the_score
from ...language.tree.syntax import Syntax
from ...language.tree.traced import Traced, spelled, trace_more_operators
from ...language.tree.traced import text as traced_text
from ...language.tree.writing import write
from .operator import Operands, run


def recorded(q, k, v, arguments: Arguments, engine: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of the operator."""
    k, v = (_tensor(each, name) for each, name in ((k, "k"), (v, "v")))
    tables: list[torch.Tensor] = []
    mask = _text(arguments.mask, (batch, head, query, key), tables)
    score = _text(arguments.score, (the_score, batch, head, query, key), tables)
    places = arguments.query_start, arguments.batch_start, arguments.head_start
    start, batch_start, head_start = (None if each is None else _number(each) for each in places)
    seed, sinks = arguments.seed, arguments.sinks
    sinks = None if sinks is None else torch.as_tensor(sinks)
    if seed is not None and not isinstance(seed, torch.Tensor):
        seed = _seed_tensor(seed)
    numbers = start, batch_start, head_start, seed
    call = Operands(q, k, v, sinks, tables, *numbers, mask, score, arguments.scale, arguments.dropout, engine)
    # Each transform of torch.func takes a Function as one step; functionalization and everything else see operators.
    stack = torch._C._functorch.peek_interpreter_stack() if torch._C._are_functorch_transforms_active() else None
    whole = stack is not None and stack.key() != torch._C._functorch.TransformType.Functionalize
    out, sums, _ = run(call) if whole else torch.ops.regard.attention(*call)
    return out, sums[0]


def _tensor(value, name: str) -> torch.Tensor:
    """Keys or values: an operator takes tensors only, but they may be arrays beside queries in a tensor."""
    if isinstance(value, torch.Tensor):
        return value
    return torch.as_tensor(value) if compiling() else as_tensor(read_array(value, name))


def _number(value) -> torch.Tensor:
    """An integer, or several, as a tensor. torch.as_tensor of an int would compile a program for each value."""
    return torch.tensor(value) if isinstance(value, int) else torch.as_tensor(value)


def _seed_tensor(seed: int) -> torch.Tensor:
    """A seed of 64 bits as a tensor, so that a different seed does not recompile the program."""
    return torch.tensor(seed - 2**64 if seed >= 2**63 else seed)


def _text(rule: Any, symbols: tuple[Expr, ...], tables: list[torch.Tensor]) -> str:
    """The text of a rule; the tensors that it reads are appended to the tables."""
    if rule is None:
        return ""
    rule = build(rule, symbols)
    if compiling() or isinstance(rule, Traced):
        return name_tensors(rule, tables)
    if not isinstance(rule, Expr):
        tables.append(torch.as_tensor(rule))
        return f"x{len(tables) - 1}"
    return write(rule, tables)


def build(rule: Any, symbols: tuple[Expr, ...]) -> Any:
    """What a callable builds of the symbols, as text; any other rule is unchanged."""
    if not callable(rule) or isinstance(rule, Syntax | torch.Tensor):
        return rule
    if compiling():
        trace_more_operators()
    with Reading():
        found = rule(*[symbol_of(symbol.name) for symbol in symbols])
    # A number that a callable returns is the score, whereas score=0.5 is added to it.
    return found if isinstance(found, Syntax) else Traced("lift(", *traced_text(found), ")")


def symbol_of(name: str) -> Traced:
    """A variable in a recorded program."""
    return Traced(name, of=torch.float32 if name == "score" else torch.int64)


def name_tensors(rule: Any, tables: list[torch.Tensor]) -> str:
    """The text of a rule with the names of its tensors, which are appended to the tables."""
    found = ""
    for part in traced_text(rule):
        if isinstance(part, str):
            found = found + part
        else:
            place = len(tables)
            for number in range(len(tables)):
                if tables[number] is part:
                    place = number
            if place == len(tables):
                tables.append(part)
            found = found + f"x{place}"
    return found


class Reading(TorchFunctionMode):
    """Functions of torch on rules, while a callable is traced: `bias[h, q, kv]`, `torch.where(q < kv, …)`."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _on_rules(args) or _on_rules(kwargs.values()):
            return spelled(function, args, kwargs)
        return function(*args, **kwargs)


def _on_rules(values) -> bool:
    found = [isinstance(each, Syntax) or (isinstance(each, tuple | list) and _on_rules(each)) for each in values]
    return any(found)  # of a list, because torch.compile traces this
