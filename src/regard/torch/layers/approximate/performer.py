"""Performer: random features whose products are, on average, exactly the weights of softmax attention."""

from __future__ import annotations

import math

import torch

from .linear import LinearAttention

__all__ = ["Performer", "orthogonal_directions"]


def orthogonal_directions(count: int, depth: int, generator: torch.Generator | None = None) -> torch.Tensor:
    """Random ω (count, depth), each distributed as N(0, I), in blocks of depth that are orthogonal to each other.

    The lengths are drawn apart from the directions, as those of Gaussian vectors.

    >>> w = orthogonal_directions(3, 4)
    >>> bool((w @ w.T).fill_diagonal_(0).abs().max() < 1e-4)
    True
    """
    blocks = -(-count // depth)
    gaussian = torch.randn(blocks, depth, depth, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    # QR alone prefers some directions; with the signs of R's diagonal all are equally likely.
    directions = (q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)).flatten(0, 1)[:count]
    lengths = torch.randn(count, depth, generator=generator, dtype=torch.float64).norm(dim=-1, keepdim=True)
    return (directions * lengths).float()


class Performer(LinearAttention):
    """Softmax attention approximated by random features (FAVOR+), in linear time; with more features the error falls.

    exp(q·k / √D) = E[φ(q)·φ(k)],  φ(x) = exp(ω·x′ − |x′|²/2) / √F,
    x′ = x / D^(1/4),  ω ~ N(0, I) orthogonal in blocks of D

    features (F): how many, by default D·ln D rounded up to a multiple of 8; the error falls as 1/√F, and grows quickly
    with the length of queries and keys. `redraw` draws them anew, which training does now and then so that nothing is
    learned about one draw; they are a buffer of the state_dict, because a trained model goes with its draw. All heads
    share them. All else as for `LinearAttention`, `LinearState` included.

    A key's features are 0 in float32 where |k|² / (2·√D) passes about 100: such a model needs normalised keys.

    Source: Choromanski et al. 2021.

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
        """Draw the random features anew, from torch's generator or the one given (a CPU one)."""
        self.directions.copy_(orthogonal_directions(len(self.directions), self.head_dim, generator))

    def query_features(self, q: torch.Tensor) -> torch.Tensor:
        exponents = self._exponents(q)
        # A factor of one row alone stands in numerator and denominator.
        return (exponents - exponents.amax(-1, keepdim=True).detach()).exp()

    def key_features(self, k: torch.Tensor) -> torch.Tensor:
        # Nothing is taken off here: what all keys would share, later keys would give away to earlier rows.
        return self._exponents(k).exp()

    def _exponents(self, x: torch.Tensor) -> torch.Tensor:
        """ω·x′ − |x′|²/2 (…, F), in float32 or better also for 16 bits and under autocast: exp would not forgive it."""
        exact = torch.promote_types(torch.float32, x.dtype)
        with torch.autocast(x.device.type, enabled=False):
            scaled = x.to(exact) / self.head_dim**0.25
            return scaled @ self.directions.to(exact).mT - scaled.square().sum(-1, keepdim=True) / 2

    def extra_repr(self) -> str:
        return f"features={len(self.directions)}"
