"""Conversion of the masks of torch.nn.MultiheadAttention (true means "may not attend") into masks and scores."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import pad

from ...language.added_masks import hides
from ...language.expr import Expr, frozen_table, key
from ...language.masks import dense
from ...language.scores import bias
from .parts import allowed_pairs

ANY = math.inf  # as in torch, only −inf masks a key: finite values are added, however low
SMALL = 1 << 18  # masks with at most so many elements are compared by content


class TorchMasks(NamedTuple):
    """The masks of a call.

    rule: the mask as an expression; row i is at position i. given: tensors that broadcast to (N, H, L, S), booleans
    (true means "may not attend") or floats (added to the logits). keys: S. extra: the number of appended keys, which
    no mask covers and every row may attend to.
    """

    rule: Expr | None
    given: list[torch.Tensor]
    keys: int
    extra: int

    def rules(self) -> dict[str, Any]:
        """The arguments mask, score and query_start of attention."""
        transformed = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
        mask, score = self._tensors() if transformed else self._expressions()
        return {"mask": mask, "score": score, "query_start": 0}

    def _expressions(self) -> tuple[Expr | None, Expr | None]:
        """Mask and score as expressions; −inf also becomes part of the mask, so that the plan skips those pairs."""
        mask, score = self._whole(), None
        for part in self._padded():
            mask = _rule(mask, _allowed(part))
            if not _hides_only(part):
                score = bias(part, query_start=0) if score is None else bias(part, score, query_start=0)
        return mask, score

    def _tensors(self) -> tuple[Expr | torch.Tensor | None, torch.Tensor | None]:
        """One mask (expression or tensor) and one score tensor, for compiled and transformed calls."""
        whole, parts = self._whole(), self._padded()
        hidden = [part for part in parts if part.dtype == torch.bool]
        added = [part for part in parts if part.dtype != torch.bool]
        if whole is not None:
            added += [torch.zeros(part.shape, device=part.device).masked_fill(part, -math.inf) for part in hidden]
            hidden = []
        allowed = ~functools.reduce(torch.logical_or, hidden) if hidden else whole
        return allowed, functools.reduce(torch.add, added) if added else None

    def tensors(self, shape: tuple[int, int, int, int], device) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """The allowed pairs and the numbers added to the logits, for shape (N, H, L, S + extra)."""
        mask, parts = self._whole(), self._padded()
        allowed = [] if mask is None else [allowed_pairs(mask, shape, 0, device)]
        allowed += [_allowed(part) for part in parts]
        added = [part for part in parts if part.dtype != torch.bool]
        both = functools.reduce(torch.logical_and, allowed) if allowed else None
        return both, functools.reduce(torch.add, added) if added else None

    def _whole(self) -> Expr | None:
        return self.rule | (key >= self.keys) if self.rule is not None and self.extra else self.rule

    def _padded(self) -> list[torch.Tensor]:
        parts = [part for part in self.given if part.numel()]  # empty masks have no effect
        return [pad(part, (0, self.extra)) for part in parts] if self.extra else parts


def _allowed(part: torch.Tensor) -> torch.Tensor:
    return ~part if part.dtype == torch.bool else ~hides(part.detach(), ANY)


def _hides_only(part: torch.Tensor) -> bool:
    """Whether a mask only masks and adds nothing: torch's layers convert boolean masks to floats of 0 and −inf."""
    if part.dtype == torch.bool or part.requires_grad or part.device.type != "cpu":
        return part.dtype == torch.bool
    return bool(((part == 0) | hides(part, ANY)).all())


def _rule(mask: Expr | None, allowed: torch.Tensor) -> Expr:
    """The conjunction of a mask and allowed pairs; equal contents give the same expression, so layers share a plan."""
    if allowed.device.type == "cpu" and allowed.numel() <= SMALL:
        return _cached(mask, allowed.numpy().tobytes(), tuple(allowed.shape))
    other = dense(allowed, query_start=0)
    return other if mask is None else mask & other


@functools.lru_cache(32)
def _cached(mask: Expr | None, content: bytes, shape: tuple[int, ...]) -> Expr:
    other = dense(frozen_table(np.frombuffer(content, bool).reshape(shape), "mask"), query_start=0)
    return other if mask is None else mask & other
