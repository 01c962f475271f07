"""Vision transformer: image classification, with image patches as tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from ..common.errors import Reason, refuse
from ..common.text.keywords import known_arguments
from ..torch.positions import Learned
from . import blocks
from .config import BlockConfig


@known_arguments
@dataclass(frozen=True, kw_only=True)
class VisionConfig(BlockConfig):
    """Configuration of a `VisionTransformer`: the fields of `Config` from `d_model` to `epsilon`, and these.

    Args:
        height: height of an image, in pixels.
        width: width of an image, in pixels.
        patch: side of a square patch, in pixels; must divide `height` and `width`.
        channels: number of channels of a pixel.
        classes: number of classes, at least 2.

    Raises:
        Refused: values that are invalid or do not fit together, listing every problem.

    Examples:
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
        """The number of patches of an image."""
        return (self.height // self.patch) * (self.width // self.patch)

    def reasons(self) -> list[Reason]:
        """Validates the fields, as `BlockConfig.reasons`."""
        sizes = [*self._integers("height", "width", "patch", "channels")]
        if not sizes:
            sizes += self._divides("patch", self.patch, "height", self.height)
            sizes += self._divides("patch", self.patch, "width", self.width)
        return [*super().reasons(), *sizes, *self._integers("classes", least=2)]


def patches(images: torch.Tensor, size: int) -> torch.Tensor:
    """Splits images into square patches, in row-major order.

    Args:
        images: (B, C, height, width) images.
        size: side of a patch; must divide height and width.

    Returns:
        (B, n, C · size²): the pixels of each of the n patches.

    Examples:
        >>> patches(torch.arange(16.0).reshape(1, 1, 4, 4), 2)[0].int().tolist()
        [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    """
    return nn.functional.unfold(images, size, stride=size).mT


@known_arguments
class VisionTransformer(nn.Module):
    """Classifies images: logits = head(blocks([class token, patches · W] + positions)[0]).

    The loss is the mean cross-entropy over the images, in nats: −ln softmax(logits)[label].

    Args:
        config: the configuration.

    Source:
        Dosovitskiy et al. 2021.

    Examples:
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
        # The class token and the positions start at the scale of a sublayer's output.
        for weight in (self.whole, self.places.weight):
            nn.init.normal_(weight, std=(2 * config.layers) ** -0.5)
        nn.init.normal_(self.embed.weight, std=pixels**-0.5)
        nn.init.normal_(self.head.weight, std=0.02)
        for layer in (self.embed, self.head):
            nn.init.zeros_(layer.bias)

    def forward(self, images: torch.Tensor, targets: torch.Tensor | None = None) -> blocks.Output:
        """Classifies a batch of images.

        Args:
            images: (B, C, height, width) images.
            targets: (B,) labels. None: compute no loss.

        Returns:
            Logits (B, classes); with `targets`, (logits, loss).

        Raises:
            Refused: images of another size than that of the configuration.
        """
        return blocks.with_loss(self.head(self.rows(images)[:, 0]), targets)

    def rows(self, images: torch.Tensor) -> torch.Tensor:
        """Encodes images, for example as the memory of a `LanguageModel`.

        Args:
            images: (B, C, height, width) images.

        Returns:
            (B, 1 + n, d_model): the class token and the n patches.

        Raises:
            Refused: images of another size than that of the configuration.
        """
        config = self.config
        expected = (config.channels, config.height, config.width)
        if images.ndim != 4 or tuple(images.shape[1:]) != expected:
            raise refuse(
                "VisionTransformer",
                "the images do not fit the model",
                f"{tuple(images.shape)}",
                f"(B, {', '.join(map(str, expected))})",
                "pass images of this size as (batch, channels, height, width)",
            )
        x = self.embed(patches(images, config.patch)).to(self.whole.dtype)  # residual sums are not rounded by autocast
        x = torch.cat([self.whole.expand(len(x), 1, -1), x], dim=1)
        return self.stack(self.dropout(self.places.embed(x, torch.arange(x.shape[1], device=x.device))))
