"""The training loop: the recipe (hyperparameters), the learning rate schedule, and the optimizer steps.

The settings of a training are the sizes of its vocabulary and model, and its recipe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import nn

from ...common.errors import Reason, refuse, refuse_all
from ..config import Config
from ..data.vocabulary import Bytes, Pairs, Vocabulary
from ..language_model import LanguageModel


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a training.

    The learning rate increases linearly over `warmup` steps and then follows a cosine down to a tenth of its maximum.
    The optimizer is AdamW with β = (0.9, 0.95).

    Args:
        steps: number of optimizer steps.
        batch: number of windows or texts per batch.
        accumulate: number of batches per step, whose gradients are averaged.
        learning_rate: the maximum learning rate.
        warmup: number of steps over which the learning rate increases.
        weight_decay: weight decay of matrices; vectors are not decayed.
        clip: maximum norm of the gradient.
        precision: "float32", or "bfloat16" for matrix products in bfloat16 (torch.autocast); weights stay in float32.
        seed: seed of the weights, the order of the data, and dropout.
        eval_every: number of steps between evaluations.
        device: "cpu" or "cuda".

    Raises:
        Refused: values out of range, listing every problem.

    Source:
        Loshchilov and Hutter 2017 (cosine schedule); Loshchilov and Hutter 2019 (AdamW).

    Examples:
        >>> Recipe(steps=100, warmup=10).rate(10)
        0.001
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
                        repr(getattr(self, name)),
                        f"an integer, {least} or more",
                        f"increase {name}",
                    )
                )
        for name in ("learning_rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                reasons.append(
                    Reason(
                        f"{name} is out of range",
                        repr(getattr(self, name)),
                        "a number above 0",
                        f"choose another {name}",
                    )
                )
        if not 0 <= self.weight_decay < math.inf:
            reasons.append(
                Reason(
                    "weight_decay is out of range", repr(self.weight_decay), "0 or more", "choose another weight_decay"
                )
            )
        if self.precision not in ("float32", "bfloat16"):
            reasons.append(
                Reason("unknown precision", repr(self.precision), "'float32' or 'bfloat16'", "choose one of them")
            )
        refuse_all("train", reasons)

    def rate(self, step: int) -> float:
        """Computes the learning rate of a step.

        Args:
            step: the step, from 0.

        Returns:
            The learning rate.

        Examples:
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
    """Measurements of an optimizer step.

    Args:
        number: the step, from 1.
        loss: the mean loss of its batches.
        rate: the learning rate.
        norm: the norm of the gradient before clipping.

    Examples:
        >>> Step(1, loss=2.5, rate=1e-3, norm=0.7).loss
        2.5
    """

    number: int
    loss: float
    rate: float
    norm: float


