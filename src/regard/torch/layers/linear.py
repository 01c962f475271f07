"""Linear attention and the Performer: products of features instead of exp(q·k), summed over the keys."""

from __future__ import annotations

import math
from typing import Any

import torch

from ...common.text.keywords import known_arguments
from .approximate import ApproximateAttention
from .mask_parts import MaskParts

CHUNK = 128  # rows per chunk: pairs within a chunk are computed directly, sums connect the chunks


def linear_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, sums: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention whose weights are products of nonnegative features.

    out_i = φ(q_i)·S / φ(q_i)·z,  S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j),
    over all keys or, if causal, over the keys up to row i.

    q (…, H, Q, F) and k (…, G, K, F): the features φ, H a multiple of G; v (…, G, K, E) -> out (…, H, Q, E) in v's
    dtype, and S and z concatenated, (…, G, F, E + 1). sums: those of all previous keys. If causal, Q = K.

    Time grows with Q + K. Sums are float32, or float64 for float64 inputs. A row whose weights are all 0 gives 0.

    Source: Katharopoulos et al. 2020; Hua et al. 2022 (in chunks).

    >>> q = k = torch.ones(1, 3, 2)
    >>> linear_attention(q, k, torch.tensor([[[1.0], [2.0], [6.0]]]), causal=True)[0].flatten().tolist()
    [1.0, 1.5, 3.0]
    """
    exact = torch.promote_types(torch.float32, v.dtype)
    groups, features = k.shape[-3], k.shape[-1]
    q, k = q.to(exact).unflatten(-3, (groups, -1)), k.to(exact)
    ones = v.new_ones((*v.shape[:-1], 1), dtype=exact)  # a column whose weighted sum is the denominator
    values = torch.cat((v.to(exact), ones), dim=-1)
    before = values.new_zeros((*k.shape[:-2], features, values.shape[-1])) if sums is None else sums
    with torch.autocast(v.device.type, enabled=False):  # sums of many small numbers do not fit into 16 bits
        totals, sums = (_causal if causal else _all)(q, k, values, before)
    numerator, denominator = totals[..., :-1], totals[..., -1:]
    tiny = torch.finfo(exact).tiny
    return (numerator / denominator.clamp_min(tiny)).flatten(-4, -3).to(v.dtype), sums


def _all(
    q: torch.Tensor, k: torch.Tensor, values: torch.Tensor, before: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's weighted sums over all keys, and the sums."""
    sums = before + k.mT @ values
    return q @ sums.unsqueeze(-3), sums


