"""Self-attention with a single head: the layer of the textbooks."""

from __future__ import annotations

import torch

from ...language.expr import Expr
from ..functional import attention
from .parts import Checks, allowed_pairs, dropped, weights

__all__ = ["SelfAttention"]


class SelfAttention(torch.nn.Module):
    """Every row attends the rows of its own sequence, with one head.

    out = W_o softmax(Q Kᵀ / √d_k where mask) V,  Q = W_q x, K = W_k x, V = W_v x

    d_model: width of the rows. d_k (by default d_model): of queries and keys. d_v (by default d_k): of values. bias: of
    all four
    projections. dropout: of the weights, in training.

    Parameters: q (d_k, d_model), k (d_k, d_model), v (d_v, d_model), o (d_model, d_v).

    Refused, with all reasons at once: sizes that are none; with the call, rows and masks that do not fit.

    Source: Vaswani et al. 2017, section 3.2.1.

    >>> layer = SelfAttention(16, d_k=8)
    >>> out, weights = layer(torch.randn(2, 5, 16), mask=torch.ones(2, 1, 5, dtype=torch.bool), return_weights=True)
    >>> out.shape, weights.shape
    (torch.Size([2, 5, 16]), torch.Size([2, 5, 5]))
    """

    def __init__(
        self, d_model: int, d_k: int | None = None, d_v: int | None = None, *, bias: bool = False, dropout: float = 0.0
    ):
        super().__init__()
        check = Checks("SelfAttention")
        self.d_model = check.size("d_model", d_model)
        self.d_k = self.d_model if d_k is None else check.size("d_k", d_k)
        self.d_v = self.d_k if d_v is None else check.size("d_v", d_v)
        self.dropout = check.rate("dropout", dropout)
        check.done()
        self.q = torch.nn.Linear(self.d_model, self.d_k, bias)
        self.k = torch.nn.Linear(self.d_model, self.d_k, bias)
        self.v = torch.nn.Linear(self.d_model, self.d_v, bias)
        self.o = torch.nn.Linear(self.d_v, self.d_model, bias)
        self.attend = attention

    def forward(self, x: torch.Tensor, mask=None, return_weights: bool = False):
        """x (batch, n, d_model) -> out (batch, n, d_model), or (out, weights (batch, n, n)).

        mask: booleans that broadcast to (batch, n, n), such as (batch, 1, n) for padding, or a rule such as
        rg.causal(); true means "may attend". The weights are those before dropout, and have gradients; they cost memory
        that grows with n².
        """
        self._check(x, mask)
        q, k, v = (part(x)[:, None] for part in (self.q, self.k, self.v))
        given = mask[..., None, :, :] if isinstance(mask, torch.Tensor) else mask
        out = self.o(self.attend(q, k, v, mask=given, **dropped(self.dropout, self.training))[:, 0])
        if not return_weights:
            return out
        batch, n, _ = x.shape
        allowed = allowed_pairs(given, (batch, 1, n, n), 0, x.device) if isinstance(given, Expr) else given
        return out, weights(q, k, allowed)[:, 0]

    def _check(self, x: torch.Tensor, mask) -> None:
        check = Checks("SelfAttention")
        check.need(
            x.ndim == 3 and x.shape[-1] == self.d_model,
            "x does not fit the layer",
            given=f"{tuple(x.shape)}",
            expected=f"(batch, n, {self.d_model})",
            fix="the layout is (batch, rows, d_model)",
        )
        check.done()
        batch, n, _ = x.shape
        if isinstance(mask, torch.Tensor):
            check.need(
                mask.dtype == torch.bool,
                "the mask is of no known kind",
                given=f"{mask.dtype}",
                expected="booleans: true means may attend",
                fix="mask.bool(), or mask == 0 where true hides",
            )
            fits = 2 <= mask.ndim <= 3 and all(own in (1, size) for own, size in zip(mask.shape[::-1], (n, n, batch)))
            check.need(
                fits,
                "the mask does not fit",
                given=f"{tuple(mask.shape)}",
                expected=f"(batch, 1, n) or (batch, n, n): {(batch, n, n)}",
                fix="padding (batch, n) becomes padding[:, None]",
            )
        else:
            check.need(
                mask is None or isinstance(mask, Expr),
                "the mask is of no known kind",
                given=f"{type(mask).__name__}",
                expected="a tensor of booleans, or a rule such as rg.causal()",
                fix="torch.as_tensor(mask)",
            )
        check.done()

    def extra_repr(self) -> str:
        """What the projections do not tell."""
        return f"dropout={self.dropout}"
