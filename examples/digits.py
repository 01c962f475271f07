"""Handwritten digits: a small vision transformer on the 1,797 pictures of 8 × 8 pixels that scikit-learn brings along.

A fifth of them is held out, evenly over the digits; the model is judged once, at the end. Half of the pictures it
learns from are shifted by a pixel, so that it learns shapes and not places.

    python examples/digits.py    # well below a minute on two cores; 97 % and more
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from regard.models import VisionConfig, VisionTransformer
from regard.models.training.loop import Recipe, Training
from regard.models.training.report import Report


def shifted(images: torch.Tensor, chance: torch.Generator) -> torch.Tensor:
    """Each image (B, 1, 8, 8) moved by −1, 0 or 1 pixels along both sides; what comes in is background."""
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1), value=-1.0)
    down, along = torch.randint(3, (2, len(images), 1), generator=chance) + torch.arange(8)
    return padded[torch.arange(len(images))[:, None, None], 0, down[:, :, None], along[:, None, :]][:, None]


def main(*arguments: str) -> Report:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1  # from 0 … 16 to −1 … 1
    labels = torch.tensor(digits.target)
    learned, held = map(
        torch.tensor, train_test_split(range(len(labels)), test_size=0.2, stratify=labels, random_state=asked.seed)
    )

    torch.manual_seed(asked.seed)
    model = VisionTransformer(
        VisionConfig(height=8, width=8, patch=2, channels=1, classes=10, d_model=64, layers=2, heads=4, dropout=0.1)
    )
    torch.nn.init.normal_(model.places.weight)  # where a patch lies says as much as its four pixels

    def loss(number: int) -> torch.Tensor:
        chance = torch.Generator().manual_seed(asked.seed * 1_000_003 + number)
        chosen = learned[torch.randint(len(learned), (64,), generator=chance)]
        moved = torch.rand(64, 1, 1, 1, generator=chance) < 0.5
        return model(torch.where(moved, shifted(images[chosen], chance), images[chosen]), labels[chosen])[1]

    print(
        f"{len(learned)} pictures to learn from, {len(held)} held out; "
        f"{sum(w.numel() for w in model.parameters()):,} weights"
    )
    began = time.monotonic()
    # So few pictures are soon known by heart; strong decay of the weights keeps to what they share.
    recipe = Recipe(steps=asked.steps, learning_rate=3e-3, warmup=asked.steps // 10, weight_decay=0.3, seed=asked.seed)
    for step in Training(model, recipe, loss):
        if step.number % 100 == 0:
            print(f"step {step.number}  loss {step.loss:.3f}  {time.monotonic() - began:.0f} s")

    with torch.no_grad():
        found = model.eval()(images[held]).argmax(1)
    report = Report.of(labels[held].tolist(), found.tolist(), [str(name) for name in digits.target_names], majority=0)
    print(f"\naccuracy on the pictures held out: {report.accuracy:.1%}")
    for place in (labels[held] != found).nonzero()[:, 0].tolist():
        print(f"  picture {held[place]}: a {labels[held[place]]} taken for a {found[place]}")
    return report


if __name__ == "__main__":
    main(*sys.argv[1:])
