"""Subject: a model to be audited, with its inputs, how to run it and change them, and what it declares."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import takewhile
from typing import Any

from ..common.errors import first_line

Outputs = dict[str, Any]  # floating-point tensors by name
Shapes = Mapping[str, tuple[int, ...]]

# Outputs that models read again in the next step.
MEMORIES = ("past_key_values", "cache", "past_buckets_states", "cache_params", "mems", "state")

BY_CALLER = "the caller (causal=)"  # what declares a model causal

ADDED = 5  # positions, where padding is added
ONE_TOKEN = "all tokens of the input are equal, and no others are known to replace them: pass different tokens"


class Raised(Exception):
    """The model raised the error that is the cause of this one. The message is its type and first line."""

    def __init__(self, error: Exception):
        super().__init__(f"{type(error).__name__}: {first_line(error, 'without a message')}")


@dataclass(frozen=True)
class PaddingMask:
    """The input `name`, which marks each position of the input `of` as a real token or as padding, and its two
    values.

    others: further padding masks over the same positions, which are given together with it · along: the inputs that
    have these positions; None: all inputs whose first two axes are those of `of`
    """

    name: str
    of: str
    real: bool | float = 1
    padding: bool | float = 0
    others: tuple[str, ...] = ()
    along: frozenset[str] | None = None


@dataclass(frozen=True)
class OutputShapes:
    """The shapes of the outputs, by name, for all positions of the sequence, and for fewer.

    One shorter sequence is not enough: some models round its length up, and return as many rows as before. source: the
    shapes for other inputs with positions of their own, such as those of an encoder.
    """

    length: int
    given: Shapes
    shorter: tuple[Shapes, ...]  # without sequences that the model does not accept
    source: OutputShapes | None = None

    def has_rows(self, name: str) -> bool:
        """Whether axis 1 is the positions: it has their number, and changes with it. If the model accepts one length
        only, that of a matrix may be a number of classes, so only outputs of three axes or more count.
        """
        shape = self.given[name]
        if shape[1:2] != (self.length,):
            return False
        shorter = self._shorter(name)
        return any(each[1:2] != shape[1:2] for each in shorter) if shorter else len(shape) > 2

    def is_for_all(self, name: str) -> bool:
        """Whether an output, of one batch entry, has no axis of positions, such as the vector of a sentence."""
        shape = self.given[name]
        if len(shape) < 2 or shape[0] != 1 or (self.source and not self.source.is_for_all(name)):
            return False
        shorter = self._shorter(name)
        return all(each == shape for each in shorter) if shorter else self.length not in shape[1:]

    def _shorter(self, name: str) -> list[tuple[int, ...]]:
        return [shapes[name] for shapes in self.shorter if name in shapes]


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """A torch module with inputs of one batch entry, and what is known about both.

    inputs: tensors by name, batch first. The model is called with them, and with the constant arguments `fixed` ·
    ordered: the names of those that are passed by position · forms: by name, what makes the argument that the model
    takes of a padding mask with one entry for each position · sequence: name of the input whose axis 1 is the
    positions, or None · mask: the padding mask, or None · further_masks: padding masks of other inputs · of_pairs:
    names of inputs that have an entry for each pair of positions, such as masks · ids (N,): the tokens that
    replacements are drawn from · pad: the padding token · causal: whether each output may depend on earlier positions
    only; None: unknown · causal_source: what declares that, in words · training: the modules that were in training mode
    before the audit, by name · parameters: the names of the arguments of forward · is_transformers: whether this is a
    transformers model, which may have a key/value cache and `generate`
    """

    model: Any
    name: str
    inputs: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    ordered: Sequence[str] = ()
    sequence: str | None = None
    mask: PaddingMask | None = None
    further_masks: tuple[PaddingMask, ...] = ()
    of_pairs: frozenset[str] = frozenset()
    forms: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
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

    def can_change(self, name: str | None) -> bool:
        """Whether an input can be replaced: its elements are numbers, or tokens of which others are known."""
        part = None if name is None else self.inputs[name]
        return part is None or part.is_floating_point() or part.is_complex() or self.ids is not None

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
        """(positional arguments, keyword arguments) of the model, copied because it may write into them; what is one
        tensor stays one.
        """
        copies = {id(part): part.detach().clone() for part in inputs.values() if hasattr(part, "detach")}
        every = {**self.fixed, **{name: copies.get(id(part), part) for name, part in inputs.items()}}
        every |= {name: form(every[name]) for name, form in self.forms.items() if name in every}
        return tuple(every.pop(name) for name in takewhile(every.__contains__, self.ordered)), every

    def call(self, inputs: Mapping[str, Any], seed: int = 0) -> Any:
        """What the model returns, without gradients and with the random numbers of the seed."""
        import torch

        positional, keywords = self.arguments(inputs)
        with raising(), torch.no_grad(), seeded(seed):
            return self.model(*positional, **keywords)

    def run(self, inputs: Mapping[str, Any], seed: int = 0) -> Outputs:
        """The floating-point tensors that the model returns, by name; 0 in the rows of masked padding.

        What a model returns for padding is undefined: implementations differ there, and models do not read it.
        """
        return {name: self._without_padding(name, part, inputs) for name, part in floats(self.call(inputs, seed))}

    def _without_padding(self, name: str, part, inputs: Mapping[str, Any]):
        part = part.clone()  # a model may return the same memory in each run
        for mask in self.masks:
            given = inputs.get(mask.name)
            of_output = name.startswith("encoder_") != (mask.of == self.sequence)
            if given is None or part.ndim < 2 or part.shape[:2] != given.shape or not of_output:
                continue
            if self._has_rows(name, mask, given.shape[1]):
                hidden = (given == mask.padding).reshape(*given.shape, *[1] * (part.ndim - 2))
                part = part.masked_fill(hidden.to(part.device), 0)
        return part

    def _has_rows(self, name: str, mask: PaddingMask, length: int) -> bool:
        """Whether axis 1 of an output, which has the length of the mask, is the positions of the mask. It may also be
        the width of an output for all positions.
        """
        if mask.of == self.sequence and name in self.shapes.given:
            return self.shapes.has_rows(name)
        own = self.inputs[mask.of].shape[1]
        return length == own or self.shapes.given.get(name, (1, own))[1:2] == (own,)

    @functools.cached_property
    def shapes(self) -> OutputShapes:
        """The shapes of the outputs, for the given sequence and for shorter ones."""
        given, source = self._shapes_of(self.inputs), None
        if self.mask is not None and self.mask.of != self.sequence:
            source = self._shapes_along(self._along, self.inputs[self.mask.of].shape[1], given)
        return replace(self._shapes_along(self.of_sequence, self.length, given), source=source)

    def _shapes_along(self, along: frozenset[str], length: int, given: Shapes) -> OutputShapes:
        """The shapes for the first positions of some inputs, which are almost all, and half of them."""
        shorter = []
        for count in sorted({length - 1, length // 2} - {-1, 0, length}):
            cut = {name: part[:, :count] if name in along else part for name, part in self.inputs.items()}
            with contextlib.suppress(Raised):
                shorter.append(self._shapes_of(cut))
        return OutputShapes(length, given, tuple(shorter))

    def _shapes_of(self, inputs: Mapping[str, Any]) -> Shapes:
        return {name: tuple(part.shape) for name, part in floats(self.call(inputs))}

    @property
    def padding(self) -> PaddingMask:
        """The padding mask, which has to be there."""
        assert self.mask is not None
        return self.mask

    @property
    def masks(self) -> tuple[PaddingMask, ...]:
        """Every padding mask."""
        return (*([] if self.mask is None else [self.mask]), *self.further_masks)

    @functools.cached_property
    def without_padding(self) -> Subject:
        """This subject without the positions of the sequence that its padding mask marks as padding, and without that
        mask; itself if there is none.
        """
        masks = [mask for mask in self.masks if mask.of == self.sequence and mask.name in self.inputs]
        if not masks or self.sequence is None:
            return self
        removed = {mask.name for mask in masks}
        real = (self.inputs[masks[0].name][0] != masks[0].padding).nonzero().flatten()
        return replace(
            self,
            inputs={
                name: part[:, real.to(part.device)] if name in self.of_sequence else part
                for name, part in self.inputs.items()
                if name not in removed
            },
        )

    @functools.cached_property
    def required(self) -> frozenset[str]:
        """The arguments without which the model cannot be called."""
        takes = parameters_of(self.model).items()
        return frozenset(name for name, each in takes if each.default is each.empty and each.kind < each.VAR_KEYWORD)

    @property
    def cache(self) -> str | None:
        """The argument of a model of transformers that takes keys and values: `past_key_values` before 5.24."""
        if not self.is_transformers or "use_cache" not in self.parameters:
            return None
        return next((name for name in ("cache", "past_key_values") if name in self.parameters), None)

    @functools.cached_property
    def needs_mask(self) -> bool:
        """Whether the model does not run without its padding mask."""
        if self.mask is None or self.mask.name in self.required:
            return self.mask is not None
        try:
            self.call({name: part for name, part in self.inputs.items() if name != self.padding.name})
        except Raised:
            return True
        return False

    def without_mask(self) -> dict[str, Any]:
        """The inputs without the padding mask; where the model needs one, it marks every position as real."""
        made = dict(self.inputs)
        if self.mask is not None and self.mask.name in made:
            given = made.pop(self.mask.name)
            if self.needs_mask:
                made[self.mask.name] = self._all_real().to(given.dtype)
        return made

    @property
    def unmasked(self) -> dict[str, dict[str, Any]]:
        """The inputs without the padding mask, by what they are in words."""
        return {"with a mask of real tokens" if self.needs_mask else "without a mask": self.without_mask()}

    @functools.cached_property
    def of_sequence(self) -> frozenset[str]:
        """The inputs that have one entry for each position of the sequence."""
        if self.sequence is None:
            return frozenset()
        named = _names_with(self.inputs, self.inputs[self.sequence].shape[:2])
        return frozenset(name for name in named if name.startswith("decoder_") == self._decodes)

    @property
    def _decodes(self) -> bool:
        """Whether the sequence is that of a decoder, beside that of its encoder."""
        return str(self.sequence).startswith("decoder_")

    def rows(self, outputs: Outputs, length: int | None = None) -> Outputs:
        """The outputs with one row per position, which means that axis 1 has the length of the sequence. Outputs of an
        encoder have rows of its own sequence.
        """
        length = self.length if length is None else length
        return {
            name: part
            for name, part in outputs.items()
            if part.ndim > 1 and part.shape[1] == length and not (self._decodes and name.startswith("encoder_"))
            if name not in self.shapes.given or self.shapes.has_rows(name)
        }

    def for_all(self, outputs: Outputs) -> Outputs:
        """The outputs without an axis of positions, which are for all of them."""
        return {
            name: part for name, part in outputs.items() if name in self.shapes.given and self.shapes.is_for_all(name)
        }

    def redrawn(self, part, turn: int = 0, like=None):
        """Random values of the same shape that differ in every element: tokens for tokens, and for floats values of
        the standard deviation of `like`, which defaults to `part`.
        """
        import torch

        if part.is_complex():
            size = None if like is None else torch.view_as_real(like.resolve_conj())
            return torch.view_as_complex(self.redrawn(torch.view_as_real(part.resolve_conj()), turn, size))
        generator = torch.Generator().manual_seed(7919 * turn + 1)
        if part.is_floating_point():
            size = (part if like is None else like).detach().float().std(correction=0).clamp(min=1e-2).cpu()
            return (part.detach().float().cpu() + size * torch.randn(part.shape, generator=generator)).to(part)
        if self.ids is None:
            return part
        drawn = torch.randint(len(self.ids), part.shape, generator=generator)
        drawn = torch.where(self.ids[drawn] == part.cpu().long(), (drawn + 1) % len(self.ids), drawn)
        return self.ids[drawn].to(part)

    def padded(self, left: int = 0, right: int = 0, turn: int | None = None) -> dict[str, Any]:
        """The inputs with masked padding positions added, which contain the padding token, or random values where
        `turn` is given. Where none are added, two of their own positions are masked, and only random values replace
        what they contain.
        """
        made = self.with_masks()
        for name in self._along:
            part, end = made[name], left + made[name].shape[1]
            token = self.pad if name == self.padding.of else 0
            padded = made[name] = part.new_full((1, end + right, *part.shape[2:]), token)
            padded[:, left:end] = part
            at = [*range(left), *range(end, end + right)] or self.within
            if name in self.padding_values:
                padded[:, at] = self.padding_values[name]
            elif turn is not None and self._is_content(name, part):
                padded[:, at] = self.redrawn(padded[:, at], turn, part)
        return made

    @functools.cached_property
    def can_be_padded(self) -> bool:
        """Whether padding can be added: no input has an entry for each pair of positions, such as a mask (positions,
        positions), and the model accepts more positions, which a table of learned positions may not have.
        """
        length = self.inputs[self.padding.of].shape[1]
        if any(name in self.of_pairs and length in part.shape[-2:] for name, part in self.inputs.items()):
            return False
        try:
            self.run(self.padded(right=ADDED))
        except Raised:
            self.run(self.padded())  # a model that raises here does not run with any padding
            return False
        return True

    @property
    def within(self) -> list[int]:
        """The positions that are masked where none are added: apart, so that a narrow window sees other keys, too."""
        length = self.inputs[self.padding.of].shape[1]
        return [length - 2, length - 1] if self.ends else [length // 3, 2 * length // 3]

    @property
    def ends(self) -> bool:
        """Whether the model takes the number of real tokens, which are the first ones."""
        return self.padding.name in self.forms and self.forms[self.padding.name](self._all_real()).ndim == 1

    @functools.cached_property
    def _along(self) -> frozenset[str]:
        """The inputs that have the positions that the padding mask is about, with the masks that can be added."""
        named = _names_with(self.inputs, self.inputs[self.padding.of].shape[:2])
        every = {name for name in named if not name.startswith("decoder_")} | (
            self.with_masks().keys() - self.inputs.keys()
        )
        return frozenset(every if self.padding.along is None else every & self.padding.along)

    def with_masks(self) -> dict[str, Any]:
        """The inputs with every padding mask over the same positions; those that are not given mark no padding."""
        return {**dict.fromkeys((self.padding.name, *self.padding.others), self._all_real()), **self.inputs}

    def _is_content(self, name: str, part) -> bool:
        """Whether padding of an input along the mask contains values that the mask has to hide."""
        return name == self.padding.of or (
            part.is_floating_point() and part.ndim > 2 and self.padding.along is not None
        )

    @functools.cached_property
    def padding_values(self) -> dict[str, bool | float]:
        """The value that marks padding, by the name of every padding mask."""
        return {name: mask.padding for mask in self.masks for name in (mask.name, *mask.others)}

    def _all_real(self):
        """A padding mask without padding."""
        import torch

        main = self.inputs[self.padding.of]
        return torch.full(main.shape[:2], self.padding.real, device=main.device)


def _names_with(inputs: Mapping[str, Any], shape: tuple[int, ...]) -> set[str]:
    """The inputs whose first two axes have these sizes."""
    return {name for name, part in inputs.items() if part.ndim > 1 and part.shape[:2] == shape}


def parameters_of(model: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of the model's forward by name; none where it has no signature, as functions of torch."""
    try:
        return inspect.signature(getattr(model, "forward", model)).parameters
    except ValueError:
        return {}


