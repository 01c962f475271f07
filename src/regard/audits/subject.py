"""Subject: a model under audit: how it is run, what in its inputs can be changed, and what it declares about itself."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..common.errors import first_line

__all__ = ["Mask", "Outputs", "Raised", "Subject", "floats", "running", "seeded"]

Outputs = dict[str, Any]  # tensors of floats by name


class Raised(Exception):
    """The model raised: its own error is the cause. The message is its name and first line."""

    def __init__(self, error: Exception):
        super().__init__(f"{type(error).__name__}: {first_line(error, 'nothing said')}")


@dataclass(frozen=True)
class Mask:
    """The input that says which positions of `of` count, and the two values with which it says so."""

    name: str
    of: str
    seen: bool | int = 1
    padding: bool | int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """A torch module with inputs of one batch entry, and what is known about both.

    given: the inputs, tensors by name, batch first; the model is called with them, by place where a name is a number,
    and with `fixed`, arguments that never change · sequence: the input whose positions (axis 1) come one after another,
    or None
    mask: how padding is told, or None · ids (N,): what other tokens are drawn from · pad: the token of padding
    causal: whether an output may depend on earlier positions only; None: nothing is declared · why: who declares it, in
    words · training: the modules that were in training mode before the audit, by name
    takes: the names of the arguments · whole: a model of transformers, which decodes over a cache and generates
    """

    model: Any
    name: str
    given: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    sequence: str | None = None
    mask: Mask | None = None
    ids: Any = None
    pad: int = 0
    causal: bool | None = None
    why: str = "neither the model nor the caller"
    takes: frozenset[str] = frozenset()
    whole: bool = False
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """How many positions the sequence has; 0 where there is none."""
        return 0 if self.sequence is None else self.given[self.sequence].shape[1]

    @functools.cached_property
    def outputs(self) -> Outputs:
        """What comes out of the inputs as they were given."""
        return self.run(self.given)

    @functools.cached_property
    def rounding(self) -> dict[str, float]:
        """How far each output moves when every product, norm and softmax is rounded another way."""
        return self._rounded(2)

    @functools.cached_property
    def rare_rounding(self) -> dict[str, float]:
        """The same over many runs: a choice between near equals (experts, keys) tips over only now and then."""
        return self._rounded(16)

    def _rounded(self, runs: int) -> dict[str, float]:
        from .rounding import measure  # loads torch, which the audit of a recorded run does without

        return measure(lambda: self.run(self.given), self.outputs, runs)

    def arguments(self, given: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """(what the model is called with by place, and by name)."""
        whole = {**self.fixed, **given}
        by_place = sorted((name for name in whole if name.isdigit()), key=int)
        return tuple(whole[name] for name in by_place), {
            name: part for name, part in whole.items() if not name.isdigit()
        }

    def call(self, given: Mapping[str, Any], seed: int = 0) -> Any:
        """What the model returns, without gradients; the same seed gives the same random numbers."""
        import torch

        by_place, named = self.arguments(given)
        with running(), torch.no_grad(), seeded(seed):
            return self.model(*by_place, **named)

    def run(self, given: Mapping[str, Any], seed: int = 0) -> Outputs:
        """Every tensor of floats that comes out, by its name."""
        return dict(floats(self.call(given, seed)))

    def rows(self, outputs: Outputs, length: int | None = None) -> Outputs:
        """The outputs that have a row for each position: those whose axis 1 is as long as the sequence."""
        length = self.length if length is None else length
        return {name: part for name, part in outputs.items() if part.ndim > 1 and part.shape[1] == length}

    def redrawn(self, part, turn: int = 0, like=None):
        """Other content of the same shape, different everywhere: tokens for tokens, numbers as large as in `like` for
        numbers.
        """
        import torch

        generator = torch.Generator().manual_seed(7919 * turn + 1)
        if part.is_floating_point():
            size = (part if like is None else like).detach().float().std(correction=0).clamp(min=1e-2).cpu()
            return (part.detach().float().cpu() + size * torch.randn(part.shape, generator=generator)).to(part)
        if self.ids is None:
            return part
        found = torch.randint(len(self.ids), part.shape, generator=generator)
        found = torch.where(self.ids[found] == part.cpu(), (found + 1) % len(self.ids), found)
        return self.ids[found].to(part)

    def lengthened(self, left: int = 0, right: int = 0, turn: int | None = None) -> dict[str, Any]:
        """The inputs with padding that the mask rules out, holding the padding token, or other content where a turn is
        given.
        """
        import torch

        assert self.mask is not None
        main = self.given[self.mask.of]
        made = dict(self.given)
        made.setdefault(
            self.mask.name, torch.full(main.shape[:2], self.mask.seen, dtype=_kind(self.mask.seen), device=main.device)
        )
        for name, part in made.items():
            if part.ndim < 2 or part.shape[:2] != main.shape[:2] or name.startswith("decoder_"):
                continue
            value = self.mask.padding if name == self.mask.name else self.pad if name == self.mask.of else 0
            ends = [
                torch.full((1, count, *part.shape[2:]), value, dtype=part.dtype, device=part.device)
                for count in (left, right)
            ]
            if name == self.mask.of and turn is not None:
                ends = [self.redrawn(end, turn, part) for end in ends]
            made[name] = torch.cat([ends[0], part, ends[1]], 1)
        return made


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Inside, somebody else's code runs, maybe in a way that it was not written for: any error of it is `Raised`."""
    try:
        yield
    except Exception as error:  # it may fail in any way, and is told as its own failure
        raise Raised(error) from error


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, the random numbers are those of the seed; the caller's are not used up."""
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def floats(found: Any, name: str = "output") -> Iterator[tuple[str, Any]]:
    """Every tensor of floats in what a model returns, by its name; caches and losses are none of it."""
    import torch

    if isinstance(found, torch.Tensor):
        if found.is_floating_point():
            yield name, found
    elif isinstance(found, Mapping):
        for key, part in found.items():
            if key not in ("past_key_values", "cache_params", "state") and not key.endswith("loss"):
                yield from floats(part, key if name == "output" else f"{name}.{key}")
    elif isinstance(found, list | tuple):
        for number, part in enumerate(found):
            yield from floats(part, f"{name}[{number}]")


def _kind(value: bool | int):
    import torch

    return torch.bool if isinstance(value, bool) else torch.long
