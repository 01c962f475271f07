"""Recall what stood behind a key: attention learns it, a GRU and an LSTM of the same size do not in the same steps.

Rows 0 … 31 are pairs of a key and its value, both drawn anew; rows 32 … 63 are the same keys in another order. Behind
each, what was its value?

    (k3 v7) (k1 v2) (k8 v5) …   k1 → v2   k8 → v5   …

Whoever attends finds the key and reads the value beside it. Whoever has only a state must have kept every pair in it.
(The task: associative recall, as in Arora et al. 2023, "Zoology".) Everything but the middle is the same: embeddings,
answers, batches, recipe.

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
NOTHING = VALUES  # stands beside a key that asks


def rows(number: int, count: int = BATCH) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys and values (count, 2 · PAIRS), in the second half NOTHING; and the answers (count, PAIRS)."""
    chance = torch.Generator().manual_seed(number)
    keys = torch.rand(count, KEYS, generator=chance).argsort(1)[:, :PAIRS]
    values = torch.randint(VALUES, (count, PAIRS), generator=chance)
    again = torch.rand(count, PAIRS, generator=chance).argsort(1)
    beside = torch.cat([values, torch.full_like(values, NOTHING)], 1)
    return torch.cat([keys, keys.gather(1, again)], 1), beside, values.gather(1, again)


class Recaller(nn.Module):
    """Embeddings, a middle that mixes the rows (B, n, width), and an answer for each row that asks."""

    def __init__(self, middle: nn.Module, width: int):
        super().__init__()
        self.keys, self.values = nn.Embedding(KEYS, width), nn.Embedding(VALUES + 1, width)
        self.middle = middle
        self.answer = nn.Linear(width, VALUES)

    def forward(self, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return self.answer(self.middle(self.keys(keys) + self.values(values))[:, PAIRS:])


class Attending(nn.Module):
    """Two blocks of a transformer; a row sees those before it. No positions: what counts is the key, not its place."""

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
    """The narrowest recurrent model that has at least as many weights."""
    made = (Recaller(Recurrent(kind, width), width) for width in range(16, 1000, 4))
    return next(one for one in made if size(one) >= size(model))


def loss(model: nn.Module, number: int) -> torch.Tensor:
    keys, values, answers = rows(number)
    return nn.functional.cross_entropy(model(keys, values).flatten(0, 1), answers.flatten())


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """The share of keys whose value is answered, in rows that were not trained on."""
    keys, values, answers = rows(1 << 40, 256)
    return (model.eval()(keys, values).argmax(-1) == answers).float().mean().item()


def main(*arguments: str) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args(arguments).steps
    torch.manual_seed(0)
    attention = Recaller(Attending(WIDTH), WIDTH)
    models = {"attention": attention, "GRU": as_large_as(attention, nn.GRU), "LSTM": as_large_as(attention, nn.LSTM)}
    print(f"{PAIRS} pairs of {KEYS} keys and {VALUES} values; a guess is right in {1 / VALUES:.1%}\n")
    print("accuracy after" + "".join(f"{name:>11}" for name in models))
    recipe = Recipe(steps=steps, learning_rate=3e-3, warmup=steps // 10, weight_decay=0.01)
    trainings = [iter(Training(model, recipe, partial(loss, model))) for model in models.values()]
    seconds = dict.fromkeys(models, 0.0)
    found: dict[str, float] = {}
    for step in range(1, steps + 1):
        for name, training in zip(models, trainings):
            began = time.monotonic()
            next(training)
            seconds[name] += time.monotonic() - began
        if step % max(1, steps // 6) == 0 or step == steps:
            found = {name: accuracy(model) for name, model in models.items()}
            print(f"{step:>8} steps" + "".join(f"{share:>11.1%}" for share in found.values()), flush=True)
    print("seconds       " + "".join(f"{spent:>11.1f}" for spent in seconds.values()))
    print("weights       " + "".join(f"{size(model):>11,}" for model in models.values()))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