def _causal(
    q: torch.Tensor, k: torch.Tensor, values: torch.Tensor, before: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's weighted sums over the keys up to itself, and the sums after the last row."""
    rows = k.shape[-2]
    size = min(CHUNK, max(rows, 1))
    pad = torch.nn.functional.pad  # zero rows after the last have weight 0
    q, k, values = (pad(each, (0, 0, 0, -rows % size)).unflatten(-2, (-1, size)) for each in (q, k, values))
    sums = torch.cat((before.unsqueeze(-3), k.mT @ values), dim=-3).cumsum(-3)
    k, values = k.unsqueeze(-4), values.unsqueeze(-4)  # for every query head of the group
    totals = q @ sums[..., :-1, :, :].unsqueeze(-4) + (q @ k.mT).tril() @ values
    return totals.flatten(-3, -2)[..., :rows, :], sums[..., -1, :, :]


class LinearState:
    """The state of a linear attention layer: the sums over all rows so far, of constant size.

    `sums` (B, G, F, E + 1) is None at first; `length` is the number of rows in the sums. Gradients flow through the
    sums; use `detach` to stop them.

    Examples:
        >>> import torch, regard as rg
        >>> from regard.torch import LinearAttention, LinearState
        >>> state = LinearState()
        >>> out = LinearAttention(16, heads=2)(torch.randn(1, 5, 16), mask=rg.causal(), cache=state)
        >>> state
        LinearState(5 rows in 576 bytes)
    """

    def __init__(self) -> None:
        self.sums: torch.Tensor | None = None
        self.length = 0

    @property
    def nbytes(self) -> int:
        """The size of the sums in bytes."""
        return 0 if self.sums is None else self.sums.nbytes

    def detach(self) -> LinearState:
        """Detaches the sums from the autograd graph.

        Returns:
            A new state with the same sums, detached.
        """
        state = LinearState()
        state.sums, state.length = None if self.sums is None else self.sums.detach(), self.length
        return state

    def __repr__(self) -> str:
        return f"LinearState({self.length} rows in {self.nbytes:,} bytes)"


@known_arguments
class LinearAttention(ApproximateAttention):
    """Attention with weights φ(q)·φ(k), φ(x) = elu(x) + 1, instead of exp(q·k), in time linear in the length.

    out_i = φ(q_i)·Σ φ(k_j) v_jᵀ / φ(q_i)·Σ φ(k_j)

    It replaces softmax attention rather than approximating it: the weights are flatter, and a model must be trained
    with it. With mask=rg.causal() and a `LinearState` as cache it is a recurrent network with the same results, and
    the cost of a token does not depend on the number of previous tokens.

    Args:
        d_model: the width of the input and output rows.
        heads: H, the number of query heads.
        kv_heads: G, the number of key/value heads, a divisor of H; None means H.
        head_dim: D, the depth of queries and keys; None means d_model / H.
        value_dim: E, the depth of values; None means D.
        memory_dim: the width of the memory; None means d_model.
        bias: whether the four projections have a bias.

    Raises:
        Refused: sizes that do not fit; the error lists every problem.

    Source:
        Katharopoulos et al. 2020.

    Examples:
        >>> import torch, regard as rg
        >>> from regard.torch import LinearAttention, LinearState
        >>> layer, x, state = LinearAttention(16, heads=2), torch.randn(1, 5, 16), LinearState()
        >>> steps = [layer(x[:, i : i + 1], mask=rg.causal(), cache=state) for i in range(5)]
        >>> torch.allclose(torch.cat(steps, 1), layer(x, mask=rg.causal()), atol=1e-5)
        True
    """

    keeps = LinearState
    keeps_instead = "pass cache=LinearState(): the layer stores sums, not keys"

    def query_features(self, q: torch.Tensor) -> torch.Tensor:
        """Computes the features φ of queries.

        Args:
            q: (…, D) queries.

        Returns:
            (…, F) nonnegative features.
        """
        return _elu_plus_one(q)

    def key_features(self, k: torch.Tensor) -> torch.Tensor:
        """Computes the features φ of keys.

        Args:
            k: (…, D) keys.

        Returns:
            (…, F) nonnegative features.
        """
        return _elu_plus_one(k)

    def mix(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, parts: MaskParts, cache: Any) -> torch.Tensor:
        """Computes linear attention.

        Args:
            q: (B, H, Q, D) queries.
            k: (B, G, K, D) keys.
            v: (B, G, K, E) values.
            parts: the mask, split into causality and conditions on keys.
            cache: the `LinearState` to update, or None.

        Returns:
            (B, H, Q, E) weighted means of the values.

        Raises:
            Refused: a causal mask over a memory.
        """
        check = self.checks()
        check.need(
            not parts.causal or q.shape[2] == k.shape[2],
            "a causal mask over a memory",
            f"rows {tuple(q.shape)}, keys {tuple(k.shape)}",
            "one key for each row",
            "omit the mask: every row attends to the whole memory",
        )
        check.done()
        q, (k, v) = self.query_features(q), parts.hide(self.key_features(k), v)
        out, sums = linear_attention(q, k, v, causal=parts.causal, sums=None if cache is None else cache.sums)
        if cache is not None:
            cache.sums, cache.length = sums, cache.length + k.shape[2]
        return out


def _elu_plus_one(x: torch.Tensor) -> torch.Tensor:
    # elu(x) + 1 written out: 1 + (exp(x) - 1) would lose the digits of a small exp(x).
    x = x.to(torch.promote_types(torch.float32, x.dtype))
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


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
