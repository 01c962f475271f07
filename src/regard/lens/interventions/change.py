"""`Change`: what an intervention does to one attention call: to its rules, and to the tensors of its heads."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from ...api.attention import attention
from ...common.errors import refuse
from ...engines.gpu.device_call import tables_on
from ...engines.gpu.lowering import POSITIONS, lower
from ...language.analysis import substituted
from ...language.callables import as_mask, as_score
from ...language.checks.arguments import Arguments, is_bare
from ...language.expr import Expr, head, key, query
from ...language.expr import score as the_score
from ...language.functions import where
from ...language.masks import dense
from ...language.scores import bias
from ..recording.keeper import fits
from ..recording.one_entry import reads


class Computed(NamedTuple):
    """What a call is computed with: q, k and v (B, heads, rows, depth), and its rules."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    rules: Arguments


class Change(NamedTuple):
    """An intervention. layers: numbers or patterns, None is all · heads: None is all · mask, score: rules that are
    added to those of the call · sinks: a logit, or one per head · values: tensors, or functions of them, that take the
    place of q, k, v, weights or output of these heads.
    """

    layers: tuple[int | str, ...] | None = None
    heads: tuple[int, ...] | None = None
    mask: Expr | None = None
    score: Expr | None = None
    sinks: Any = None
    values: Mapping[str, Any] = MappingProxyType({})

    def selects(self, name: str, number: int | None) -> bool:
        """Whether this layer is changed."""
        return self.layers is None or any(fits(part, name, number) for part in self.layers)

    def numbers(self, count: int) -> list[int]:
        """The heads that are changed, of this many. Refused: one that the layer does not have."""
        heads = range(count) if self.heads is None else self.heads
        if outside := [number for number in heads if not -count <= number < count]:
            expected, fix = f"0 … {count - 1}", "count from 0, as the page does"
            raise refuse("what_if", "no such head", f"head={outside[0]}", expected, fix)
        return [number % count for number in heads]

    def tells_heads_apart(self) -> bool:
        """Whether what happens depends on the entry or the head, as functions of tensors may."""
        rules = any(reads(rule, name) for rule in (self.mask, self.score) for name in ("batch", "head"))
        return self.heads is not None or rules or any(map(callable, self.values.values()))

    # Rules ------------------------------------------------------------------------------------------------------------

    def rules(self, own: Arguments, sizes: tuple[int, int, int], first: int = 0) -> Arguments:
        """The rules of a call with these numbers of heads, rows and keys; first: the token of the first key."""
        H, Q, K = sizes
        start = K - Q if own.query_start is None else own.query_start
        chosen = (
            None
            if self.heads is None
            else functools.reduce(operator.or_, [head == number for number in self.numbers(H)])
        )
        mask, score, sinks = own.mask, own.score, own.sinks
        places: dict[Expr, Expr] = {query: query + first, key: key + first} if first else {}
        if self.mask is not None:
            before = dense(mask, start) if is_bare(mask) else as_mask(mask)
            new = substituted(self.mask, places)
            new = new if chosen is None else new | ~chosen
            mask = new if before is None else before & new
        if self.score is not None:
            logit = bias(score, the_score, start) if is_bare(score) else as_score(score)
            logit = the_score if logit is None else logit
            new = substituted(self.score, {the_score: logit, **places})
            score = new if chosen is None else where(chosen, new, logit)
        if self.sinks is not None:
            sinks = self._sinks(sinks, H)
        return own._replace(mask=mask, score=score, sinks=sinks)

    def _sinks(self, own: Any, count: int) -> torch.Tensor:
        """(H, n) sinks: that of the changed heads in the first column, and nothing beside it."""
        before = torch.full((count, 1), -torch.inf) if own is None else torch.as_tensor(own).detach().float()
        new, chosen = before.reshape(count, -1).clone(), self.numbers(count)
        new[chosen] = -torch.inf
        new[chosen, 0] = torch.as_tensor(self.sinks, dtype=torch.float32).expand(len(chosen))
        return new

    def weigh(self, scores: torch.Tensor, start: int) -> torch.Tensor:
        """The weights (B, H, Q, K) of scores before a softmax, with the rules; 0 in rows without a key."""
        sizes = enumerate(scores.shape)
        at = [torch.arange(size, device=scores.device).reshape(-1, *[1] * (3 - axis)) for axis, size in sizes]
        at[2] = at[2] + start
        rules = self.rules(Arguments(query_start=start), (*scores.shape[1:],))
        tables = tables_on(scores.device, rules.mask, rules.score)
        if rules.score is not None:
            names = ("score", *POSITIONS)
            scores = lower(rules.score, names, tables, scores.dtype, torch.int64, scores.dtype)(scores, *at)
        if rules.mask is not None:
            allowed = lower(rules.mask, POSITIONS, tables, torch.float64, torch.int64, torch.bool)(*at)
            scores = scores.masked_fill(~allowed, -torch.inf)
        return torch.softmax(scores, -1).masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0)

    # Tensors ----------------------------------------------------------------------------------------------------------

    def tensors(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """q, k and v of a call, (…, heads, rows, depth), with those of this intervention in the changed heads."""
        copies = q.shape[-3] // k.shape[-3]
        if copies > 1 and self.heads is not None and not self.values.keys().isdisjoint(("k", "v")):
            k, v = (each.repeat_interleave(copies, -3) for each in (k, v))
        return self.patch("q", q), self.patch("k", k), self.patch("v", v)

    def output(self, out: torch.Tensor, call: Computed | None) -> torch.Tensor:
        """The output (…, H, Q, E) of this call."""
        if "weights" in self.values and call is not None:
            H, K = out.shape[-3], call.v.shape[-2]
            weights = out.new_zeros(*out.shape[:-1], K)
            if callable(self.values["weights"]):  # the output for unit vectors as values, which has gradients
                units = torch.eye(K, dtype=out.dtype, device=out.device).expand(*call.k.shape[:-1], K)
                weights = attention(call.q, call.k, units, **call.rules._asdict())
            v, heads, out = call.v.repeat_interleave(H // call.v.shape[-3], -3), self.numbers(H), out.clone()
            out[..., heads, :, :] = self.patch("weights", weights)[..., heads, :, :] @ v[..., heads, :, :]
        return self.patch("output", out)

    def patch(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """(…, heads, rows, depth) with the values of this name in the changed heads. Refused: other sizes."""
        if name not in self.values:
            return tensor
        heads: Any = slice(None) if self.heads is None else self.numbers(tensor.shape[-3])
        part, value, out = tensor[..., heads, :, :], self.values[name], tensor.clone()
        new = torch.as_tensor(value(part) if callable(value) else value, dtype=tensor.dtype, device=tensor.device)
        try:
            out[..., heads, :, :] = new.expand_as(part)
        except RuntimeError as error:
            raise refuse(
                "what_if",
                f"{name} does not fit the layer",
                f"{name} of shape {list(new.shape)}",
                f"something that broadcasts to (batch, heads, rows, depth) = {list(part.shape)}",
                "record the other text with as many tokens, or pass a number",
            ) from error
        return out


def checked_heads(heads: Sequence[int] | int) -> tuple[int, ...]:
    """The numbers of heads as a tuple. Refused: anything else."""
    found = (heads,) if isinstance(heads, int) else tuple(heads)
    if not found or any(isinstance(number, bool) or not isinstance(number, int) for number in found):
        raise refuse("what_if", "head is not a number", f"head={heads!r}", "integers, counted from 0", "pass head=3")
    return found
