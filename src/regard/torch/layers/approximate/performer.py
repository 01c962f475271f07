"""Performer: random features whose expected products are the unnormalized weights of softmax attention."""

from __future__ import annotations

import math

import torch

from ....common.text.keywords import known_arguments
from .linear import LinearAttention


def orthogonal_directions(count: int, depth: int, generator: torch.Generator | None = None) -> torch.Tensor:
    """Random ω (count, depth), each distributed as N(0, I), mutually orthogonal within blocks of `depth` rows.

    The norms are drawn separately from the directions, as norms of Gaussian vectors.

    >>> w = orthogonal_directions(3, 4)
    >>> bool((w @ w.T).fill_diagonal_(0).abs().max() < 1e-4)
    True
    """
    blocks = -(-count // depth)
    gaussian = torch.randn(blocks, depth, depth, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    # QR alone is biased towards some directions; the signs of R's diagonal make all equally likely.
    directions = (q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)).flatten(0, 1)[:count]
    lengths = torch.randn(count, depth, generator=generator, dtype=torch.float64).norm(dim=-1, keepdim=True)
    return (directions * lengths).float()


@known_arguments
class Performer(LinearAttention):
    """Softmax attention approximated by random features (FAVOR+), in time linear in the length.

    exp(q·k / √D) = E[φ(q)·φ(k)],  φ(x) = exp(ω·x′ − |x′|²/2) / √F,
    x′ = x / D^(1/4),  ω ~ N(0, I) orthogonal in blocks of D

    The error decreases as 1/√F and grows quickly with the norms of queries and keys. All heads share the features,
    which are a buffer in the state_dict, because a trained model depends on them. Training should call `redraw` from
    time to time. Masks and caches are those of `LinearAttention`.

    A key's features underflow to 0 in float32 if |k|² / (2·√D) exceeds about 100; such models need normalized keys.

    Args:
        d_model: the width of the input and output rows.
        heads: H, the number of query heads.
        kv_heads: G, the number of key/value heads, a divisor of H; None means H.
        features: F, the number of features; None means D·ln D, rounded up to a multiple of 8.
        head_dim: D, the depth of queries and keys; None means d_model / H.
        value_dim: E, the depth of values; None means D.
        memory_dim: the width of the memory; None means d_model.
        bias: whether the four projections have a bias.

    Raises:
        Refused: sizes that do not fit; the error lists every problem.

    Source:
        Choromanski et al. 2021.

    Examples:
        >>> import torch
        >>> from regard.torch import Performer
        >>> Performer(32, heads=4)(torch.zeros(2, 10, 32)).shape
        torch.Size([2, 10, 32])
    """

    directions: torch.Tensor

    def __init__(
        self,
        d_model: int,
        heads: int,
        kv_heads: int | None = None,
        *,
        features: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        memory_dim: int | None = None,
        bias: bool = False,
    ):
        super().__init__(
            d_model, heads, kv_heads, head_dim=head_dim, value_dim=value_dim, memory_dim=memory_dim, bias=bias
        )
        check = self.checks()
        usual = -(-math.ceil(self.head_dim * math.log(self.head_dim)) // 8) * 8 or 8
        count = usual if features is None else check.size("features", features)
        check.done()
        self.register_buffer("directions", torch.empty(count, self.head_dim))
        self.redraw()

    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draws new random features.

        Args:
            generator: a generator on the CPU; None means torch's default generator.
        """
        self.directions.copy_(orthogonal_directions(len(self.directions), self.head_dim, generator))

    def query_features(self, q: torch.Tensor) -> torch.Tensor:
        """Computes the random features of queries, scaled so that the largest of each row is 1.

        Args:
            q: (…, D) queries.

        Returns:
            (…, F) nonnegative features.
        """
        exponents = self._exponents(q)
        # A factor per query row cancels between numerator and denominator.
        return (exponents - exponents.amax(-1, keepdim=True).detach()).exp()

    def key_features(self, k: torch.Tensor) -> torch.Tensor:
        """Computes the random features of keys.

        Args:
            k: (…, D) keys.

        Returns:
            (…, F) nonnegative features.
        """
        # No maximum is subtracted: a common maximum would leak information from later keys to earlier rows.
        return self._exponents(k).exp()

    def _exponents(self, x: torch.Tensor) -> torch.Tensor:
        """ω·x′ − |x′|²/2 (…, F), in float32 or float64 also under autocast, because exp amplifies rounding errors."""
        exact = torch.promote_types(torch.float32, x.dtype)
        with torch.autocast(x.device.type, enabled=False):
            scaled = x.to(exact) / self.head_dim**0.25
            return scaled @ self.directions.to(exact).mT - scaled.square().sum(-1, keepdim=True) / 2

    def extra_repr(self) -> str:
        """The settings that repr(layer) shows besides the submodules."""
        return f"features={len(self.directions)}"
