"""Linear attention: a product of features in place of exp(q·k), so that sums over the keys are enough, in whatever
pieces.
"""

from __future__ import annotations

import torch

from .deviation import ApproximateAttention
from .mask_parts import MaskParts

__all__ = ["LinearAttention", "LinearState", "linear_attention"]

CHUNK = 128  # rows whose pairs are computed directly; between chunks go the sums


def linear_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, sums: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention whose weights are products of features that are not negative.

    out_i = φ(q_i)·S / φ(q_i)·z,  S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j),
    over all keys, or where causal over the keys up to row i.

    q (…, H, Q, F) and k (…, G, K, F): the features φ, H a multiple of G; v (…, G, K, E) -> out (…, H, Q, E) in v's
    dtype and the sums S and z side by side, (…, G, F, E + 1). sums: those of all keys before. Where causal, Q = K.

    Time grows with Q + K. Sums are float32, for float64 float64. A row whose weights are all 0 gives 0.

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
        found, sums = (_causal if causal else _all)(q, k, values, before)
    numerator, denominator = found[..., :-1], found[..., -1:]
    tiny = torch.finfo(exact).tiny
    return (numerator / denominator.clamp_min(tiny)).flatten(-4, -3).to(v.dtype), sums


def _all(
    q: torch.Tensor, k: torch.Tensor, values: torch.Tensor, before: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What every row finds over all keys, and the sums."""
    sums = before + k.mT @ values
    return q @ sums.unsqueeze(-3), sums


def _causal(
    q: torch.Tensor, k: torch.Tensor, values: torch.Tensor, before: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What each row finds up to itself, and the sums after the last: pairs within a chunk, sums of the chunks
    before.
    """
    rows = k.shape[-2]
    size = min(CHUNK, max(rows, 1))
    filled = torch.nn.functional.pad  # rows of zeros behind the last weigh nothing
    q, k, values = (filled(each, (0, 0, 0, -rows % size)).unflatten(-2, (-1, size)) for each in (q, k, values))
    sums = torch.cat((before.unsqueeze(-3), k.mT @ values), dim=-3).cumsum(-3)
    k, values = k.unsqueeze(-4), values.unsqueeze(-4)  # for every query head of the group
    found = q @ sums[..., :-1, :, :].unsqueeze(-4) + (q @ k.mT).tril() @ values
    return found.flatten(-3, -2)[..., :rows, :], sums[..., -1, :, :]


class LinearState:
    """What a linear attention keeps of all rows so far: sums, whose size does not grow.

    sums (B, G, F, E + 1), None at first; length: how many rows they hold. Gradients flow into them; `detach` ends that.
    """

    def __init__(self) -> None:
        self.sums: torch.Tensor | None = None
        self.length = 0

    @property
    def nbytes(self) -> int:
        return 0 if self.sums is None else self.sums.nbytes

    def detach(self) -> LinearState:
        """The same sums, from which no gradient leads back."""
        kept = LinearState()
        kept.sums, kept.length = None if self.sums is None else self.sums.detach(), self.length
        return kept

    def __repr__(self):
        return f"LinearState({self.length} rows in {self.nbytes:,} bytes)"


class LinearAttention(ApproximateAttention):
    """Attention with weights φ(q)·φ(k), φ(x) = elu(x) + 1, in place of exp(q·k): linear in the length, or a step at a
    time.

    out_i = φ(q_i)·Σ φ(k_j) v_jᵀ / φ(q_i)·Σ φ(k_j)

    Sizes and parameters as for `Attention`. It does not approximate softmax attention, it replaces it: weights are
    flatter, and a model must be trained with it. With mask=rg.causal() and a `LinearState` as cache it is a recurrent
    network: the same numbers, and a token costs the same however many came before.

    Refused: masks that tie single rows to single keys.

    Source: Katharopoulos et al. 2020.

    >>> import regard as rg
    >>> layer, x, state = LinearAttention(16, heads=2), torch.randn(1, 5, 16), LinearState()
    >>> steps = [layer(x[:, i : i + 1], mask=rg.causal(), cache=state) for i in range(5)]
    >>> torch.allclose(torch.cat(steps, 1), layer(x, mask=rg.causal()), atol=1e-5)
    True
    """

    keeps = LinearState
    keeps_instead = "pass cache=LinearState(): keys are not kept, only sums"

    def query_features(self, q: torch.Tensor) -> torch.Tensor:
        """φ of the queries (…, D) -> (…, F)."""
        return _elu_plus_one(q)

    def key_features(self, k: torch.Tensor) -> torch.Tensor:
        """φ of the keys (…, D) -> (…, F)."""
        return _elu_plus_one(k)

    def mix(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, parts: MaskParts, cache) -> torch.Tensor:
        check = self.checks()
        check.need(
            not parts.causal or q.shape[2] == k.shape[2],
            "causal rows over a memory",
            given=f"{q.shape[2]} rows, {k.shape[2]} keys",
            expected="one key for each row",
            fix="leave the mask out: a memory is seen by all rows",
        )
        check.done()
        q, (k, v) = self.query_features(q), parts.hide(self.key_features(k), v)
        found, sums = linear_attention(q, k, v, causal=parts.causal, sums=None if cache is None else cache.sums)
        if cache is not None:
            cache.sums, cache.length = sums, cache.length + k.shape[2]
        return found


def _elu_plus_one(x: torch.Tensor) -> torch.Tensor:
    # elu(x) + 1 written out: 1 + (exp(x) - 1) would lose the digits of a small exp(x).
    x = x.to(torch.promote_types(torch.float32, x.dtype))
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())
