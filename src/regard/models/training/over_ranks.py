"""What the ranks of a training do together: agree, add gradients, and divide each batch."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import torch
from torch import nn

from ...common.arrays import bytes_of
from ...common.errors import Reason, refuse_all
from ...language.checks.arguments import Arguments
from ...parallel.context.attention import over
from ...parallel.exchange import Transport, agreed, gather
from ...parallel.place import place
from ...parallel.placement import Placement
from ...parallel.sequence import add
from ...parallel.work import PAGE
from ...torch.functional import attention, in_autocast
from ...torch.layers.attention import Attention
from ..language_model import LanguageModel
from .loop import Settings


class Rows:
    """Data parallel: each rank computes some sequences of a batch (B, n, …)."""

    positions = None

    def __init__(self, transport: Transport):
        self.rank, self.ranks = transport.rank, transport.ranks
        self.batch, self.part = 0, slice(0)

    def begin(self, tokens: torch.Tensor) -> None:
        """Notes the batch that is computed next: all tokens (B, n)."""
        self.batch = len(tokens)
        first, last = (self.batch * rank // self.ranks for rank in (self.rank, self.rank + 1))
        self.part = slice(first, last)

    def own(self, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's part of a tensor (B, n, …): some entries of the batch."""
        return tensor[self.part]

    def whole(self, shape: torch.Size) -> tuple[int, ...]:
        """The shape of a tensor of which this rank has a part of this shape."""
        return self.batch, *shape[1:]

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **rules: Any) -> torch.Tensor:
        """Attention of the sequences of this rank; dropout counts them from the first of the batch."""
        return attention(q, k, v, batch_start=self.part.start, **rules)


