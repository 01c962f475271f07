"""A picture to a label: its patches are the tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from ..common.errors import Reason, refuse
from ..torch.positions import Learned
from . import blocks
from .config import BlockConfig

__all__ = ["VisionConfig", "VisionTransformer", "patches"]


@dataclass(frozen=True, kw_only=True)
class VisionConfig(BlockConfig):
    """What `BlockConfig` says, and pictures. height, width: of a picture; patch: side of a square patch; channels: of a
    pixel; classes: labels, at least 2.

    >>> VisionConfig(height=8, width=8, patch=2, channels=1, classes=10).patches
    16
    """

    height: int
    width: int
    patch: int
    channels: int = 3
    classes: int

    @property
    def patches(self) -> int:
        """How many patches a picture has."""
        return (self.height // self.patch) * (self.width // self.patch)

    def reasons(self) -> list[Reason]:
        found = super().reasons()
        before = len(found)
        self._whole(found, "height", "width", "patch", "channels")
        if len(found) == before:
            self._divides(found, "patch", self.patch, "height", self.height)
            self._divides(found, "patch", self.patch, "width", self.width)
        self._whole(found, "classes", least=2)
        return found


def patches(images: torch.Tensor, size: int) -> torch.Tensor:
    """(B, C, height, width) -> (B, n, C · size²): the pixels of each patch in a row, patches from left to right, then
    down.

    >>> patches(torch.arange(16).reshape(1, 1, 4, 4), 2)[0].tolist()
    [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    """
    rows = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))  # B C down size along size
    return rows.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class VisionTransformer(nn.Module):
    """logits = head(blocks([class token, patches · W] + positions)[0]),  loss = mean of −ln softmax(logits)[label]

    Source: Dosovitskiy et al. 2021.

    >>> config = VisionConfig(height=8, width=8, patch=2, channels=1, classes=10, d_model=32, layers=1)
    >>> VisionTransformer(config)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(self, config: VisionConfig):
        super().__init__()
        self.config = config
        pixels = config.channels * config.patch**2
        self.embed = nn.Linear(pixels, config.d_model)
        self.whole = nn.Parameter(torch.empty(config.d_model))
        self.places = Learned(1 + config.patches, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.stack = blocks.stack(config)
        self.head = nn.Linear(config.d_model, config.classes)
        # The whole and the places begin as large as what a part adds.
        for weight in (self.whole, self.places.weight):
            nn.init.normal_(weight, std=(2 * config.layers) ** -0.5)
        nn.init.normal_(self.embed.weight, std=pixels**-0.5)
        nn.init.normal_(self.head.weight, std=0.02)
        for layer in (self.embed, self.head):
            nn.init.zeros_(layer.bias)

    def forward(self, images: torch.Tensor, targets: torch.Tensor | None = None):
        """images (B, C, height, width) -> logits (B, classes); with targets (B,), (logits, loss)."""
        logits = self.head(self.rows(images)[:, 0])
        return logits if targets is None else (logits, nn.functional.cross_entropy(logits.float(), targets))

    def rows(self, images: torch.Tensor) -> torch.Tensor:
        """The class token and the patches, (B, 1 + n, d_model): a memory for a model of another sense."""
        config = self.config
        wanted = (config.channels, config.height, config.width)
        if images.ndim != 4 or tuple(images.shape[1:]) != wanted:
            raise refuse(
                "VisionTransformer",
                "the images do not fit the model",
                given=f"{tuple(images.shape)}",
                expected=f"(B, {', '.join(map(str, wanted))})",
                fix="the layout is (batch, channels, height, width)",
            )
        x = self.embed(patches(images, config.patch)).to(
            self.whole.dtype
        )  # under autocast, sums of parts keep their digits
        x = torch.cat([self.whole.expand(len(x), 1, -1), x], dim=1)
        return self.stack(self.dropout(self.places.embed(x, torch.arange(x.shape[1], device=x.device))))
