"""Trains a small vision transformer on handwritten digits: the 1,797 images of 8 × 8 pixels from scikit-learn.

A fifth of the images is held out, stratified by digit, and evaluated once, at the end. Half of the training images are
shifted by up to one pixel, so that the model learns shapes instead of positions.

    python examples/digits.py    # less than a minute on two cores; accuracy of 97 % or more
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from regard.models import VisionConfig, VisionTransformer
from regard.models.training.classification import Report
from regard.models.training.loop import Recipe, Training


def shifted(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Shifts each image (B, 1, 8, 8) by −1, 0 or 1 pixels in both directions and fills with background."""
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1), value=-1.0)
    rows, columns = torch.randint(3, (2, len(images), 1), generator=generator) + torch.arange(8)
    return padded[torch.arange(len(images))[:, None, None], 0, rows[:, :, None], columns[:, None, :]][:, None]


def main(*arguments: str) -> Report:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1  # from 0 … 16 to −1 … 1
    labels = torch.tensor(digits.target)
    training, test = map(
        torch.tensor, train_test_split(range(len(labels)), test_size=0.2, stratify=labels, random_state=options.seed)
    )

    torch.manual_seed(options.seed)
    model = VisionTransformer(
        VisionConfig(height=8, width=8, patch=2, channels=1, classes=10, d_model=64, layers=2, heads=4, dropout=0.1)
    )
    torch.nn.init.normal_(model.places.weight)  # the position of a patch is as informative as its four pixels

    def loss(number: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(options.seed * 1_000_003 + number)
        batch = training[torch.randint(len(training), (64,), generator=generator)]
        moved = torch.rand(64, 1, 1, 1, generator=generator) < 0.5
        return model(torch.where(moved, shifted(images[batch], generator), images[batch]), labels[batch])[1]

    print(
        f"{len(training)} training images, {len(test)} held-out images, "
        f"{sum(w.numel() for w in model.parameters()):,} parameters"
    )
    began = time.monotonic()
    # Strong weight decay, because the model can memorize so few images.
    steps = options.steps
    recipe = Recipe(steps=steps, learning_rate=3e-3, warmup=steps // 10, weight_decay=0.3, seed=options.seed)
    for step in Training(model, recipe, loss):
        if step.number % 100 == 0:
            print(f"step {step.number}  loss {step.loss:.3f}  {time.monotonic() - began:.0f} s")

    with torch.no_grad():
        predicted = model.eval()(images[test]).argmax(1)
    names = [str(name) for name in digits.target_names]
    report = Report.of(labels[test].tolist(), predicted.tolist(), names, majority=0)
    print(f"\naccuracy on the held-out images: {report.accuracy:.1%}")
    for index in (labels[test] != predicted).nonzero()[:, 0].tolist():
        print(f"  image {test[index]}: a {labels[test[index]]} predicted as {predicted[index]}")
    return report


if __name__ == "__main__":
    main(*sys.argv[1:])