def modules_of(model: Any) -> Iterable[Any]:
    """The modules of a model; none of a function."""
    return getattr(model, "modules", tuple)()


def flags(model: Any, name: str) -> set[bool]:
    """The values of a switch on the modules of a model."""
    values = (getattr(module, name, None) for module in modules_of(model))
    return {value for value in values if isinstance(value, bool)}


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


def named(inputs: Any, names: Sequence[str] = ()) -> dict[str, Any]:
    """Inputs by name; those that are given in order have these names, or their numbers if there are too few."""
    if isinstance(inputs, Mapping):
        return {str(name): part for name, part in inputs.items()}
    parts = inputs if isinstance(inputs, list | tuple) else [inputs]
    return dict(zip(names if len(names) >= len(parts) else map(str, range(len(parts))), parts))


def positions_first(model: Any) -> bool:
    """Whether layers of torch in the model read (positions, batch, width), as they do unless batch_first=True."""
    return any(getattr(part, "batch_first", None) is False for part in modules_of(model))


def floats(value: Any, name: str = "output") -> Iterator[tuple[str, Any]]:
    """(name, tensor) for every floating-point tensor in what a model returns, without caches, losses and empty ones."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_floating_point() and value.numel():
            yield name, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            if key not in MEMORIES and not str(key).endswith("loss"):
                yield from floats(part, str(key) if name == "output" else f"{name}.{key}")
    elif is_dataclass(value) and not isinstance(value, type):
        yield from floats({part.name: getattr(value, part.name, None) for part in fields(value)}, name)
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from floats(part, f"{name}[{number}]")
