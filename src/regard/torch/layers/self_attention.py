"""Self-attention with a single head, as in textbooks."""

from __future__ import annotations

import torch

from ...common.text.keywords import known_arguments
from ...language.added_masks import how_to_pass
from ...language.expr import Expr
from ...language.tree.syntax import Syntax
from ..functional import attention
from .parts import Checks, allowed_pairs, dropped, weights


@known_arguments
class SelfAttention(torch.nn.Module):
    """Self-attention with one head: each row attends to the rows of its own sequence.

    out = W_o softmax(Q Kᵀ / √d_k where mask) V,  Q = W_q x, K = W_k x, V = W_v x

    Parameters: q (d_k, d_model), k (d_k, d_model), v (d_v, d_model), o (d_model, d_v).

    Args:
        d_model: the width of the input and output rows.
        d_k: the depth of queries and keys; None means d_model.
        d_v: the depth of values; None means d_k.
        bias: whether the four projections have a bias.
        dropout: the probability that a weight is dropped in training mode.

    Raises:
        Refused: invalid sizes or an invalid dropout rate; the error lists every problem.

    Source:
        Vaswani et al. 2017, section 3.2.1.

    Examples:
        >>> import torch
        >>> from regard.torch import SelfAttention
        >>> layer = SelfAttention(16, d_k=8)
        >>> padding = torch.ones(2, 1, 5, dtype=torch.bool)
        >>> out, weights = layer(torch.randn(2, 5, 16), mask=padding, return_weights=True)
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

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | Expr | None = None, return_weights: bool = False
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Computes the layer's output and, where requested, the attention weights.

        Args:
            x: (batch, n, d_model) input rows.
            mask: booleans that broadcast to (batch, n, n), such as (batch, 1, n) for padding, or an expression such as
                rg.causal(); true means "may attend". None lets every row attend to every key.
            return_weights: whether to return the weights too, which need memory that grows with n².

        Returns:
            out (batch, n, d_model); with `return_weights` the pair of out and weights (batch, n, n), which are those
            before dropout and are differentiable.

        Raises:
            Refused: rows or masks that do not fit; the error lists every problem.
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

    def _check(self, x: torch.Tensor, mask: torch.Tensor | Expr | None) -> None:
        check = Checks("SelfAttention")
        check.need(
            x.ndim == 3 and x.shape[-1] == self.d_model,
            "x does not fit the layer",
            f"{tuple(x.shape)}",
            f"(batch, n, {self.d_model})",
            "the layout is (batch, rows, d_model)",
        )
        check.done()
        batch, n, _ = x.shape
        if isinstance(mask, torch.Tensor):
            check.need(
                mask.dtype == torch.bool,
                "the mask has an unsupported dtype",
                f"{mask.dtype}",
                "booleans: true means may attend",
                "" if mask.dtype == torch.bool else _as_booleans(mask),
            )
            fits = 2 <= mask.ndim <= 3 and all(own in (1, size) for own, size in zip(mask.shape[::-1], (n, n, batch)))
            check.need(
                fits,
                "the mask does not fit",
                f"{tuple(mask.shape)}",
                f"(batch, 1, n) or (batch, n, n): {(batch, n, n)}",
                "pass padding[:, None] for padding (batch, n)",
            )
        else:
            check.need(
                mask is None or isinstance(mask, Syntax),
                "the mask has an unsupported type",
                f"{type(mask).__name__}",
                "a boolean tensor, or an expression such as rg.causal()",
                "pass torch.as_tensor(mask)",
            )
        check.done()

    def extra_repr(self) -> str:
        """The settings that repr(layer) shows besides the submodules."""
        return f"dropout={self.dropout}"


def _as_booleans(mask: torch.Tensor) -> str:
    """The fix for a mask of numbers; integers stay integers, because they mean something else than floats."""
    numbers = mask.detach().cpu()
    return how_to_pass(numbers.double() if numbers.is_floating_point() else numbers, "mask", condition="mask=")