class Training:
    """Trains a model: iterating over it performs the remaining optimizer steps.

    The attribute `done` is the number of completed steps.

    Args:
        model: the model to train, in place.
        recipe: the hyperparameters.
        loss: function from a batch number, from 0, to the loss of the model on that batch.
        add: function that replaces tensors by their sums over several processes, each of which computes a part of the
            loss. None: this process computes all of it.

    Examples:
        >>> model = nn.Linear(1, 1)
        >>> x = torch.linspace(-1, 1, 8)[:, None]
        >>> recipe = Recipe(steps=200, learning_rate=0.1)
        >>> training = Training(model, recipe, lambda number: (model(x) - 3 * x).square().mean())
        >>> losses = [step.loss for step in training]
        >>> losses[-1] < 0.001 < losses[0]
        True
    """

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        loss: Callable[[int], torch.Tensor],
        add: Callable[[list[torch.Tensor]], None] | None = None,
    ):
        self.model, self.recipe, self.loss, self.add = model, recipe, loss, add
        self.done = 0
        weights = list(model.parameters())
        groups = [
            {"params": [weight for weight in weights if weight.dim() >= 2], "weight_decay": recipe.weight_decay},
            {"params": [weight for weight in weights if weight.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=recipe.learning_rate, betas=(0.9, 0.95)
        )
        torch.manual_seed(recipe.seed)  # for dropout

    def __iter__(self) -> Iterator[Step]:
        """Performs the remaining steps. After each, model, optimizer and `done` are consistent."""
        recipe = self.recipe
        for step in range(self.done, recipe.steps):
            self.model.train()
            total = 0.0
            for part in range(recipe.accumulate):
                with precision_of(recipe):
                    loss = self.loss(step * recipe.accumulate + part)
                (loss / recipe.accumulate).backward()
                total += loss.item() / recipe.accumulate
            if self.add is not None:
                whole = torch.tensor(total, dtype=torch.float64)
                self.add([whole, *(weight.grad for weight in self.model.parameters() if weight.grad is not None)])
                total = whole.item()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip).item()
            if not math.isfinite(total + norm):
                raise refuse(
                    "train",
                    "the training has diverged",
                    f"loss {total:.3g} and gradient {norm:.3g} at step {step + 1}",
                    "finite numbers",
                    "decrease --learning-rate or increase --warmup; the last checkpoint is unchanged",
                )
            for group in self.optimizer.param_groups:
                group["lr"] = recipe.rate(step)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.done = step + 1
            yield Step(self.done, total, recipe.rate(step), norm)

    def state(self) -> dict[str, torch.Tensor]:
        """Returns the state of the training without the weights: optimizer moments and random generator states.

        Returns:
            Tensors by name, for `restore`.
        """
        state = {"random.cpu": torch.get_rng_state()}
        if self.recipe.device.startswith("cuda"):
            state["random.cuda"] = torch.cuda.get_rng_state(self.recipe.device)
        for name, weight in self.model.named_parameters():
            for key, value in self.optimizer.state[weight].items():
                state[f"optimizer.{name}.{key}"] = value
        return state

    def restore(self, tensors: dict[str, torch.Tensor], done: int) -> None:
        """Restores a state.

        Args:
            tensors: the result of `state`; other tensors are ignored.
            done: number of steps completed in that state.
        """
        for name, weight in self.model.named_parameters():
            prefix = f"optimizer.{name}."
            moments = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            if moments:  # weights that have not received a gradient have none
                self.optimizer.state[weight] = {
                    key: value.clone() if key == "step" else value.to(weight.device, copy=True)
                    for key, value in moments.items()
                }
        torch.set_rng_state(tensors["random.cpu"])
        if "random.cuda" in tensors and self.recipe.device.startswith("cuda"):
            torch.cuda.set_rng_state(tensors["random.cuda"], self.recipe.device)
        self.done = done


def precision_of(recipe: Recipe) -> torch.autocast:
    """Creates the autocast context of a recipe.

    Args:
        recipe: the recipe.

    Returns:
        A context in which matrix products are computed in bfloat16 if `recipe.precision` is "bfloat16"; weights, sums
        and the optimizer stay in float32.

    Examples:
        >>> with precision_of(Recipe(precision="bfloat16")):
        ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
        torch.bfloat16
    """
    return torch.autocast(torch.device(recipe.device).type, torch.bfloat16, enabled=recipe.precision == "bfloat16")


def check_device(name: str, where: str) -> None:
    """Checks that a device is available.

    Args:
        name: the device, such as "cpu" or "cuda:0".
        where: the name that the error message starts with.

    Raises:
        Refused: the device is not available.
    """
    available = {"cpu": True, "cuda": torch.cuda.is_available()}
    if not available.get(name.split(":")[0], False):
        known = " or ".join(kind for kind, present in available.items() if present)
        raise refuse(where, "the device is not available", name, known, f"choose {known} with --device")


@dataclass(frozen=True)
class Settings:
    """Settings of a training: the vocabulary, the model and the recipe.

    Args:
        tokenizer: "bytes" or "bpe".
        vocabulary: maximum number of tokens of a "bpe" vocabulary.
        layers: number of blocks.
        width: model width.
        heads: number of query heads.
        context: number of tokens per window or text.
        dropout: dropout probability.
        recipe: the hyperparameters of the training.

    Raises:
        Refused: invalid values, listing every problem.

    Examples:
        >>> Settings().changed({"layers": 2, "steps": 500}).recipe.steps
        500
    """

    where: ClassVar[str] = "train"
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"tokenizer": ("bytes", "bpe")}

    tokenizer: str = "bytes"
    vocabulary: int = 2048
    layers: int = 4
    width: int = 256
    heads: int = 4
    context: int = 256
    dropout: float = 0.0
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        refuse_all(
            self.where,
            [
                Reason(
                    f"unknown {name}", repr(getattr(self, name)), " or ".join(map(repr, known)), "choose one of them"
                )
                for name, known in self.choices.items()
                if getattr(self, name) not in known
            ],
        )

    def changed(self, wishes: Mapping[str, Any]) -> Self:
        """Returns a copy with other values; fields of the recipe are named directly."""
        own = {name: value for name, value in wishes.items() if name in {field.name for field in fields(self)}}
        rest = {name: value for name, value in wishes.items() if name not in own}
        return replace(self, **own, recipe=replace(self.recipe, **rest))

    def flat(self) -> dict[str, Any]:
        """Returns all settings as one dict, including the fields of the recipe."""
        own = asdict(self)
        return own | own.pop("recipe")

    def make_vocabulary(self, texts: Iterable[str]) -> Vocabulary:
        """Creates the vocabulary, which byte pairs learn from the texts."""
        return Bytes() if self.tokenizer == "bytes" else Pairs.train(texts, self.vocabulary)

    def sizes(self, *more: str) -> dict[str, Any]:
        """Returns the fields of a model's configuration. more: the names of other settings that are among them."""
        same = ("layers", "heads", "context", "dropout", *more)
        return {"d_model": self.width, **{name: getattr(self, name) for name in same}}


@dataclass(frozen=True)
class TextSettings(Settings):
    """Settings of a language model and its training: those of `Settings`, and these.

    Args:
        style: "llama" (rotary positions, RMSNorm, SwiGLU) or "gpt" (learned positions, LayerNorm, GELU).
        kv_heads: number of key/value heads. None: as many as `heads`.
        window: sliding window of the attention. None: no limit.
    """

    choices = Settings.choices | {"style": ("llama", "gpt")}

    style: str = "llama"
    kv_heads: int | None = None
    window: int | None = None

    def model(self, vocabulary: Vocabulary) -> LanguageModel:
        """Creates a model with weights initialized from the seed."""
        make = {"llama": Config.llama, "gpt": Config.gpt}[self.style]
        torch.manual_seed(self.recipe.seed)
        return LanguageModel(make(vocabulary=vocabulary.size, **self.sizes("kv_heads", "window")))
