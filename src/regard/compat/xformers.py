"""`memory_efficient_attention` of `xformers.ops` and its biases, with regard's kernels: on the CPU, where the library
has no operator.

A bias says which keys a row attends to. Here it is an expression, of which whole tiles are skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import torch

from ..common.errors import refuse
from ..language.analysis import evaluate
from ..language.checks.arguments import Arguments
from ..language.expr import Expr, query
from ..torch.functional import attention_rows_first, attention_with_lse
from .sequences import band, sequences

__all__ = [
    "AttentionBias",
    "BlockDiagonalCausalFromBottomRightMask",
    "BlockDiagonalCausalLocalAttentionFromBottomRightMask",
    "BlockDiagonalCausalLocalAttentionMask",
    "BlockDiagonalCausalLocalAttentionPaddedKeysMask",
    "BlockDiagonalCausalMask",
    "BlockDiagonalCausalWithOffsetGappyKeysMask",
    "BlockDiagonalCausalWithOffsetPaddedKeysMask",
    "BlockDiagonalGappyKeysMask",
    "BlockDiagonalLocalAttentionPaddedKeysMask",
    "BlockDiagonalMask",
    "BlockDiagonalPaddedKeysMask",
    "LocalAttentionFromBottomRightMask",
    "LowerTriangularFromBottomRightLocalAttentionMask",
    "LowerTriangularFromBottomRightMask",
    "LowerTriangularMask",
    "LowerTriangularMaskWithTensorBias",
    "MemoryEfficientAttentionCutlassOp",
    "MemoryEfficientAttentionFlashAttentionOp",
    "PagedBlockDiagonalCausalWithOffsetGappyKeysMask",
    "PagedBlockDiagonalCausalWithOffsetPaddedKeysMask",
    "PagedBlockDiagonalGappyKeysMask",
    "PagedBlockDiagonalPaddedKeysMask",
    "memory_efficient_attention",
    "memory_efficient_attention_forward",
    "memory_efficient_attention_forward_requires_grad",
    "unbind",
]

__version__ = "0.0.32"  # whose functions these are
unbind = torch.unbind
MemoryEfficientAttentionCutlassOp = MemoryEfficientAttentionFlashAttentionOp = None  # values of op=, without an effect


def memory_efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | AttentionBias | None = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
    output_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Attention of arrays (batch, rows, heads, depth).

    out = softmax(scale · q kᵀ + attn_bias) v

    Args:
        query: (B, M, H, K), or (B, M, K) for one head, or (B, M, G, H, K) for H query heads in each of G groups.
        key: (B, N, H, K), (B, N, K), or (B, N, G, H, K); keys and values that are expanded along H are read once.
        value: the same of the values, of depth Kv.
        attn_bias: an `AttentionBias`, or floats (B, H, M, N) that are added; for (B, M, K) also (B, M, N).
        p: the rate at which weights are dropped, by a seed of torch's generator.
        scale: the factor of q·k; None means 1/√K.
        op: has no effect: the operators of the library run on its own devices.
        output_dtype: the dtype of the result; None is that of query.

    Returns:
        (B, M, H, Kv), in the form of query; 0 in rows without keys. Differentiable, in attn_bias too.

    Raises:
        Refused: shapes or dtypes that do not fit.

    Source:
        Rabe and Staats 2021 (memory that grows with the rows).

    Examples:
        >>> q = torch.zeros(1, 5, 2, 8)
        >>> memory_efficient_attention(q, q, q, attn_bias=LowerTriangularMask()).shape
        torch.Size([1, 5, 2, 8])
    """
    found = _attend(query, key, value, attn_bias, p=p, scale=scale)
    return found if output_dtype is None else found.to(output_dtype)


memory_efficient_attention_forward = torch.no_grad()(memory_efficient_attention)


