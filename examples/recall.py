"""Trains attention, a GRU and an LSTM of the same size on associative recall; only attention learns it in these steps.

Rows 0 … 31 are random pairs of a key and a value; rows 32 … 63 are the same keys in another order. The model predicts
the value of each of these keys.

    (k3 v7) (k1 v2) (k8 v5) …   k1 → v2   k8 → v5   …

Attention can attend to the matching key. A recurrent model must store all pairs in its state. All models have the same
embeddings, output layer, batches and recipe. The task is from Arora et al. 2023, "Zoology".

    python examples/recall.py
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

import torch
from torch import nn

import regard as rg
from regard.models.blocks import stack
from regard.models.config import BlockConfig
from regard.models.training.loop import Recipe, Training

PAIRS, KEYS, VALUES = 32, 64, 64
BATCH, WIDTH = 32, 64
NOTHING = VALUES  # the value input of the keys in the second half


def rows(number: int, count: int = BATCH) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys and values (count, 2 · PAIRS), the second half of the values NOTHING; and the answers (count, PAIRS)."""
    generator = torch.Generator().manual_seed(number)
    keys = torch.rand(count, KEYS, generator=generator).argsort(1)[:, :PAIRS]
    values = torch.randint(VALUES, (count, PAIRS), generator=generator)
    order = torch.rand(count, PAIRS, generator=generator).argsort(1)
    inputs = torch.cat([values, torch.full_like(values, NOTHING)], 1)
    return torch.cat([keys, keys.gather(1, order)], 1), inputs, values.gather(1, order)


class Recaller(nn.Module):
    """Embeddings, a middle part that mixes the rows (B, n, width), and an output layer for the second half."""

    def __init__(self, middle: nn.Module, width: int):
        super().__init__()
        self.keys, self.values = nn.Embedding(KEYS, width), nn.Embedding(VALUES + 1, width)
        self.middle = middle
        self.answer = nn.Linear(width, VALUES)

    def forward(self, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return self.answer(self.middle(self.keys(keys) + self.values(values))[:, PAIRS:])


class Attending(nn.Module):
    """Two causal transformer blocks without positions, which the task does not need."""

    def __init__(self, width: int):
        super().__init__()
        self.stack = stack(BlockConfig(d_model=width, layers=2, heads=2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stack(x, mask=rg.causal())


class Recurrent(nn.Module):
    """Two layers of a GRU or LSTM."""

    def __init__(self, kind: type[nn.RNNBase], width: int):
        super().__init__()
        self.state = kind(width, width, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.state(x)[0]


def size(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def as_large_as(model: nn.Module, kind: type[nn.RNNBase]) -> Recaller:
    """The smallest recurrent model with at least as many parameters."""
    candidates = (Recaller(Recurrent(kind, width), width) for width in range(16, 1000, 4))
    return next(candidate for candidate in candidates if size(candidate) >= size(model))


def loss(model: nn.Module, number: int) -> torch.Tensor:
    keys, values, answers = rows(number)
    return nn.functional.cross_entropy(model(keys, values).flatten(0, 1), answers.flatten())


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """The fraction of values predicted correctly, on rows that are not in the training data."""
    keys, values, answers = rows(1 << 40, 256)
    return (model.eval()(keys, values).argmax(-1) == answers).float().mean().item()


def main(*arguments: str) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args(arguments).steps
    torch.manual_seed(0)
    attention = Recaller(Attending(WIDTH), WIDTH)
    models = {"attention": attention, "GRU": as_large_as(attention, nn.GRU), "LSTM": as_large_as(attention, nn.LSTM)}
    print(f"{PAIRS} pairs of {KEYS} keys and {VALUES} values; accuracy of a random guess {1 / VALUES:.1%}\n")
    print("accuracy after" + "".join(f"{name:>11}" for name in models))
    recipe = Recipe(steps=steps, learning_rate=3e-3, warmup=steps // 10, weight_decay=0.01)
    trainings = [iter(Training(model, recipe, partial(loss, model))) for model in models.values()]
    seconds = dict.fromkeys(models, 0.0)
    accuracies: dict[str, float] = {}
    for step in range(1, steps + 1):
        for name, training in zip(models, trainings):
            began = time.monotonic()
            next(training)
            seconds[name] += time.monotonic() - began
        if step % max(1, steps // 6) == 0 or step == steps:
            accuracies = {name: accuracy(model) for name, model in models.items()}
            print(f"{step:>8} steps" + "".join(f"{value:>11.1%}" for value in accuracies.values()), flush=True)
    print("seconds       " + "".join(f"{spent:>11.1f}" for spent in seconds.values()))
    print("parameters    " + "".join(f"{size(model):>11,}" for model in models.values()))
    return accuracies


if __name__ == "__main__":
    main(*sys.argv[1:])
