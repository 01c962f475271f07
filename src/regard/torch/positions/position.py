"""`Position`, the base class of position encodings, and those that do not rotate: sinusoidal, learned, relative."""

from __future__ import annotations

import torch

from ...common.errors import refuse
from ...common.text.keywords import known_arguments
from ...language.expr import Expr, frozen_table, head, key, query, table
from ...language.masks import count
from ...language.scores import alibi_slopes, t5_bucket


@known_arguments
class Position(torch.nn.Module):
    """Base class of position encodings; a subclass overrides one of `embed`, `rotate` and `score`.

    Models call `embed` once before the first layer, `rotate` on the queries and keys of every layer, and `score` once
    per layer. Each returns its input unchanged by default.

    Examples:
        >>> import torch
        >>> from regard.torch.positions import Position
        >>> x = torch.zeros(1, 3, 4)
        >>> Position().embed(x, torch.arange(3)) is x
        True
    """

    def __init__(self) -> None:
        super().__init__()

    def embed(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Adds positions to the token embeddings before the first layer.

        Args:
            x: (B, n, d_model) token embeddings.
            positions: (n,) or (B, n) integers, the positions of the tokens in their sequence.

        Returns:
            (B, n, d_model); here `x` itself.
        """
        return x

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Applies positions to the queries or keys of one layer.

        Args:
            x: (B, heads, n, depth) queries or keys.
            positions: (n,) or (B, n) integers, the positions of the rows in their sequence.

        Returns:
            (B, heads, n, depth); here `x` itself.
        """
        return x

    def score(self, logit: Expr) -> Expr:
        """Builds the score expression of one layer.

        Args:
            logit: the score so far.

        Returns:
            The score with positions; here `logit` itself.
        """
        return logit


def fitting(where: str, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The positions if they are integers (n,) or (B, n) for x (B, …, n, width); raises `Refused` otherwise."""
    sizes = positions.shape
    fits = sizes[-1:] == x.shape[-2:-1] and (len(sizes) == 1 or (len(sizes) == 2 and sizes[0] in (1, x.shape[0])))
    if fits and not (positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool):
        return positions
    raise refuse(
        where,
        "positions do not fit x",
        f"{positions.dtype} {tuple(sizes)}",
        f"integers ({x.shape[-2]},) or ({x.shape[0]}, {x.shape[-2]}), for x {tuple(x.shape)}",
        "pass torch.arange(n), or one row of positions for each batch entry",
    )


def _check_width(where: str, x: torch.Tensor, width: int) -> None:
    if x.shape[-1] != width:
        raise refuse(
            where,
            "x does not have the width d_model",
            f"x {tuple(x.shape)}",
            f"(B, n, {width})",
            f"construct {where} with the model's d_model",
        )


def waves(positions: torch.Tensor, d_model: int) -> torch.Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/d_model)), PE(p, 2i + 1) = cos of the same angle: (…, n, d_model) in float64.

    >>> waves(torch.tensor([0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    exponents = torch.arange(0, d_model, 2, dtype=torch.float64, device=positions.device) / d_model
    angles = positions[..., None].to(torch.float64) * 10000.0**-exponents
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :d_model]


@known_arguments
class Sinusoidal(Position):
    """Adds fixed sines and cosines of the position to the token embeddings.

    PE(p, 2i) = sin(p / 10000^(2i/d_model)), PE(p, 2i + 1) = cos(p / 10000^(2i/d_model)).

    They are computed in float64 at each call, so positions may be arbitrarily large without loss of precision.

    Args:
        d_model: the width of the token embeddings.

    Raises:
        Refused: d_model is less than 1.

    Source:
        Vaswani et al. 2017.

    Examples:
        >>> import torch
        >>> from regard.torch.positions import Sinusoidal
        >>> Sinusoidal(4).embed(torch.zeros(1, 1, 4), torch.tensor([10**6])).shape
        torch.Size([1, 1, 4])
    """

    def __init__(self, d_model: int):
        super().__init__()
        if d_model < 1:
            raise refuse(
                "Sinusoidal", "d_model is too small", f"{d_model}", "at least 1", "pass the width of the tokens"
            )
        self.d_model = d_model

    def embed(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Adds the encoding of the positions.

        Args:
            x: (B, n, d_model) token embeddings.
            positions: (n,) or (B, n) integers.

        Returns:
            (B, n, d_model) in the dtype of `x`.

        Raises:
            Refused: shapes that do not fit, or positions that are not integers.
        """
        _check_width("Sinusoidal", x, self.d_model)
        return x + waves(fitting("Sinusoidal", x, positions), self.d_model).to(x.dtype)

    def extra_repr(self) -> str:
        """The settings that repr(module) shows."""
        return f"{self.d_model}"


@known_arguments
class Learned(Position):
    """Adds a learned vector per position to the token embeddings: x + weight[positions].

    The parameter `weight` (count, d_model) has the name that torch.nn.Embedding uses, so GPT-2's `wpe.weight` and
    BERT's `position_embeddings.weight` load.

    Args:
        count: the number of positions.
        d_model: the width of the token embeddings.

    Raises:
        Refused: count or d_model is less than 1.

    Source:
        Gehring et al. 2017; Radford et al. 2018.

    Examples:
        >>> import torch
        >>> from regard.torch.positions import Learned
        >>> Learned(8, 4).embed(torch.zeros(1, 3, 4), torch.arange(3)).shape
        torch.Size([1, 3, 4])
    """

    def __init__(self, count: int, d_model: int):
        super().__init__()
        if count < 1 or d_model < 1:
            raise refuse(
                "Learned",
                "count and d_model must be positive",
                f"count={count}, d_model={d_model}",
                "at least 1 each",
                "pass the maximum length and the width of the tokens",
            )
        self.weight = torch.nn.Parameter(torch.empty(count, d_model))
        torch.nn.init.normal_(self.weight, std=0.02)

    def embed(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Adds the vectors of the positions.

        Args:
            x: (B, n, d_model) token embeddings.
            positions: (n,) or (B, n) integers from 0 to count − 1.

        Returns:
            (B, n, d_model) in the dtype of `x`.

        Raises:
            Refused: shapes that do not fit, or (on the CPU) positions out of range.
        """
        count, width = self.weight.shape
        _check_width("Learned", x, width)
        fitting("Learned", x, positions)
        # On a GPU the lookup itself checks the range; a check here would synchronize every call.
        if positions.device.type == "cpu" and not torch.compiler.is_compiling() and positions.numel():
            low, high = int(positions.min()), int(positions.max())
            if low < 0 or high >= count:
                raise refuse(
                    "Learned",
                    "a position is out of range",
                    f"positions {low} … {high}",
                    f"0 … {count - 1}",
                    (
                        "use shorter inputs, a larger count, or an encoding without a maximum length: Sinusoidal, "
                        "Rotary, ALiBi"
                    ),
                )
        return x + torch.nn.functional.embedding(positions, self.weight).to(x.dtype)

    def extra_repr(self) -> str:
        """The settings that repr(module) shows."""
        return "{}, {}".format(*self.weight.shape)


@known_arguments
class Buckets(Position):
    """Adds a learned bias per head and bucket of distances, as in T5: score + weight[bucket(key − query), head].

    Short distances have one bucket each; longer distances share buckets of logarithmic size. The parameter `weight`
    (buckets, H) is 0 at first and has the shape of T5's `relative_attention_bias.weight`. T5 does not scale its
    logits: call attention with scale=1, or multiply the weights of q by √D. No matrix of biases is built.

    Args:
        heads: H, the number of query heads.
        buckets: the number of buckets of both directions together.
        max_distance: the distance from which on all distances share the last bucket.
        bidirectional: whether keys after the query have their own buckets (T5's encoder) or share bucket 0 (its
            decoder).

    Raises:
        Refused: a size is invalid, or the buckets do not suffice for max_distance.

    Source:
        Raffel et al. 2020.

    Examples:
        >>> from regard.torch.positions import Buckets
        >>> import regard as rg
        >>> Buckets(4, bidirectional=False).score(rg.score)
        score + relative_bias[bucket[query - key], head]
    """

    def __init__(self, heads: int, buckets: int = 32, *, max_distance: int = 128, bidirectional: bool = True):
        super().__init__()
        self.max_distance, self.bidirectional = max_distance, bidirectional
        # One table for the lifetime of the module, so that plans with it can be cached.
        self.bucket = t5_bucket(
            count(buckets, "Buckets", "buckets"), bidirectional=bidirectional, max_distance=max_distance
        )
        self.weight = torch.nn.Parameter(torch.zeros(buckets, count(heads, "Buckets", "heads", least=1)))

    def score(self, logit: Expr) -> Expr:
        """Adds the bias of the distance's bucket.

        Args:
            logit: the score so far.

        Returns:
            logit + weight[bucket(key − query), head].
        """
        return logit + table(self.weight, "relative_bias")[self.bucket, head]

    def extra_repr(self) -> str:
        """The settings that repr(module) shows."""
        buckets, heads = self.weight.shape
        return f"{heads}, {buckets}, max_distance={self.max_distance}, bidirectional={self.bidirectional}"


@known_arguments
class Relative(Position):
    """Adds a learned bias per head and distance, clipped at ±reach: score + weight[head, key − query + reach].

    The parameter `weight` (H, 2R + 1) is 0 at first. This is the scalar form of relative positions. Shaw et al. 2018
    learn a vector per distance and add its product with the query, which costs one product per row and distance.

    Args:
        heads: H, the number of query heads.
        reach: R, the largest distance with its own bias; longer distances share it.

    Raises:
        Refused: heads is less than 1, or reach is negative.

    Source:
        Shaw et al. 2018 (clipped distances); Liu et al. 2021 (scalar biases).

    Examples:
        >>> from regard.torch.positions import Relative
        >>> import regard as rg
        >>> Relative(4, 16).score(rg.score)
        score + relative[head, key - query + 16]
    """

    def __init__(self, heads: int, reach: int):
        super().__init__()
        self.reach = count(reach, "Relative", "reach")
        self.weight = torch.nn.Parameter(torch.zeros(count(heads, "Relative", "heads", least=1), 2 * self.reach + 1))

    def score(self, logit: Expr) -> Expr:
        """Adds the bias of the distance.

        Args:
            logit: the score so far.

        Returns:
            logit + weight[head, key − query + reach], the distance clipped at ±reach.
        """
        return logit + table(self.weight, "relative")[head, key - query + self.reach]  # out-of-range indices clamp

    def extra_repr(self) -> str:
        """The settings that repr(module) shows."""
        return f"{self.weight.shape[0]}, {self.reach}"


@known_arguments
class ALiBi(Position):
    """Adds a linear distance penalty to the score: score − slope[head] · |query − key|, without parameters.

    For a power of two, the slopes are 2^(−8/H), 2^(−16/H) …; other numbers of heads are completed as in BLOOM and MPT.
    The score depends on distances between rows only, so left padding and packed documents need no positions.

    Args:
        heads: H, the number of query heads.

    Raises:
        Refused: heads is not a positive integer.

    Source:
        Press et al. 2022.

    Examples:
        >>> from regard.torch.positions import ALiBi
        >>> import regard as rg
        >>> ALiBi(8).score(rg.score)
        score - slope[head] * abs(query - key)
    """

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads
        # One frozen table for the lifetime of the module, so that plans with it can be cached.
        self.slope = frozen_table(alibi_slopes(heads), "slope")

    def score(self, logit: Expr) -> Expr:
        """Subtracts the distance penalty.

        Args:
            logit: the score so far.

        Returns:
            logit − slope[head] · |query − key|.
        """
        return logit - self.slope[head] * abs(query - key)

    def extra_repr(self) -> str:
        """The settings that repr(module) shows."""
        return f"{self.heads}"
