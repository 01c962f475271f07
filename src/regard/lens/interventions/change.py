"""`Change`: what an intervention does to an attention call: to its rules, its tensors, and its output."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ...common.errors import refuse
from ...engines.gpu.device_call import tables_on
from ...engines.gpu.lowering import POSITIONS, lower
from ...language.analysis import substituted
from ...language.callables import as_mask, as_score
from ...language.checks.arguments import Arguments, is_bare
from ...language.expr import Expr, head
from ...language.expr import score as the_score
from ...language.functions import where
from ...language.masks import dense
from ...language.scores import bias
from ..recording.keeper import fits
from ..recording.one_entry import reads


class Change(NamedTuple):
    """An intervention. layers: numbers or patterns, None is all · heads: None is all · mask, score: rules that are
    added to those of the call · sinks: a logit, or one per head · values: tensors that take the place of q, k, v,
    weights or output of these heads.
    """

    layers: tuple[int | str, ...] | None
    heads: tuple[int, ...] | None
    mask: Expr | None
    score: Expr | None
    sinks: Any
    values: dict[str, Any]

    def selects(self, name: str, number: int | None) -> bool:
        """Whether this layer is changed."""
        return self.layers is None or any(fits(part, name, number) for part in self.layers)

    def checked_heads(self, count: int) -> list[int]:
        """The heads that are changed. Refused: one that the layer does not have."""
        if self.heads is None:
            return list(range(count))
        if outside := [number for number in self.heads if not -count <= number < count]:
            raise refuse(
                "what_if", "no such head", f"head={outside[0]}", f"0 … {count - 1}", "count from 0, as the page does"
            )
        return [number % count for number in self.heads]

    def reads(self, name: str) -> bool:
        """Whether what happens depends on the position of this name: batch or head."""
        return reads(self.mask, name) or reads(self.score, name)

    # Rules ------------------------------------------------------------------------------------------------------------

    def rules(self, given: Arguments, sizes: tuple[int, int, int]) -> Arguments:
        """The rules of a call with these numbers of heads, rows and keys."""
        H, Q, K = sizes
        start = K - Q if given.query_start is None else given.query_start
        chosen = self._chosen(H)
        mask, score, sinks = given.mask, given.score, given.sinks
        if self.mask is not None:
            own = dense(mask, start) if is_bare(mask) else as_mask(mask)
            new = self.mask if chosen is None else self.mask | ~chosen
            mask = new if own is None else own & new
        if self.score is not None:
            own = bias(score, the_score, start) if is_bare(score) else as_score(score)
            score = self._score(the_score if own is None else own, chosen)
        if self.sinks is not None:
            sinks = self._sinks(sinks, H)
        return given._replace(mask=mask, score=score, sinks=sinks)

    def _chosen(self, count: int) -> Expr | None:
        """Whether a head is changed; None of all heads."""
        if self.heads is None:
            return None
        first, *others = [head == number for number in self.checked_heads(count)]
        for other in others:
            first = first | other
        return first

    def _score(self, own: Expr, chosen: Expr | None) -> Expr:
        """The score with that of the call, `own`, in the place of `score`."""
        assert self.score is not None
        new = substituted(self.score, {the_score: own})
        return new if chosen is None else where(chosen, new, own)

    def _sinks(self, given: Any, count: int) -> torch.Tensor:
        """(H, n) sinks: that of the changed heads in the first column, and nothing beside it."""
        before = torch.full((count, 1), -torch.inf) if given is None else torch.as_tensor(given).detach().float()
        new = before.reshape(count, -1).clone()
        chosen = self.checked_heads(count)
        new[chosen] = -torch.inf
        new[chosen, 0] = torch.as_tensor(self.sinks, dtype=torch.float32).expand(len(chosen))
        return new

    def weigh(self, scores: torch.Tensor, start: int) -> torch.Tensor:
        """The weights (B, H, Q, K) of scores before a softmax, with the rules; 0 in rows without a key."""
        _, H, Q, K = scores.shape
        places = [torch.arange(size, device=scores.device) for size in scores.shape]
        places[2] = places[2] + start
        at = [place.reshape([-1 if axis == own else 1 for axis in range(4)]) for own, place in enumerate(places)]
        rules = self.rules(Arguments(query_start=start), (H, Q, K))
        tables = tables_on(scores.device, rules.mask, rules.score)
        if rules.score is not None:
            rule = lower(rules.score, ("score", *POSITIONS), tables, scores.dtype, torch.int64, scores.dtype)
            scores = rule(scores, *at)
        if rules.mask is not None:
            allowed = lower(rules.mask, POSITIONS, tables, torch.float64, torch.int64, torch.bool)(*at)
            scores = scores.masked_fill(~allowed, -torch.inf)
        weights = torch.softmax(scores, -1)
        return weights.masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0)

    # Tensors ----------------------------------------------------------------------------------------------------------

    def tensors(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """q, k and v of a call, (…, heads, rows, depth), with those of this intervention in the changed heads."""
        copies = q.shape[-3] // k.shape[-3]
        if copies > 1 and self.heads is not None and not self.values.keys().isdisjoint(("k", "v")):
            k, v = (each.repeat_interleave(copies, -3) for each in (k, v))
        return self.patch("q", q), self.patch("k", k), self.patch("v", v)

    def output(self, out: torch.Tensor, v: torch.Tensor | None) -> torch.Tensor:
        """The output (…, H, Q, E) of a call with these values."""
        if "weights" in self.values and v is not None:
            H = out.shape[-3]
            own = v.repeat_interleave(H // v.shape[-3], -3)
            weights = self.patch("weights", own.new_zeros(*out.shape[:-1], own.shape[-2]))
            heads = self.checked_heads(H)
            out = out.clone()
            out[..., heads, :, :] = weights[..., heads, :, :] @ own[..., heads, :, :]
        return self.patch("output", out)

    def patch(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """(…, heads, rows, depth) with the values of this name in the changed heads. Refused: other sizes."""
        if name not in self.values:
            return tensor
        heads = self.checked_heads(tensor.shape[-3])
        new = torch.as_tensor(self.values[name], dtype=tensor.dtype, device=tensor.device)
        part = tensor[..., heads, :, :]
        try:
            new = new.expand_as(part)
        except RuntimeError as error:
            raise refuse(
                "what_if",
                f"{name} does not fit the layer",
                f"{name} of shape {list(new.shape)}",
                f"something that broadcasts to (batch, heads, rows, depth) = {list(part.shape)}",
                "record the other text with as many tokens, or pass a number",
            ) from error
        out = tensor.clone()
        out[..., heads, :, :] = new
        return out
