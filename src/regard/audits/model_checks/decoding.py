"""Decoder: how a model decodes with a key/value cache, which it takes and returns, or keeps itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ..finding import NotApplicable
from ..subject import Outputs, Subject, floats, modules_of, parameters_of

PLACES = ("start", "offset", "len", "pos")  # in the names of arguments that say where a step begins
SEVERAL = 3  # tokens of a last step, which a causal mask of its own rows is for


@dataclass(frozen=True)
class Decoder:
    """A subject that decodes. name: the argument that takes the cache; None: the model keeps it · constant: the other
    arguments of a step · several: the tokens of the last step · place: the argument that says where a step begins, and
    its form.
    """

    subject: Subject
    name: str | None
    constant: Mapping[str, Any]
    several: int = SEVERAL
    place: tuple[str, str] | None = None

    @property
    def start(self) -> int:
        """The number of tokens of the first step."""
        return max(1, self.subject.length - 8)

    @property
    def cuts(self) -> list[int]:
        """Where the steps end: after the first tokens, then after each further one, and after several at once."""
        length = self.subject.length
        last = length - min(self.several, (length - self.start) // 2)
        return [*range(self.start, last + 1), *[length] * (last < length)]

    def given(self, inputs: Mapping[str, Any], memory: Any, first: int, end: int) -> dict[str, Any]:
        """The arguments of the step of these tokens."""
        import torch

        along = self.subject.of_sequence
        made = {name: part[:, first:end] if name in along else part for name, part in inputs.items()}
        made |= self.constant
        if self.name is not None and first:
            made[self.name] = memory
        if self.place is not None and first:
            name, form = self.place
            row = torch.arange(first, end, device=inputs[self.subject.sequence or ""].device)
            made[name] = first if form == "number" else row if form == "row" else row[None]
        return made

    def memory(self, result: Any) -> Any:
        """The cache among what a step returned."""
        if self.name is None:
            return None
        named = result.get(self.name) if isinstance(result, Mapping) else getattr(result, self.name, None)
        held = result[1:] if isinstance(result, tuple) else (named,)
        memory = next((part for part in held if part is not None and getattr(part, "ndim", 5) > 4), None)
        if memory is None:
            raise NotApplicable(f"the model returns no {self.name}")
        return memory

    def steps(
        self, inputs: Mapping[str, Any], cuts: Sequence[int], order: Sequence[int] = ()
    ) -> Iterator[tuple[Outputs, Any]]:
        """(outputs of every step, the cache after it). order: of the entries of the batch, before the last step."""
        import torch

        memory = None
        for first, end in pairwise([0, *cuts]):
            if order and self.reorders and end == cuts[-1]:
                inputs = {name: part[order] for name, part in inputs.items()}
                memory = self._reordered(memory, torch.tensor(order, device=inputs[self.subject.sequence or ""].device))
            result = self.subject.call(self.given(inputs, memory, first, end))
            memory = self.memory(result)
            yield dict(floats(result)), memory

    def decoded(self, inputs: Mapping[str, Any], cuts: Sequence[int], order: Sequence[int] = ()) -> Outputs:
        """The outputs of all tokens that are decoded after the first step."""
        import torch

        with self.unchanged():
            parts = [part for part, _ in self.steps(inputs, cuts, order)][1:]
        names = [name for name in self.subject.rows(self.subject.outputs) if all(name in part for part in parts)]
        return {name: torch.cat([part[name] for part in parts], 1) for name in names}

    def unchanged(self) -> contextlib.AbstractContextManager:
        """Leaves a model that keeps its cache as it was."""
        from ..restored import restored

        return contextlib.nullcontext() if self.name else restored(_owner(self.subject.model))

    @property
    def remembers(self) -> bool:
        """Whether a cache that the model keeps is changed by a step, or changes the output of the next one: what is
        named like a cache may be a table of positions.
        """
        import torch

        inputs, start = self.subject.inputs, self.start
        with self.unchanged():
            alone = dict(floats(self.subject.call(self.given(inputs, None, start, start + 1))))
        with self.unchanged():
            before = _kept(self.subject.model)
            steps = self.steps(inputs, [start, start + 1])
            next(steps)
            changed = _kept(self.subject.model) != before
            after, _ = next(steps)
        return changed or any(not torch.equal(part, after[name]) for name, part in alone.items() if name in after)

    @property
    def reorders(self) -> Any:
        """What reorders the entries of a cache for beam search: a method of the model, or of transformers' cache."""
        owner = _owner(self.subject.model)
        own = getattr(owner, "_reorder_cache", getattr(owner, "reorder_cache", None))
        return own or (self.subject.is_transformers and (lambda memory, order: memory.reorder_cache(order)))

    def _reordered(self, memory: Any, order: Any) -> Any:
        """The cache with its entries in another order, which a model may change or return."""
        made = self.reorders(memory, order) if self.name else self.reorders(order)
        return memory if made is None else made


def decoders(subject: Subject, several: int = SEVERAL) -> list[Decoder]:
    """The ways in which a subject may decode: one for each form in which it may take where a step begins."""
    if subject.is_transformers:
        fits = {"use_cache", "past_key_values"} <= subject.parameters
        return [Decoder(subject, "past_key_values", {"use_cache": True}, several)] * fits
    free = {name: each.default for name, each in parameters_of(subject.model).items() if name not in subject.inputs}
    holds = [name for name in free if _names_a_cache(name)]
    switches = [name for name in holds if isinstance(free[name], bool)]
    taken = next((name for name in holds if free[name] is None), None)
    places = [name for name in free if any(word in name for word in PLACES) and name not in holds]
    if not taken and not (_kept(subject.model) and (switches or places)):
        return []
    plain = Decoder(subject, taken, dict.fromkeys(switches, True), several)
    placed = [replace(plain, place=(name, form)) for name in places for form in ("number", "row", "rows")]
    return [*placed, *[plain] * bool(taken or switches)]


def _owner(model: Any) -> Any:
    """The module of a bound method; others are their own."""
    return getattr(model, "__self__", model)


def _kept(model: Any) -> dict[tuple[int, str], tuple[int, int]]:
    """What a module keeps under the name of a cache: which object, and how often a tensor was written to."""
    return {
        (number, name): (id(part), getattr(part, "_version", 0))
        for number, module in enumerate(modules_of(_owner(model)))
        for name in dir(module)
        if _names_a_cache(name) and not callable(part := getattr(module, name))
    }


def _names_a_cache(name: str) -> bool:
    """Whether a name is that of a cache: `past_key_values`, `kv_cache`, `kv`; not `qkv`."""
    return "past" in name.lower() or "cache" in name.lower() or "kv" in name.lower().split("_")