@torch.no_grad()
def memory_efficient_attention_forward_requires_grad(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | AttentionBias | None = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
    output_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`memory_efficient_attention` without gradients, and the log-sum-exp of each row.

    Args:
        query: (B, M, H, K), as for `memory_efficient_attention`, like all other arguments.
        key: (B, N, H, K).
        value: (B, N, H, Kv).
        attn_bias: a bias, or floats that are added.
        p: the rate at which weights are dropped.
        scale: the factor of q·k.
        op: has no effect.
        output_dtype: the dtype of the result.

    Returns:
        The result, and lse (B, H, M) in nats, of (B, M, G, H, K) in the form (B, G, H, M); −∞ in rows without keys.

    Examples:
        >>> q = torch.zeros(1, 5, 2, 8)
        >>> memory_efficient_attention_forward_requires_grad(q, q, q)[1].shape
        torch.Size([1, 2, 5])
    """
    found, sums = _attend(query, key, value, attn_bias, p=p, scale=scale, lse=True)
    return found if output_dtype is None else found.to(output_dtype), sums


def _attend(query, key, value, attn_bias, *, p: float, scale: float | None, lse: bool = False) -> Any:
    """The result in the form of query, or this and the log-sum-exp of each row."""
    axes = query.ndim
    if axes not in (3, 4, 5) or key.ndim != axes or value.ndim != axes:
        given = ", ".join(str(tuple(each.shape)) for each in (query, key, value))
        expected, fix = "(B, M, H, K) each, or (B, M, K), or (B, M, G, H, K)", "pass all three in one of these forms"
        raise refuse("memory_efficient_attention", "other axes", given, expected, fix)
    form = query.shape[:-1]
    if axes == 3:
        query, key, value = (each[:, :, None] for each in (query, key, value))
    elif axes == 5:
        if key.stride(3) == value.stride(3) == 0:  # one head for each group, as xformers finds it
            key, value = key[..., :1, :], value[..., :1, :]
        query, key, value = (each.flatten(2, 3) for each in (query, key, value))
    if isinstance(attn_bias, PagedBlockDiagonalGappyKeysMask):
        at, attn_bias = attn_bias.unpaged()
        key, value = key[:, at], value[:, at]
    mask, score = None, attn_bias
    if isinstance(attn_bias, AttentionBias):
        mask, score = attn_bias.rules(query.shape[1], key.shape[1])
    if isinstance(score, torch.Tensor):
        if axes == score.ndim == 3:
            score = score[:, None]
        elif axes == score.ndim == 5:
            score = score.flatten(1, 2)
    seed = int(torch.randint(2**63 - 1, ())) if p else None
    arguments = Arguments(mask, score, scale, None if mask is None else 0, None, p, seed)
    query, key, value = (each.transpose(1, 2) for each in (query, key, value))
    if not lse:
        return attention_rows_first(query, key, value, arguments).reshape(*form, value.shape[-1])
    out, sums = attention_with_lse(query, key, value, **arguments._asdict())
    if axes == 5:
        sums = sums.unflatten(1, form[2:])
    return out.transpose(1, 2).reshape(*form, value.shape[-1]), sums


# ---- biases of one sequence ------------------------------------------------------------------------------------------


class AttentionBias(ABC):
    """Which keys a row attends to, and what is added to its scores."""

    @abstractmethod
    def rules(self, rows: int, keys: int) -> tuple[Expr | None, Any]:
        """(mask, score) of a call with so many rows and keys, where row i is at position i."""

    def to(self, device: torch.device) -> Self:
        """The same bias: it is a rule, which has no device.

        Args:
            device: where the arrays of the call are.

        Returns:
            The bias.
        """
        return self

    def materialize(
        self, shape: Sequence[int], dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
    ) -> torch.Tensor:
        """The bias as an array that is added: 0 where a row may attend, −∞ elsewhere.

        Args:
            shape: (…, M, N).
            dtype: of the array.
            device: of the array.

        Returns:
            The array.

        Examples:
            >>> LowerTriangularMask().materialize((2, 2))
            tensor([[0., -inf],
                    [0., 0.]])
        """
        mask, score = self.rules(*shape[-2:])
        i, j = np.ogrid[: shape[-2], : shape[-1]]
        values = {"query": i, "key": j}
        allowed = np.broadcast_to(np.True_ if mask is None else evaluate(mask, values), tuple(shape[-2:]))
        found = torch.zeros(tuple(shape[-2:]), dtype=dtype, device=device)
        found = found.masked_fill(torch.from_numpy(~allowed).to(device), -torch.inf).expand(tuple(shape))
        return found if score is None else found + score


class _Band(AttentionBias):
    """A band of keys around the place of a row. last: whether the last row is at the last key."""

    left: int | None = None
    right: int | None = None
    last = True

    def rules(self, rows: int, keys: int) -> tuple[Expr | None, Any]:
        """(mask, score)."""
        return band(query + (keys - rows if self.last else 0), self.left, self.right), None


class LowerTriangularMask(_Band):
    """Causal, with the first row at the first key: row i attends to keys up to i.

    Examples:
        >>> LowerTriangularMask().materialize((1, 2))
        tensor([[0., -inf]])
    """

    right, last = 0, False

    def add_bias(self, bias: torch.Tensor) -> LowerTriangularMaskWithTensorBias:
        """The same, with an array (B, H, M, N) that is added to the scores.

        Args:
            bias: the array.

        Returns:
            The bias.
        """
        return LowerTriangularMaskWithTensorBias(bias)


class LowerTriangularMaskWithTensorBias(LowerTriangularMask):
    """Causal as `LowerTriangularMask`, and an array that is added to the scores.

    Args:
        bias: (B, H, M, N) floats, which may be learned.
    """

    def __init__(self, bias: torch.Tensor):
        self._bias = bias

    def rules(self, rows: int, keys: int) -> tuple[Expr | None, Any]:
        """(mask, score)."""
        return super().rules(rows, keys)[0], self._bias


class LowerTriangularFromBottomRightMask(_Band):
    """Causal, with the last row at the last key.

    Examples:
        >>> LowerTriangularFromBottomRightMask().materialize((1, 2))
        tensor([[0., 0.]])
    """

    right = 0

    def make_local_attention(self, window_size: int) -> LowerTriangularFromBottomRightLocalAttentionMask:
        """The same for the last `window_size` keys of a row.

        Args:
            window_size: the keys that a row attends to, its own included.

        Returns:
            The bias.
        """
        return LowerTriangularFromBottomRightLocalAttentionMask(window_size)


class LowerTriangularFromBottomRightLocalAttentionMask(LowerTriangularFromBottomRightMask):
    """Causal with the last row at the last key, for the last keys of a row.

    Args:
        _window_size: the keys that a row attends to, its own included.
    """

    def __init__(self, _window_size: int):
        _at_least("LowerTriangularFromBottomRightLocalAttentionMask", _window_size, 1)
        self.left = _window_size - 1


class LocalAttentionFromBottomRightMask(_Band):
    """Keys before and after the position of a row, with the last row at the last key.

    Args:
        window_left: keys before it.
        window_right: keys after it.
    """

    def __init__(self, window_left: int, window_right: int):
        _at_least("LocalAttentionFromBottomRightMask", min(window_left, window_right), 0)
        self.left, self.right = self.window_left, self.window_right = window_left, window_right


# ---- biases of several sequences in one axis -------------------------------------------------------------------------


@dataclass
class SequenceInfo:
    """Where the sequences of an axis start: seqstart (N + 1,) as a tensor and as integers, and their longest length."""

    seqstart: torch.Tensor
    max_seqlen: int
    min_seqlen: int
    seqstart_py: list[int]

    @classmethod
    def from_seqlens(cls, seqlens: Iterable[int]) -> Self:
        """The starts of sequences of these lengths."""
        lengths = [int(each) for each in seqlens]
        starts = [0, *np.cumsum(lengths).tolist()]
        return cls(torch.tensor(starts, dtype=torch.int32), max(lengths, default=-1), min(lengths, default=-1), starts)

    def intervals(self) -> Iterable[tuple[int, int]]:
        """Where each sequence starts and ends."""
        return pairwise(self.seqstart_py)

    def split(self, x: torch.Tensor, batch_sizes: Sequence[int] | None = None) -> list[torch.Tensor]:
        """The parts of an array (1, total, …), as they were before they were packed."""
        if x.shape[0] != 1 or x.shape[1] != self.seqstart_py[-1]:
            given, expected = f"{tuple(x.shape)}", f"(1, {self.seqstart_py[-1]}, …)"
            raise refuse("split", "an array of other sequences", given, expected, "pass the array that was computed")
        sizes = batch_sizes or [1] * (len(self.seqstart_py) - 1)
        ends = [self.seqstart_py[end] for end in np.cumsum([0, *sizes]).tolist()]
        parts = x.split([end - start for start, end in pairwise(ends)], dim=1)
        return [part.reshape(size, -1, *x.shape[2:]) for size, part in zip(sizes, parts, strict=True)]


@dataclass
class BlockDiagonalMask(AttentionBias):
    """Sequences that are packed into one axis: a row attends to the keys of its own sequence.

    Args:
        q_seqinfo: where the sequences of rows start.
        k_seqinfo: where those of keys start.

    Examples:
        >>> bias, x = BlockDiagonalMask.from_tensor_list([torch.zeros(1, 3, 2, 8), torch.zeros(1, 4, 2, 8)])
        >>> [tuple(each.shape) for each in bias.split(memory_efficient_attention(x, x, x, attn_bias=bias))]
        [(1, 3, 2, 8), (1, 4, 2, 8)]
    """

    q_seqinfo: SequenceInfo
    k_seqinfo: SequenceInfo
    _batch_sizes: Sequence[int] | None = None
    _window_size: int | None = None

    right: ClassVar[int | None] = None
    last: ClassVar[bool] = False

    def __post_init__(self) -> None:
        where = type(self).__name__
        if self._window_size is not None:
            _at_least(where, self._window_size, 1)
        padded = isinstance(self.k_seqinfo, GappySequenceInfo)
        for (start, end), (first, stop) in zip(self.q_seqinfo.intervals(), self.k_seqinfo.intervals()):
            if self.last and not padded and end - start > stop - first:
                given = f"{end - start} rows and {stop - first} keys of a sequence"
                raise refuse(where, "rows without keys", given, "a key for each row", "pass more keys")

    def rules(self, rows: int, keys: int) -> tuple[Expr | None, Any]:
        """(mask, score)."""
        starts = tuple(self.q_seqinfo.seqstart_py), tuple(self.k_seqinfo.seqstart_py)
        if (rows, keys) != (starts[0][-1], starts[1][-1]):
            given, expected = f"{rows} rows and {keys} keys", f"{starts[0][-1]} and {starts[1][-1]}, as in the bias"
            raise refuse(
                "BlockDiagonalMask", "sequences of other lengths", given, expected, "make a bias for this call"
            )
        counts = getattr(self.k_seqinfo, "seqlen_py", None)
        found = sequences(*starts, (rows, keys), counts=counts, last=self.last)
        near = band(found.place, *self._window())
        return found.own if near is None else found.own & near, None

    def _window(self) -> tuple[int | None, int | None]:
        """How many keys before and after its place a row attends to; None for no limit."""
        return None if self._window_size is None else self._window_size - 1, self.right

    @classmethod
    def from_seqlens(
        cls, q_seqlen: Sequence[int], kv_seqlen: Sequence[int] | None = None, *, device: Any = None
    ) -> Self:
        """The bias of sequences of these lengths.

        Args:
            q_seqlen: rows of each sequence.
            kv_seqlen: keys of each; None is as many.
            device: has no effect.

        Returns:
            The bias.
        """
        own = SequenceInfo.from_seqlens(q_seqlen)
        same = kv_seqlen is None or list(kv_seqlen) == list(q_seqlen)
        return cls(own, own if same else SequenceInfo.from_seqlens(kv_seqlen or ()))

    @classmethod
    def from_tensor_list(cls, tensors: Sequence[torch.Tensor]) -> tuple[Self, torch.Tensor]:
        """The bias of arrays (B_i, M_i, …), and the arrays packed.

        Args:
            tensors: the arrays.

        Returns:
            The bias, and (1, Σ B_i · M_i, …).
        """
        return cls.from_tensor_lists_qkv(tensors, tensors)[:2]

    @classmethod
    def from_tensor_lists_qkv(
        cls,
        tensors_q: Sequence[torch.Tensor],
        tensors_k: Sequence[torch.Tensor],
        tensors_v: Sequence[torch.Tensor] | None = None,
    ) -> tuple[Self, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """The bias of queries and keys of other lengths, and the arrays packed.

        Args:
            tensors_q: arrays (B_i, M_i, …).
            tensors_k: arrays (B_i, N_i, …).
            tensors_v: the same of the values, or None.

        Returns:
            The bias, and the three packed arrays.
        """
        lengths = [[each.shape[1] for each in some for _ in range(len(each))] for some in (tensors_q, tensors_k)]
        bias = replace(cls.from_seqlens(*lengths), _batch_sizes=[len(each) for each in tensors_q])
        return bias, _joined(tensors_q), _joined(tensors_k), None if tensors_v is None else _joined(tensors_v)

    def split(self, tensor: torch.Tensor) -> Sequence[torch.Tensor]:
        """The parts of a packed array, as they were in `from_tensor_list`.

        Args:
            tensor: (1, total, …).

        Returns:
            The parts.
        """
        return self.q_seqinfo.split(tensor, self._batch_sizes)

    split_queries = split

    def split_kv(self, tensor: torch.Tensor) -> Sequence[torch.Tensor]:
        """The same of keys or values.

        Args:
            tensor: (1, total, …).

        Returns:
            The parts.
        """
        return self.k_seqinfo.split(tensor, self._batch_sizes)

    def make_causal(self) -> BlockDiagonalCausalMask:
        """Causal in each sequence, with its first row at its first key.

        Returns:
            The bias.
        """
        return self._as(BlockDiagonalCausalMask)

    def make_causal_from_bottomright(self) -> BlockDiagonalCausalFromBottomRightMask:
        """Causal in each sequence, with its last row at its last key.

        Returns:
            The bias.
        """
        return self._as(BlockDiagonalCausalFromBottomRightMask)

    def make_local_attention(self, window_size: int) -> BlockDiagonalCausalLocalAttentionMask:
        """Causal in each sequence, for the last `window_size` keys of a row.

        Args:
            window_size: the keys that a row attends to, its own included.

        Returns:
            The bias.
        """
        return self._as(BlockDiagonalCausalLocalAttentionMask, window_size)

    def make_local_attention_from_bottomright(
        self, window_size: int
    ) -> BlockDiagonalCausalLocalAttentionFromBottomRightMask:
        """The same with the last row of a sequence at its last key.

        Args:
            window_size: the keys that a row attends to, its own included.

        Returns:
            The bias.
        """
        return self._as(BlockDiagonalCausalLocalAttentionFromBottomRightMask, window_size)

    def _as(self, kind: Any, window_size: int | None = None) -> Any:
        """The bias of another kind for the same sequences."""
        return kind(self.q_seqinfo, self.k_seqinfo, self._batch_sizes, window_size)


@dataclass
class BlockDiagonalCausalMask(BlockDiagonalMask):
    """Packed sequences, each causal, with its first row at its first key."""

    right = 0


@dataclass
class BlockDiagonalCausalFromBottomRightMask(BlockDiagonalMask):
    """Packed sequences, each causal, with its last row at its last key."""

    right, last = 0, True


@dataclass
class BlockDiagonalCausalLocalAttentionMask(BlockDiagonalCausalMask):
    """Packed sequences, each causal, for the last keys of a row. _window_size: how many, its own included."""

    _window_size: int | None = 0


@dataclass
class BlockDiagonalCausalLocalAttentionFromBottomRightMask(BlockDiagonalCausalFromBottomRightMask):
    """The same with the last row of each sequence at its last key."""

    _window_size: int | None = 0


@dataclass
class GappySequenceInfo(SequenceInfo):
    """Sequences with unused keys between them. seqlen (N,): how many keys each of them has."""

    seqlen: torch.Tensor
    seqlen_py: list[int]

    def intervals(self) -> Iterable[tuple[int, int]]:
        """Where each sequence starts, and where its keys end."""
        return [(start, start + size) for start, size in zip(self.seqstart_py, self.seqlen_py)]

    @classmethod
    def from_seqlens_gappy(cls, seqstarts: Sequence[int], seqlens: Sequence[int]) -> Self:
        """Sequences of these lengths at these starts, of which the last is the end of the axis."""
        starts, lengths = [int(each) for each in seqstarts], [int(each) for each in seqlens]
        room = [end - start for start, end in pairwise(starts)]
        if len(room) != len(lengths) or any(not 0 <= each <= most for each, most in zip(lengths, room)):
            given, expected = f"{lengths} keys at {starts}", "from 0 to the next start, and the end of the axis last"
            raise refuse(cls.__name__, "a sequence is longer than its room", given, expected, "enlarge its room")
        ends = max(lengths, default=-1), min(lengths, default=-1)
        return cls(_whole(starts), *ends, starts, _whole(lengths), lengths)


@dataclass
class PaddedSequenceInfo(GappySequenceInfo):
    """Sequences that start every `padding` keys."""

    @property
    def padding(self) -> int:
        """The keys for which each sequence has room."""
        return self.seqstart_py[1] if self.seqlen_py else 0

    @classmethod
    def from_seqlens_padded(cls, seqlens: Sequence[int], padding: int) -> Self:
        """Sequences of these lengths, each followed by padding."""
        return cls.from_seqlens_gappy([padding * number for number in range(len(seqlens) + 1)], seqlens)


@dataclass
class BlockDiagonalPaddedKeysMask(BlockDiagonalMask):
    """Packed rows over a cache in which each sequence has room for `padding` keys, of which it uses the first."""

    k_seqinfo: PaddedSequenceInfo

    # xformers gives this class other arguments than the class that it derives from.
    @classmethod
    def from_seqlens(  # type: ignore[override]
        cls, q_seqlen: Any, kv_padding: Any, kv_seqlen: Any, causal_diagonal: Any = None, *, device: Any = None
    ) -> Self:
        """The bias of sequences of these lengths.

        Args:
            q_seqlen: rows of each sequence.
            kv_padding: keys for which each sequence has room.
            kv_seqlen: keys that it uses.
            causal_diagonal: has no effect, as in the library.
            device: has no effect.

        Returns:
            The bias.
        """
        keys = PaddedSequenceInfo.from_seqlens_padded(kv_seqlen, kv_padding)
        return cls(SequenceInfo.from_seqlens(q_seqlen), keys)


@dataclass
class BlockDiagonalCausalWithOffsetPaddedKeysMask(BlockDiagonalPaddedKeysMask):
    """The same, causal, with the last row of each sequence at the last key that it uses."""

    right, last = 0, True


@dataclass
class BlockDiagonalCausalLocalAttentionPaddedKeysMask(BlockDiagonalCausalWithOffsetPaddedKeysMask):
    """The same for the last keys of a row. _window_size: how many, its own included."""

    @classmethod
    def from_seqlens_local(cls, q_seqlen: Any, kv_padding: Any, kv_seqlen: Any, window_size: int) -> Self:
        """The bias of sequences of these lengths.

        Args:
            q_seqlen: rows of each sequence.
            kv_padding: keys for which each sequence has room.
            kv_seqlen: keys that it uses.
            window_size: the keys that a row attends to, its own included.

        Returns:
            The bias.
        """
        return replace(cls.from_seqlens(q_seqlen, kv_padding, kv_seqlen), _window_size=window_size)


@dataclass
class BlockDiagonalLocalAttentionPaddedKeysMask(BlockDiagonalPaddedKeysMask):
    """The same for keys before and after the place of a row, with the last row at the last key that is used."""

    window_left: int = 0
    window_right: int = 0

    last = True

    def _window(self) -> tuple[int, int]:
        return self.window_left, self.window_right

    @classmethod
    def from_seqlens_local(
        cls, q_seqlen: Any, kv_padding: Any, kv_seqlen: Any, window_left: int, window_right: int
    ) -> Self:
        """The bias of sequences of these lengths.

        Args:
            q_seqlen: rows of each sequence.
            kv_padding: keys for which each sequence has room.
            kv_seqlen: keys that it uses.
            window_left: keys before the place of a row.
            window_right: keys after it.

        Returns:
            The bias.
        """
        bias = cls.from_seqlens(q_seqlen, kv_padding, kv_seqlen)
        return replace(bias, window_left=window_left, window_right=window_right)


@dataclass
class BlockDiagonalGappyKeysMask(BlockDiagonalMask):
    """Packed rows over keys with unused ones between the sequences."""

    k_seqinfo: GappySequenceInfo

    # xformers gives this class other arguments, too.
    @classmethod
    def from_seqlens(  # type: ignore[override]
        cls, q_seqlen: Any, kv_seqstarts: Any, kv_seqlen: Any, *, device: Any = None
    ) -> Self:
        """The bias of sequences of these lengths.

        Args:
            q_seqlen: rows of each sequence.
            kv_seqstarts: where the keys of each sequence start, and the end of the axis.
            kv_seqlen: how many keys each has.
            device: has no effect.

        Returns:
            The bias.
        """
        keys = GappySequenceInfo.from_seqlens_gappy(kv_seqstarts, kv_seqlen)
        return cls(SequenceInfo.from_seqlens(q_seqlen), keys)


@dataclass
class BlockDiagonalCausalWithOffsetGappyKeysMask(BlockDiagonalGappyKeysMask):
    """The same, causal, with the last row of each sequence at its last key."""

    right, last = 0, True


# ---- biases over keys in pages ---------------------------------------------------------------------------------------


@dataclass
class PagedBlockDiagonalGappyKeysMask(AttentionBias):
    """Packed rows over keys in pages, of which each sequence uses some in a row; the keys are (1, all keys, H, K).

    Args:
        q_seqinfo: where the sequences of rows start.
        k_seqinfo: where the keys of each start in its own pages, and how many they are.
        block_tables: (B, n) the pages of each sequence.
        page_size: the keys of a page.

    Examples:
        >>> bias = PagedBlockDiagonalGappyKeysMask.from_seqlens([1], [1], [2], torch.tensor([[3, 0]]), page_size=2)
        >>> bias.materialize((1, 8))
        tensor([[0., -inf, -inf, -inf, -inf, -inf, -inf, 0.]])
    """

    q_seqinfo: SequenceInfo
    k_seqinfo: GappySequenceInfo
    block_tables: torch.Tensor
    page_size: int

    causal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        room = self.block_tables.shape[1] * self.page_size
        keys = [*self.k_seqinfo.intervals()]
        if len(keys) != len(self.block_tables) or any(not 0 <= start <= end <= room for start, end in keys):
            given, expected = f"keys {keys}", f"from 0 to {room} for each of {len(self.block_tables)} sequences"
            raise refuse(type(self).__name__, "pages for other sequences", given, expected, "extend block_tables")

    @classmethod
    def from_seqlens(
        cls,
        q_seqlen: Any,
        kv_seqstarts: Any,
        kv_seqlen: Any,
        block_tables: torch.Tensor,
        page_size: int,
        *,
        device: Any = None,
    ) -> Self:
        """The bias of sequences of these lengths.

        Args:
            q_seqlen: rows of each sequence.
            kv_seqstarts: where the keys of each start in its own pages.
            kv_seqlen: how many keys each has.
            block_tables: (B, n) the pages of each sequence.
            page_size: the keys of a page.
            device: has no effect.

        Returns:
            The bias.
        """
        starts, lengths = ([int(each) for each in some] for some in (kv_seqstarts, kv_seqlen))
        keys = GappySequenceInfo(_whole(starts), max(lengths), min(lengths), starts, _whole(lengths), lengths)
        return cls(SequenceInfo.from_seqlens(q_seqlen), keys, block_tables, page_size)

    def unpaged(self) -> tuple[torch.Tensor, BlockDiagonalGappyKeysMask]:
        """Where the keys of all sequences are on the axis of the pages, and the bias of these keys in one row."""
        places = self.block_tables.long()[..., None] * self.page_size + torch.arange(self.page_size)
        own = [row[start:end] for row, (start, end) in zip(places.flatten(1), self.k_seqinfo.intervals())]
        kind = BlockDiagonalCausalWithOffsetGappyKeysMask if self.causal else BlockDiagonalGappyKeysMask
        sizes = self.k_seqinfo.seqlen_py
        keys = GappySequenceInfo.from_seqlens_gappy([0, *np.cumsum(sizes).tolist()], sizes)
        return torch.cat([places[:0, 0, 0], *own]), kind(self.q_seqinfo, keys)

    def rules(self, rows: int, keys: int) -> tuple[Expr | None, Any]:
        """(mask, score) over the keys of `unpaged`."""
        return self.unpaged()[1].rules(rows, keys)

    def materialize(
        self, shape: Sequence[int], dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
    ) -> torch.Tensor:
        """The bias as an array (…, M, keys of all pages), as for `AttentionBias`.

        Args:
            shape: (…, M, N), of which N has no effect.
            dtype: of the array.
            device: of the array.

        Returns:
            The array.
        """
        at, bias = self.unpaged()
        packed = bias.materialize((shape[-2], len(at)), dtype, device)
        pages = int(self.block_tables.max()) + 1 if self.block_tables.numel() else 0
        found = packed.new_full((shape[-2], pages * self.page_size), -torch.inf)
        for (start, end), (first, stop) in zip(bias.q_seqinfo.intervals(), bias.k_seqinfo.intervals()):
            found[start:end, at[first:stop]] = packed[start:end, first:stop]
        return found.expand(*shape[:-2], *found.shape)


@dataclass
class PagedBlockDiagonalCausalWithOffsetGappyKeysMask(PagedBlockDiagonalGappyKeysMask):
    """The same, causal, with the last row of each sequence at its last key."""

    causal = True


@dataclass
class PagedBlockDiagonalPaddedKeysMask(PagedBlockDiagonalGappyKeysMask):
    """Packed rows over keys in pages, of which each sequence uses the first ones."""

    # xformers gives this class other arguments than the one above, from which it does not derive it.
    @classmethod
    def from_seqlens(  # type: ignore[override]
        cls, q_seqlen: Any, kv_seqlen: Any, block_tables: torch.Tensor, page_size: int, *, device: Any = None
    ) -> Self:
        """The bias of sequences of these lengths.

        Args:
            q_seqlen: rows of each sequence.
            kv_seqlen: keys that it uses.
            block_tables: (B, n) the pages of each sequence.
            page_size: the keys of a page.
            device: has no effect.

        Returns:
            The bias.
        """
        return super().from_seqlens(q_seqlen, [0] * len(kv_seqlen), kv_seqlen, block_tables, page_size)


@dataclass
class PagedBlockDiagonalCausalWithOffsetPaddedKeysMask(PagedBlockDiagonalPaddedKeysMask):
    """The same, causal, with the last row of each sequence at the last key that it uses."""

    causal = True


def _whole(numbers: Iterable[int]) -> torch.Tensor:
    return torch.tensor([int(each) for each in numbers], dtype=torch.int32)


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Arrays (B_i, M_i, …) as one (1, Σ B_i · M_i, …)."""
    return torch.cat([each.reshape(1, -1, *each.shape[2:]) for each in tensors], dim=1)


def _at_least(where: str, window: int, least: int) -> None:
    if window < least:
        raise refuse(where, "a window without keys", f"a window of {window}", f"{least} or more", "enlarge it")
