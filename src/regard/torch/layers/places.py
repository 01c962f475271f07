"""Where the rows of a layer stand, and what its positions make of the score."""

from __future__ import annotations

import torch

from ...expr import Expr
from ...expr import score as the_score
from ..positions import Position
from .checks import Checks

__all__ = ["check_rows", "places_of", "score_of"]


def places_of(x: torch.Tensor, cache, positions: torch.Tensor | None) -> torch.Tensor:
    """The positions of the rows x (B, n, d_model): those given, or counted from 0, or on from what the cache holds."""
    if positions is not None:
        return positions
    places = torch.arange(x.shape[1], device=x.device)
    return places if cache is None else torch.as_tensor(cache.lengths, device=x.device)[:, None] + places


def score_of(kind: Position | None, score: Expr | None) -> Expr | None:
    """The rule for the scores, once the positions have had their say; None where it changes nothing."""
    if kind is None:
        return score
    rule = kind.score(the_score if score is None else score)
    return None if rule is the_score else rule


def check_rows(check: Checks, x: torch.Tensor, d_model: int, dropping: bool, kind: Position | None, cache, positions) -> None:
    """Rows that fit the layer, and no argument that would have no meaning."""
    check.need(x.ndim == 3 and x.shape[-1] == d_model, "x does not fit the layer", f"{tuple(x.shape)}", f"(B, n, {d_model})",
               "the layout is (batch, rows, d_model)")  # fmt: skip
    check.need(positions is None or kind is not None, "the layer has no use for positions",
               "positions of rows, and a layer without a kind of position", "positions=None",
               "make the layer with positions=Rotary(…), or another kind")  # fmt: skip
    check.need(cache is None or not dropping, "dropout over a cache", "a layer in training, with dropout",
               "a layer that writes, not one that trains", "call layer.eval()")  # fmt: skip