class Tokens:
    """Context parallel: each rank computes some tokens of every sequence."""

    def __init__(self, transport: Transport, placement: Placement):
        self.transport, self.placement = transport, placement
        self.positions = torch.from_numpy(placement.positions(transport.rank))

    def begin(self, tokens: torch.Tensor) -> None:
        """Does nothing: every batch is divided alike."""

    def own(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tokens of this rank."""
        return tensor[:, self.positions]

    def whole(self, shape: torch.Size) -> tuple[int, ...]:
        """The shape with all tokens."""
        return shape[0], self.placement.sizes.tokens, *shape[2:]

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **rules: Any) -> torch.Tensor:
        """Attention of the whole sequence, for the tokens of this rank."""
        if "seed" in rules:
            rules["seed"] = int(rules["seed"])
        return over(self.transport, in_autocast(q, k, v), self.placement, Arguments(**rules))[0]


Division: TypeAlias = Rows | Tokens


class _Dropout(nn.Module):
    """Dropout of a part of a batch: every rank draws for the whole batch, from the same state, and keeps its part. So
    the result, and the state afterwards, do not depend on the number of ranks.
    """

    def __init__(self, rate: float, division: Division):
        super().__init__()
        self.rate, self.division = rate, division

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drops numbers of x (B, n, …) in training."""
        if not self.training or not self.rate:
            return x
        factors = nn.functional.dropout(x.new_ones(self.division.whole(x.shape)), self.rate)
        return x * self.division.own(factors)


T = TypeVar("T")


class Alone:
    """A training in one process, in which nothing is divided; the base class of `Ranks`.

    first: whether this process prints, and writes files. many: whether there are several.
    """

    first, many = True, False

    def check(self, settings: Settings) -> None:
        """Refuses settings with which the ranks cannot train."""

    def divide(self, model: LanguageModel, settings: Settings) -> None:
        """Lets each rank compute its part of the model's batches, in place."""

    def agreed(self, step: str, make: Callable[[], T], terms: Callable[[T], dict[str, str]] = lambda made: {}) -> T:
        """What `make` returns, once it has returned on every rank; a refusal on one rank is raised on all.

        Args:
            step: what the ranks do, in words, for errors.
            make: what each rank does; it does not communicate.
            terms: what has to be equal on all ranks, by name, given what `make` returned.

        Returns:
            What `make` returned on this rank.
        """
        return make()

    def once(self, step: str, make: Callable[[], object]) -> None:
        """Does what only the first rank does; a refusal is raised on all."""
        self.agreed(step, make if self.first else lambda: None)

    def any(self, flag: bool) -> bool:
        """Whether a flag is set on some rank."""
        return flag

    def add(self, tensors: list[torch.Tensor]) -> None:
        """Replaces tensors by their sums over all ranks, in the order of ranks."""

    def loss(self, model: LanguageModel, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """This rank's part of the mean loss of a batch; the sum over all ranks is the loss.

        Args:
            model: the model.
            tokens: (B, n) the tokens of the whole batch.
            targets: (B, n) the tokens to predict.

        Returns:
            A scalar, in nats per token of the whole batch.
        """
        return model(tokens, targets)[1]


class Ranks(Alone):
    """A training in several processes.

    Args:
        transport: how the ranks send bytes.
        divide: "batch": each rank computes some sequences of each batch (data parallel). "tokens": each rank computes
            some tokens of every sequence (context parallel).

    """

    many = True

    def __init__(self, transport: Transport, divide: str = "batch"):
        self.transport, self.divided, self.first = transport, divide, transport.rank == 0
        self.division: Division = Rows(transport)

    def check(self, settings: Settings) -> None:
        """Refuses a device other than the CPU, and batches or sequences that are too small to be divided."""
        ranks, recipe, reasons = self.transport.ranks, settings.recipe, []
        if recipe.device != "cpu":
            reasons.append(
                Reason(
                    "several ranks train on the CPU only",
                    f"--device {recipe.device}, {ranks} ranks",
                    "--device cpu",
                    "choose it, or train with one rank",
                )
            )
        if self.divided == "batch" and recipe.batch < ranks:
            reasons.append(
                Reason(
                    "some ranks have no sequence of a batch",
                    f"--batch {recipe.batch}, {ranks} ranks",
                    "a sequence for each rank",
                    f"use {recipe.batch} ranks or fewer, or --divide tokens",
                )
            )
        if self.divided == "tokens" and settings.context < PAGE * ranks:
            reasons.append(
                Reason(
                    "some ranks have no tokens of a sequence",
                    f"--context {settings.context}, {ranks} ranks",
                    f"{PAGE} tokens or more for each rank",
                    "use fewer ranks, or --divide batch",
                )
            )
        refuse_all("train", reasons)

    def divide(self, model: LanguageModel, settings: Settings) -> None:
        if self.divided == "tokens":
            config = model.config
            found = place(
                settings.context,
                ranks=self.transport.ranks,
                mask=model.mask,
                heads=config.heads,
                key_heads=config.kv_heads or config.heads,
                depth=config.d_model // config.heads,
                dtype=settings.recipe.precision,
            )
            self.division = Tokens(self.transport, found)
        for module in list(model.modules()):
            if isinstance(module, Attention):
                module.attend = self.division.attention
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Dropout):
                    setattr(module, name, _Dropout(child.p, self.division))

    def agreed(self, step: str, make: Callable[[], T], terms: Callable[[T], dict[str, str]] = lambda made: {}) -> T:
        def prepare() -> tuple[T, dict[str, str]]:
            made = make()
            return made, terms(made)

        return agreed(self.transport, f"train: {step}", prepare)

    def any(self, flag: bool) -> bool:
        return b"\1" in gather(self.transport, "train: end of a step", bytes([flag]))

    def add(self, tensors: list[torch.Tensor]) -> None:
        add(self.transport, tensors, "train: gradients")

    def loss(self, model: LanguageModel, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.division.begin(tokens)
        mine = self.division.own(tokens)
        if not len(mine):  # the last batch of an evaluation has fewer sequences than there are ranks
            return torch.zeros(())
        # Attention over ranks knows where rows are; distances need no positions.
        distances = model.config.positions == "alibi"
        logits = model(mine, positions=None if distances else self.division.positions)
        wanted = self.division.own(targets)
        total = nn.functional.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten(), reduction="sum")
        return total / targets.numel()


def checksum(model: nn.Module) -> str:
    """A checksum of all weights."""
    found = 0
    for weight in model.parameters():
        found = zlib.crc32(bytes_of(weight), found)
    return f"{found:08x}"
