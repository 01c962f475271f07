"""Engine "sdpa": PyTorch's scaled_dot_product_attention on the CPU, for comparison. Mask and score are dense matrices.

SDPA supports a mask and an additive bias, and NaN passes through its mask; `why_not` lists what it does not support. A
fully masked row gives 0, as in every engine. SDPA does not return lse, so lse is computed separately.
"""

from __future__ import annotations

import numpy as np
import torch

from ..common.arrays import as_tensor, read_array
from ..language.analysis import evaluate
from ..language.expr import Expr, Op, score, walk
from ..language.problem import Problem


def why_not(problem: Problem) -> list[str]:
    """Every reason why SDPA cannot solve the problem; empty if it can."""
    reasons = []
    if problem.score is not None and not _is_added(problem.score):
        reasons.append(f"SDPA supports only an additive bias, and the score is `{problem.score!r}`")
    if problem.sinks is not None:
        reasons.append("SDPA does not support sinks")
    if problem.dropout is not None:
        reasons.append("SDPA draws dropout from its own generator and does not support a seed")
    ruled = problem.mask is not None or problem.score is not None
    if ruled and not (np.isfinite(problem.k).all() and np.isfinite(problem.v).all()):
        reasons.append("k or v contains NaN or infinity, which pass through the mask of SDPA")
    return reasons


def forward(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """softmax(scale · q kᵀ + bias where mask) v by torch -> out (B, H, Q, E), lse (B, H, Q), in the problem's dtype."""
    B, H, G, Q, K, E = (problem.dims[name] for name in "BHGQKE")
    if 0 in (B, H, Q, K):
        return np.zeros((B, H, Q, E), problem.dtype), np.full((B, H, Q), -np.inf, problem.real)
    q, k, v = (_tensor(array) for array in (problem.q, problem.k, problem.v))
    allowed, added = _dense(problem)
    given = allowed if added is None else added if allowed is None else added.masked_fill(~allowed, -torch.inf)
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=given, scale=problem.scale, enable_gqa=H != G
    )
    real = as_tensor(np.zeros(0, problem.real)).dtype
    logits = problem.scale * q.to(real) @ k.repeat_interleave(H // G, dim=1).mT.to(real)
    if added is not None:
        logits = logits + added
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    lse = logits.logsumexp(-1).masked_fill((logits == torch.inf).any(-1), torch.nan)  # as in the output
    return read_array(out.masked_fill(lse[..., None] == -torch.inf, 0), "out"), lse.numpy()


def _dense(problem: Problem) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """(allowed, added), each (B, H, Q, K) or None."""
    B, H, Q, K = (problem.dims[name] for name in "BHQK")
    at = {
        "batch": np.arange(B)[:, None, None, None],
        "head": np.arange(H)[None, :, None, None],
        "query": (problem.query_start[:, None] + np.arange(Q))[:, None, :, None],
        "key": np.arange(K)[None, None, None, :],
        "score": np.zeros(()),
    }

    def laid(rule: Expr | None, dtype, real=np.float64) -> torch.Tensor | None:
        if rule is None:
            return None
        return as_tensor(np.broadcast_to(evaluate(rule, at, real), (B, H, Q, K)).astype(dtype))

    # A bias in 16 bits would be rounded, and infinite from 65,504 on in float16.
    return laid(problem.mask, np.bool_), laid(problem.score, problem.real, problem.real)


def _is_added(rule: Expr) -> bool:
    """Whether the rule is score + something that does not depend on the score."""
    if rule is score:
        return True
    if not isinstance(rule, Op) or rule.name not in ("add", "sub"):
        return False
    left, right = rule.args
    if rule.name == "add" and not _mentions_score(left):
        left, right = right, left
    return not _mentions_score(right) and _is_added(left)


def _mentions_score(rule: Expr) -> bool:
    return any(node is score for node in walk(rule))


def _tensor(array: np.ndarray) -> torch.Tensor:
    """The array as a tensor; it is copied where torch does not support its strides (negative ones)."""
    return as_tensor(array if min(array.strides, default=0) >= 0 and array.flags.writeable else array.copy())
