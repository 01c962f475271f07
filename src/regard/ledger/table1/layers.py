"""The layers of Table 1, as small as they can be: each takes (n, d) and returns (n, d).

Projections are left out of the attentions, as Table 1 leaves them out; `Projections` is for the crossover.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Convolution", "Projections", "Recurrence", "RestrictedAttention", "SelfAttention"]


class SelfAttention(nn.Module):
    """softmax(x xᵀ / √d) x: every position sees all."""

    def forward(self, x: Tensor) -> Tensor:
        scores = x @ x.T / math.sqrt(x.shape[1])
        return scores.softmax(-1) @ x


class RestrictedAttention(nn.Module):
    """Attention of every position to itself and to the window − 1 positions before it."""

    def __init__(self, window: int):
        super().__init__()
        self.window = window

    def forward(self, x: Tensor) -> Tensor:
        n, d = x.shape
        keys = functional.pad(x, (0, 0, self.window - 1, 0)).unfold(0, self.window, 1)  # (n, d, window)
        scores = (x[:, None] @ keys / math.sqrt(d)).squeeze(1)
        position = torch.arange(n, device=x.device)[:, None] + torch.arange(1 - self.window, 1, device=x.device)
        weights = scores.masked_fill(position < 0, -math.inf).softmax(-1)
        return (weights[:, None] @ keys.mT).squeeze(1)


class Recurrence(nn.Module):
    """h_t = tanh(x_t U + h_{t−1} W): every position waits for the one before it."""

    def __init__(self, width: int):
        super().__init__()
        self.inward = nn.Parameter(torch.randn(width, width) / math.sqrt(width))
        self.onward = nn.Parameter(torch.empty(width, width))
        nn.init.orthogonal_(self.onward)  # so that a signal is still a number after a thousand steps

    def forward(self, x: Tensor) -> Tensor:
        state, states = x.new_zeros(1, x.shape[1]), []
        for inward in (x @ self.inward).split(1):
            state = torch.tanh(inward + state @ self.onward)
            states.append(state)
        return torch.cat(states)

    def steps(self, x: Tensor) -> Iterator[Callable[[Tensor], Tensor]]:
        """The steps one by one, each for all positions at once: the first takes x, each further one what the one before
        it returned. A signal moves on by one position with each; after n the states are those of `forward`.
        """
        yield lambda x: torch.tanh(x @ self.inward)
        inward = x @ self.inward
        while True:
            yield lambda states: torch.tanh(inward + functional.pad(states[:-1], (0, 0, 1, 0)) @ self.onward)


class Convolution(nn.Module):
    """A product for each of `taps` positions: itself and those `dilation`, 2 · dilation, … before it."""

    def __init__(self, width: int, taps: int, dilation: int = 1):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width, taps) / math.sqrt(width * taps))
        self.dilation = dilation

    def forward(self, x: Tensor) -> Tensor:
        before = self.dilation * (self.weight.shape[2] - 1)
        padded = functional.pad(x.T, (before, 0))[None]
        return torch.tanh(functional.conv1d(padded, self.weight, dilation=self.dilation)[0].T)


class Projections(nn.Module):
    """The four linear maps of a layer of attention: to queries, keys and values, and of the output."""

    def __init__(self, width: int):
        super().__init__()
        self.maps = nn.ParameterList(torch.randn(width, width) / math.sqrt(width) for _ in range(4))

    def forward(self, x: Tensor) -> list[Tensor]:
        return [x @ each for each in self.maps]
