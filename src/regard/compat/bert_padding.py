"""The functions of `flash_attn.bert_padding`: rows of padded batches packed into one axis, and back."""

from __future__ import annotations

import torch

__all__ = ["index_first_axis", "index_put_first_axis", "pad_input", "unpad_input"]


def index_first_axis(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """x[indices].

    Args:
        x: (N, …) rows.
        indices: (n,) which of them.

    Returns:
        (n, …), differentiable in x.

    Examples:
        >>> index_first_axis(torch.arange(4.0), torch.tensor([2, 0])).tolist()
        [2.0, 0.0]
    """
    return x[indices]


def index_put_first_axis(values: torch.Tensor, indices: torch.Tensor, first_axis_dim: int) -> torch.Tensor:
    """Rows at their places among `first_axis_dim` rows, whose others are 0.

    Args:
        values: (n, …) rows.
        indices: (n,) their places.
        first_axis_dim: the number of rows of the result.

    Returns:
        (first_axis_dim, …), differentiable in values.

    Examples:
        >>> index_put_first_axis(torch.ones(2), torch.tensor([2, 0]), 3).tolist()
        [1.0, 0.0, 1.0]
    """
    return values.new_zeros(first_axis_dim, *values.shape[1:]).index_put((indices,), values)


def unpad_input(
    hidden_states: torch.Tensor, attention_mask: torch.Tensor, unused_mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor]:
    """The rows of a padded batch without its padding.

    Args:
        hidden_states: (B, n, …).
        attention_mask: (B, n), true or 1 for rows that are used.
        unused_mask: (B, n), true or 1 for further rows that the result has, though no sequence counts them.

    Returns:
        The rows (total, …), their places in B · n, the starts of the sequences among them (B + 1,), the length of the
        longest sequence, and how many rows of each sequence are used (B,).

    Examples:
        >>> rows, places, starts, longest, used = unpad_input(torch.ones(2, 3, 8), torch.tensor([[1, 1, 0], [1, 0, 0]]))
        >>> rows.shape, places.tolist(), starts.tolist(), longest, used.tolist()
        (torch.Size([3, 8]), [0, 1, 3], [0, 2, 3], 2, [2, 1])
    """
    every = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths, used = (mask.sum(dim=-1, dtype=torch.int32) for mask in (every, attention_mask))
    indices = every.flatten().nonzero().flatten()
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    longest = max(lengths.tolist(), default=0)
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, starts, longest, used


def pad_input(hidden_states: torch.Tensor, indices: torch.Tensor, batch: int, seqlen: int) -> torch.Tensor:
    """A padded batch from packed rows; padding is 0.

    Args:
        hidden_states: (total, …) rows.
        indices: (total,) their places in batch · seqlen, as `unpad_input` returns them.
        batch: B.
        seqlen: n.

    Returns:
        (B, n, …), differentiable in hidden_states.

    Examples:
        >>> pad_input(torch.ones(3, 1), torch.tensor([0, 1, 3]), 2, 3)[..., 0].tolist()
        [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
