"""The weights as torch computes them, all of them at once: what a layer gives to those who ask for them, with
gradients.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from ...language.analysis import evaluate
from ...language.expr import Expr

__all__ = ["allowed_pairs", "weights"]


def weights(
    q: torch.Tensor, k: torch.Tensor, allowed: torch.Tensor | None, added: torch.Tensor | None = None
) -> torch.Tensor:
    """P = softmax over the allowed keys of q kᵀ / √D + added; 0 for a row that may attend nothing.

    q (…, Q, D) · k (…, K, D) · allowed, added: truth values and floats that broadcast to (…, Q, K), a key of −inf being
    one that is not allowed -> (…, Q, K). Memory grows with Q·K, which is why a layer computes its output elsewhere.

    >>> weights(torch.zeros(1, 2, 4), torch.zeros(1, 2, 4), torch.tensor([[True, False], [False, False]])).tolist()
    [[[1.0, 0.0], [0.0, 0.0]]]
    """
    logits = (q / math.sqrt(q.shape[-1])) @ k.mT
    logits = logits if added is None else logits + added
    if allowed is None:
        return logits.softmax(-1)
    # The softmax of an empty row is NaN; neither its weights nor its gradients get past the two fills.
    empty = ~allowed.any(-1, keepdim=True)
    return logits.masked_fill(~allowed, -math.inf).softmax(-1).masked_fill(empty, 0)


def allowed_pairs(mask: Expr, shape: tuple[int, int, int, int], query_start: int, device) -> torch.Tensor:
    """The truth of a mask, as booleans that broadcast to shape (B, H, Q, K)."""
    B, H, Q, K = (np.arange(size) for size in shape)
    places = {"batch": B[:, None, None, None], "head": H[:, None, None], "query": query_start + Q[:, None], "key": K}
    return torch.from_numpy(np.array(evaluate(mask, places), bool)).to(device)
