"""Training: what was asked (`Recipe`), where it can be computed, and the loop that carries it out, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from ...common.errors import Reason, Refused, refuse

__all__ = ["Recipe", "Step", "Training", "check_device", "precision_of"]


@dataclass(frozen=True)
class Recipe:
    """What was asked of a training.

    The learning rate rises evenly over `warmup` steps to `learning_rate`, then falls along half a cosine to a tenth of
    it (Loshchilov & Hutter, 2017). `accumulate` batches make one step. Matrices decay (AdamW; Loshchilov & Hutter,
    2019); vectors do not.
    """

    steps: int = 1000
    batch: int = 16
    accumulate: int = 1
    learning_rate: float = 1e-3
    warmup: int = 100
    weight_decay: float = 0.1
    clip: float = 1.0
    precision: str = "float32"
    seed: int = 0
    eval_every: int = 100
    device: str = "cpu"

    def __post_init__(self) -> None:
        reasons = []
        for name, least in {"steps": 1, "batch": 1, "accumulate": 1, "eval_every": 1, "warmup": 0, "seed": 0}.items():
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                reasons.append(
                    Reason(
                        f"{name} is too small",
                        given=repr(getattr(self, name)),
                        expected=f"a whole number from {least} on",
                        fix=f"raise {name}",
                    )
                )
        for name in ("learning_rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                reasons.append(
                    Reason(
                        f"{name} cannot work",
                        given=repr(getattr(self, name)),
                        expected="a number above 0",
                        fix=f"choose another {name}",
                    )
                )
        if not 0 <= self.weight_decay < math.inf:
            reasons.append(
                Reason(
                    "weight_decay cannot work",
                    given=repr(self.weight_decay),
                    expected="0 or more",
                    fix="choose another weight_decay",
                )
            )
        if self.precision not in ("float32", "bfloat16"):
            reasons.append(
                Reason(
                    "no such precision",
                    given=repr(self.precision),
                    expected="'float32' or 'bfloat16'",
                    fix="choose one of them",
                )
            )
        if reasons:
            raise Refused("train", reasons)

    def rate(self, step: int) -> float:
        """The learning rate of step 0, 1, …

        >>> recipe = Recipe(steps=100, warmup=10, learning_rate=1.0)
        >>> [round(recipe.rate(step), 2) for step in (0, 9, 10, 55, 100)]
        [0.1, 1.0, 1.0, 0.55, 0.1]
        """
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = min(1.0, (step - self.warmup) / max(1, self.steps - self.warmup))
        return self.learning_rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))


@dataclass(frozen=True)
class Step:
    """What a step measured: the mean loss of its batches, the learning rate, and the norm of the gradient before it was
    clipped.
    """

    number: int
    loss: float
    rate: float
    norm: float


class Training:
    """A model, its optimizer, and how many steps they have taken.

    `loss(number)` is the loss of the model on batch 0, 1, …, whatever the batches are made of.

    >>> model = nn.Linear(1, 1)
    >>> x = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(steps=200, learning_rate=0.1)
    >>> training = Training(model, recipe, lambda number: (model(x) - 3 * x).square().mean())
    >>> losses = [step.loss for step in training]
    >>> losses[-1] < 0.001 < losses[0]
    True
    """

    def __init__(self, model: nn.Module, recipe: Recipe, loss: Callable[[int], torch.Tensor]):
        self.model, self.recipe, self.loss = model, recipe, loss
        self.done = 0
        weights = list(model.parameters())
        groups = [
            {"params": [weight for weight in weights if weight.dim() >= 2], "weight_decay": recipe.weight_decay},
            {"params": [weight for weight in weights if weight.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=recipe.learning_rate, betas=(0.9, 0.95)
        )
        torch.manual_seed(recipe.seed)  # what dropout draws

    def __iter__(self) -> Iterator[Step]:
        """Takes the steps that are left; after each, the model, the optimizer and `done` belong together."""
        recipe = self.recipe
        for step in range(self.done, recipe.steps):
            self.model.train()
            total = 0.0
            for part in range(recipe.accumulate):
                with precision_of(recipe):
                    loss = self.loss(step * recipe.accumulate + part)
                (loss / recipe.accumulate).backward()
                total += loss.item() / recipe.accumulate
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip).item()
            if not math.isfinite(total + norm):
                raise refuse(
                    "train",
                    "the training has diverged",
                    given=f"loss {total:.3g} and gradient {norm:.3g} at step {step + 1}",
                    expected="finite numbers",
                    fix="lower --learning-rate or raise --warmup; what was saved last is untouched",
                )
            for group in self.optimizer.param_groups:
                group["lr"] = recipe.rate(step)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.done = step + 1
            yield Step(self.done, total, recipe.rate(step), norm)

    def state(self) -> dict[str, torch.Tensor]:
        """Everything beside the weights that the next step depends on, as tensors: moments, and the states of random
        generators.
        """
        found = {"random.cpu": torch.get_rng_state()}
        if self.recipe.device.startswith("cuda"):
            found["random.cuda"] = torch.cuda.get_rng_state(self.recipe.device)
        for name, weight in self.model.named_parameters():
            for key, value in self.optimizer.state[weight].items():
                found[f"optimizer.{name}.{key}"] = value
        return found

    def restore(self, tensors: dict[str, torch.Tensor], done: int) -> None:
        """Goes back to where `state` was taken, after so many steps."""
        for name, weight in self.model.named_parameters():
            prefix = f"optimizer.{name}."
            kept = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            if kept:  # a weight that no loss has reached yet has no moments
                self.optimizer.state[weight] = {
                    key: value.clone() if key == "step" else value.to(weight.device, copy=True)
                    for key, value in kept.items()
                }
        torch.set_rng_state(tensors["random.cpu"])
        if "random.cuda" in tensors and self.recipe.device.startswith("cuda"):
            torch.cuda.set_rng_state(tensors["random.cuda"], self.recipe.device)
        self.done = done


def precision_of(recipe: Recipe) -> torch.autocast:
    """Products in bfloat16 where that was asked for; weights, sums and the optimizer stay in float32."""
    return torch.autocast(torch.device(recipe.device).type, torch.bfloat16, enabled=recipe.precision == "bfloat16")


def check_device(name: str, where: str) -> None:
    """Refuses a device that this machine does not have, and says which it has."""
    there = {"cpu": True, "cuda": torch.cuda.is_available()}
    if not there.get(name.split(":")[0], False):
        known = " or ".join(kind for kind, found in there.items() if found)
        raise refuse(where, "no such device", given=name, expected=known, fix=f"choose {known} with --device")
