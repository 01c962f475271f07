"""Masks as torch.nn.MultiheadAttention takes them: true means "may not attend", floats are added. Here they become rules."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad

from ...expr import Expr, key
from ...masks import dense
from ...scores import bias
from .weights import allowed_pairs

__all__ = ["TorchMasks"]


class TorchMasks(NamedTuple):
    """The masks of a call.

    rule: who may attend whom, as an expression; row i stands at position i. given: tensors that broadcast to (N, H, L, S),
    booleans (true means "may not attend") or floats (added to the logits). keys (S), extra: how many keys follow, of which no
    mask speaks, and which every row may attend.
    """

    rule: Expr | None
    given: list[torch.Tensor]
    keys: int
    extra: int

    def rules(self) -> dict[str, Any]:
        """The arguments mask and score of attention. A float of −inf also goes to the mask, so that the plan leaves it out."""
        mask, logit = self._whole(), None
        for part in self._padded():
            allowed: Expr = dense(~part if part.dtype == torch.bool else part.detach() != -math.inf, query_start=0)
            mask = allowed if mask is None else mask & allowed
            if part.dtype != torch.bool:
                logit = bias(part, query_start=0) if logit is None else bias(part, logit, query_start=0)
        return {"mask": mask, "score": logit, "query_start": 0}

    def tensors(self, shape: tuple[int, int, int, int], device) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """The same for shape (N, H, L, S + extra): which pairs are allowed, and what is added to their logits."""
        mask, parts = self._whole(), self._padded()
        allowed = [] if mask is None else [allowed_pairs(mask, shape, 0, device)]
        allowed += [~part for part in parts if part.dtype == torch.bool]
        added = [part for part in parts if part.dtype != torch.bool]
        both = allowed[0] if allowed else None
        for part in allowed[1:]:
            both = both & part
        return both, sum(added[1:], added[0]) if added else None

    def _whole(self) -> Expr | None:
        return self.rule | (key >= self.keys) if self.rule is not None and self.extra else self.rule

    def _padded(self) -> list[torch.Tensor]:
        return [pad(part, (0, self.extra)) for part in self.given] if self.extra else self.given
