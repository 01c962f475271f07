"""Subject: a model to be audited, with its inputs, how to run it and change them, and what it declares."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..common.errors import first_line

__all__ = ["Outputs", "PaddingMask", "Raised", "Subject", "floats", "raising", "seeded"]

Outputs = dict[str, Any]  # floating-point tensors by name


class Raised(Exception):
    """The model raised the error that is the cause of this one. The message is its type and first line."""

    def __init__(self, error: Exception):
        super().__init__(f"{type(error).__name__}: {first_line(error, 'without a message')}")


@dataclass(frozen=True)
class PaddingMask:
    """The input `name`, which marks each position of the input `of` as a real token or as padding, and its two
    values.
    """

    name: str
    of: str
    real: bool | int = 1
    padding: bool | int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """A torch module with inputs of one batch entry, and what is known about both.

    inputs: tensors by name, batch first. The model is called with them, and with the constant arguments `fixed`;
    names that are numbers are positional arguments · sequence: name of the input whose axis 1 is the positions, or
    None · mask: the padding mask, or None · ids (N,): the tokens that replacements are drawn from · pad: the padding
    token · causal: whether each output may depend on earlier positions only; None: unknown · causal_source: what
    declares that, in words · training: the modules that were in training mode before the audit, by name · parameters:
    the names of the arguments of forward · is_transformers: whether this is a transformers model, which may have a
    key/value cache and `generate`
    """

    model: Any
    name: str
    inputs: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    sequence: str | None = None
    mask: PaddingMask | None = None
    ids: Any = None
    pad: int = 0
    causal: bool | None = None
    causal_source: str = "neither the model nor the caller declares it"
    parameters: frozenset[str] = frozenset()
    is_transformers: bool = False
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """The number of positions of the sequence; 0 without one."""
        return 0 if self.sequence is None else self.inputs[self.sequence].shape[1]

    @functools.cached_property
    def outputs(self) -> Outputs:
        """The outputs for the unchanged inputs."""
        return self.run(self.inputs)

    @functools.cached_property
    def rounding(self) -> dict[str, float]:
        """The largest change of each output under perturbed rounding, over 2 runs."""
        return self._rounding(2)

    @functools.cached_property
    def rare_rounding(self) -> dict[str, float]:
        """The same over 16 runs: a choice between nearly equal values (experts, keys) changes in few of them."""
        return self._rounding(16)

    def _rounding(self, runs: int) -> dict[str, float]:
        from .rounding import measure  # imports torch, which the audit of a recorded run does not need

        return measure(lambda: self.run(self.inputs), self.outputs, runs)

    def arguments(self, inputs: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """(positional arguments, keyword arguments) of the model."""
        every = {**self.fixed, **inputs}
        positional = sorted((name for name in every if name.isdigit()), key=int)
        return tuple(every[name] for name in positional), {
            name: part for name, part in every.items() if not name.isdigit()
        }

    def call(self, inputs: Mapping[str, Any], seed: int = 0) -> Any:
        """What the model returns, without gradients and with the random numbers of the seed."""
        import torch

        positional, keywords = self.arguments(inputs)
        with raising(), torch.no_grad(), seeded(seed):
            return self.model(*positional, **keywords)

    def run(self, inputs: Mapping[str, Any], seed: int = 0) -> Outputs:
        """The floating-point tensors that the model returns, by name."""
        return dict(floats(self.call(inputs, seed)))

    def rows(self, outputs: Outputs, length: int | None = None) -> Outputs:
        """The outputs with one row per position, which means that axis 1 has the length of the sequence."""
        length = self.length if length is None else length
        return {name: part for name, part in outputs.items() if part.ndim > 1 and part.shape[1] == length}

    def redrawn(self, part, turn: int = 0, like=None):
        """Random values of the same shape that differ in every element: tokens for tokens, and for floats values of
        the standard deviation of `like`, which defaults to `part`.
        """
        import torch

        generator = torch.Generator().manual_seed(7919 * turn + 1)
        if part.is_floating_point():
            size = (part if like is None else like).detach().float().std(correction=0).clamp(min=1e-2).cpu()
            return (part.detach().float().cpu() + size * torch.randn(part.shape, generator=generator)).to(part)
        if self.ids is None:
            return part
        drawn = torch.randint(len(self.ids), part.shape, generator=generator)
        drawn = torch.where(self.ids[drawn] == part.cpu(), (drawn + 1) % len(self.ids), drawn)
        return self.ids[drawn].to(part)

    def padded(self, left: int = 0, right: int = 0, turn: int | None = None) -> dict[str, Any]:
        """The inputs with masked padding positions added, which contain the padding token, or random values where
        `turn` is given.
        """
        import torch

        assert self.mask is not None
        main = self.inputs[self.mask.of]
        made = dict(self.inputs)
        made.setdefault(
            self.mask.name, torch.full(main.shape[:2], self.mask.real, dtype=_dtype(self.mask.real), device=main.device)
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
def raising() -> Iterator[None]:
    """Turns any error of the model's code into `Raised`."""
    try:
        yield
    except Exception as error:  # the code of the model may raise anything
        raise Raised(error) from error


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Uses the random numbers of the seed inside, and restores the caller's generator state."""
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def floats(value: Any, name: str = "output") -> Iterator[tuple[str, Any]]:
    """(name, tensor) for every floating-point tensor in what a model returns, without caches and losses."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield name, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            if key not in ("past_key_values", "cache_params", "state") and not key.endswith("loss"):
                yield from floats(part, key if name == "output" else f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from floats(part, f"{name}[{number}]")


def _dtype(value: bool | int):
    import torch

    return torch.bool if isinstance(value, bool) else torch.long
