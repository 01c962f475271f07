"""Calls inside torch.onnx.export: the standard operator Attention of ONNX, and operations that compute its mask.

The operator computes softmax(softcap(scale · q kᵀ) + attn_mask) v. A score a · score + b, or a · tanh(c · score) + b,
has that form where a and c are numbers and b depends on positions only; the error names any other score.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...common.dtypes import torch_real
from ...common.errors import Reason, Refused, refuse
from ...engines.gpu.lowering import POSITIONS, lower
from ...language.callables import as_mask, as_score
from ...language.checks.arguments import Arguments
from ...language.expr import Const, Expr, Op, batch, head, key, lift, query, tables_of
from ...language.expr import score as the_score
from ...language.functions import where
from ...language.masks import causal
from ...language.rule_text import without_numbers
from ...language.tree.traced import Traced
from .record import build, name_tensors

WHERE = "attention in ONNX"
INFINITY = float("inf")
NOTHING = lift(0.0)


class Form(NamedTuple):
    """factor · score + added, or factor · tanh(inside · score) + added."""

    factor: float
    inside: float | None
    added: Expr

    def times(self, number: float) -> Form:
        return Form(self.factor * number, self.inside, NOTHING if self.added is NOTHING else self.added * number)

    def plus(self, other: Expr) -> Form:
        return self._replace(added=lift(other) if self.added is NOTHING else self.added + other)

    def alike(self, other: Form) -> bool:
        return self[:2] == other[:2]


def export(q, k, v, arguments: Arguments, engine: str, lse: bool) -> torch.Tensor:
    """(…, H, Q, E) by the operator Attention."""
    _check(arguments, engine, lse)
    leading = q.shape[:-3]
    q, k, v = (each.expand(*leading, *each.shape[-3:]).reshape(-1, *each.shape[-3:]) for each in (q, k, v))
    mask = _rule(arguments.mask, (batch, head, query, key), as_mask)
    score = _rule(arguments.score, (the_score, batch, head, query, key), as_score)
    form = form_of(score) if isinstance(score, Expr) else Form(1.0, None, NOTHING)
    added = form.added if isinstance(score, Expr) else score
    scale = 1 / math.sqrt(q.shape[-1]) if arguments.scale is None else float(arguments.scale)
    cap = 0.0 if form.inside is None else abs(form.factor)
    scale *= form.factor if form.inside is None else form.factor * form.inside
    if scale <= 0:  # the operator takes the root of a scale, and runtimes read 0 as the default
        q, scale = q * scale, 1.0
    attributes: dict[str, Any] = {"scale": scale, "softcap": cap}
    attn_mask = None
    square = arguments.query_start is None and statically_known_true(q.shape[2] == k.shape[2])
    if mask is causal() and square and added is NOTHING and arguments.sinks is None:
        attributes["is_causal"] = 1
    else:
        attn_mask = _Positions(q, k, arguments).added(mask, added)
    if arguments.sinks is not None:
        k, v, attn_mask = _with_sinks(q, k, v, arguments.sinks, attn_mask)
    inputs = [q, k, v] if attn_mask is None else [q, k, v, attn_mask]
    shape = [*q.shape[:3], v.shape[3]]
    out = torch.onnx.ops.symbolic("Attention", inputs, attributes, dtype=q.dtype, shape=shape, version=23)
    return out.reshape(*leading, *shape[1:])


def _check(arguments: Arguments, engine: str, lse: bool) -> None:
    """Refuses what the operator has no argument for, all of it at once."""
    reasons = []
    if lse:
        reasons.append(Reason("the operator has no lse", "attention_with_lse", "attention", "export attention alone"))
    if arguments.dropout:
        given = f"dropout={arguments.dropout}"
        reasons.append(Reason("the operator has no dropout", given, "dropout=0", "call model.eval() before the export"))
    if engine != "auto":
        fix = "omit engine= in the exported program: the runtime chooses its own"
        reasons.append(Reason("no engine of regard runs the operator", f"engine={engine!r}", 'engine="auto"', fix))
    if reasons:
        raise Refused(WHERE, reasons)


def _rule(rule: Any, symbols: tuple[Expr, ...], as_rule) -> Expr | torch.Tensor | None:
    """The rule as an expression, or the array that it is."""
    rule = build(rule, symbols)
    if isinstance(rule, Traced):
        tensors: list[torch.Tensor] = []
        rule = without_numbers(name_tensors(rule, tensors), tensors)
    if rule is None or isinstance(rule, Expr | bool | int | float | str):
        return as_rule(rule)
    array = torch.as_tensor(rule)
    if (array.dtype == torch.bool) != (as_rule is as_mask):
        wanted, other = ("mask", "score") if as_rule is as_mask else ("score", "mask")
        raise refuse(
            WHERE,
            f"this array is not a {wanted}",
            f"a tensor of {array.dtype}",
            "mask=… of booleans, score=… of numbers, which are added",
            f"pass it as {other}=…, or convert it",
        )
    return array


def form_of(score: Expr) -> Form:
    """The score as the operator computes it.

    >>> form_of(3.0 * the_score - abs(query - key))
    Form(factor=3.0, inside=None, added=-abs(query - key))
    """
    form = _form(score)
    if form is None:
        raise refuse(
            WHERE,
            "the operator cannot compute this score",
            f"`{score}`",
            "a · score + b or a · tanh(c · score) + b, where a and c are numbers and b depends on positions",
            "write the score in that form, or compute this layer with operations of torch in the exported model",
        )
    return form


def _form(node: Expr) -> Form | None:
    if node is the_score:
        return Form(1.0, None, NOTHING)
    if not isinstance(node, Op):
        return None
    forms = [_form(part) if part.scored else None for part in node.args]
    if any(form is None and part.scored for form, part in zip(forms, node.args, strict=True)):
        return None
    match node.name, forms, node.args:
        case "neg", [Form() as form], _:
            return form.times(-1)
        case "to_float", [form], _:
            return form
        case "tanh", [Form(factor, None, added)], _ if added is NOTHING:
            return Form(1.0, factor, NOTHING)
        case "mul", [Form() as form, None], (_, Const(value=number)):
            return form.times(number)
        case "mul", [None, Form() as form], (Const(value=number), _):
            return form.times(number)
        case "div", [Form() as form, None], (_, Const(value=number)) if number:
            return form.times(1 / number)
        case "add", [Form() as form, None], (_, other):
            return form.plus(other)
        case "add", [None, Form() as form], (other, _):
            return form.plus(other)
        case "sub", [Form() as form, None], (_, other):
            return form.plus(-other)
        case "sub", [None, Form() as form], (other, _):
            return form.times(-1).plus(other)
        case "where", [None, Form() as form, None], (condition, _, Const(value=number)) if number == -INFINITY:
            return form._replace(added=where(condition, form.added, -INFINITY))
        case "where", [None, None, Form() as form], (condition, Const(value=number), _) if number == -INFINITY:
            return form._replace(added=where(condition, -INFINITY, form.added))
        case "where", [None, Form() as one, Form() as other], (condition, _, _) if one.alike(other):
            return one._replace(added=where(condition, one.added, other.added))
    return None


class _Positions:
    """The variables of the rules as tensors of integers, which broadcast to (B, H, Q, K)."""

    def __init__(self, q: torch.Tensor, k: torch.Tensor, arguments: Arguments):
        self.q, self.sizes = q, (*q.shape[:3], k.shape[2])
        B, H, Q, K = (torch.arange(size, device=q.device) for size in self.sizes)
        start = arguments.query_start
        start = k.shape[2] - q.shape[2] if start is None else torch.as_tensor(start).reshape(-1, 1, 1, 1)
        entry, first = arguments.batch_start or 0, arguments.head_start or 0
        self.values = B[:, None, None, None] + entry, H[:, None, None] + first, Q[:, None] + start, K

    def added(self, mask: Expr | torch.Tensor | None, added: Expr | torch.Tensor | None) -> torch.Tensor | None:
        """What the operator adds to scores: booleans, or numbers that are −∞ where masked."""
        allowed = self._of(mask, torch.float64, torch.bool)
        real = torch_real(self.q.dtype)
        numbers = None if added is NOTHING else self._of(added, real, real)
        if numbers is None:
            return allowed
        found = numbers if allowed is None else torch.where(allowed, numbers, -INFINITY)
        return found.to(self.q.dtype)

    def _of(self, rule: Expr | torch.Tensor | None, real: torch.dtype, gives: torch.dtype) -> torch.Tensor | None:
        if rule is None:
            return None
        if isinstance(rule, Expr):
            tables = {table: torch.as_tensor(table.source) for table in tables_of(rule).values()}
            rule = lower(rule, POSITIONS, tables, real, torch.int64, gives)(*self.values)
        shape = (*[1] * (4 - rule.ndim), *rule.shape)
        return rule.reshape(shape).expand(*shape[:2], *self.sizes[2:])


def _with_sinks(q, k, v, sinks, added):
    """k, v and what is added, with one more key for each sink: its score is 0 plus the sink, and its value is 0."""
    sinks = torch.as_tensor(sinks).to(q.dtype)
    sinks = sinks[None, :, None, None] if sinks.ndim == 1 else sinks[None, :, None, :]
    if added is None:
        added = q.new_zeros(1, 1, q.shape[2], k.shape[2])
    elif added.dtype == torch.bool:
        added = torch.where(added, 0.0, -INFINITY).to(q.dtype)
    added = added.expand(added.shape[0], q.shape[1], *added.shape[2:])
    more = sinks.expand(*added.shape[:3], sinks.shape[-1])
    k, v = (torch.cat([each, each.new_zeros(*each.shape[:2], sinks.shape[-1], each.shape[3])], 2) for each in (k, v))
    return k, v, torch.cat([added, more], 3)
