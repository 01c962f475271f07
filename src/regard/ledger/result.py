"""Result: what a model costs in one phase, line by line and in sum, with every number that was found in two ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..common.text.terminal_text import printable
from .columns import ZERO, Columns
from .report import report


@dataclass(frozen=True)
class Line:
    """A part of a layer: its projections, its attention, its feed-forward network.

    layer: its number in its stack, None outside of one · stack: such as "model.layers" · parameters: of these, `active`
    are used for a token · forward, backward: operations · done: those of the backward pass if scores are formed anew ·
    pairs, exponentials: of attention, over all sequences and heads · scores: the part of `forward` that is in q·k, not
    in weighted values · moved: bytes that its products read and write · saved: bytes kept for the backward pass.
    """

    stack: str
    layer: int | None
    part: str
    parameters: Columns
    active: int
    forward: Columns
    backward: int = 0
    done: int = 0
    pairs: int = 0
    scores: int = 0
    exponentials: int = 0
    moved: int = 0
    saved: int = 0


@dataclass(frozen=True)
class Layer:
    """The lines of one layer. attention: the line of its scores and values, or None."""

    stack: str
    number: int
    lines: tuple[Line, ...]

    @property
    def attention(self) -> Line | None:
        return next((line for line in self.lines if line.part == "attention"), None)


@dataclass(frozen=True)
class Memory:
    """Bytes. optimizer: of Adam, two float32 numbers per parameter, and float32 weights if they have 16 bits ·
    activations: what is saved for the backward pass; checkpointed: with checkpoints, the inputs of all layers and what
    the largest one saves · kv_cache: keys and values of all sequences; states: those of layers with a recurrent state ·
    working: outside of training, what the largest product reads and writes, without its weights.
    """

    weights: Columns
    gradients: int = 0
    optimizer: int = 0
    activations: Columns = ZERO
    checkpointed: int | None = None
    kv_cache: Columns = ZERO
    states: int = 0
    working: int = 0

    @property
    def held(self) -> int:
        """All that is held at once: in training with checkpoints, where the model can."""
        activations = self.activations.value if self.checkpointed is None else self.checkpointed
        kept = self.kv_cache.value + self.states + self.working
        return self.weights.value + self.gradients + self.optimizer + activations + kept


@dataclass(frozen=True)
class Time:
    """Seconds. bound: no run on the machine can be faster · compute, traffic: the shares of its products that are bound
    by operations and by memory · measured: as it ran, or None.
    """

    machine: str
    bound: float
    compute: float
    traffic: float
    measured: float | None = None


@printable
@dataclass(frozen=True)
class ModelCost:
    """What a model costs in one phase. faults: numbers that do not agree · notes: what one should know to
    read them · backward: operations of the backward pass.
    """

    name: str
    model: str
    phase: str
    tokens: int
    batch: int
    dtype: str
    parameters: Columns
    active: int
    lines: tuple[Line, ...]
    memory: Memory
    backward: Columns = ZERO
    time: Time | None = None
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def layers(self) -> list[Layer]:
        """The layers in order."""
        found: dict[tuple[str, int], list[Line]] = {}
        for line in self.lines:
            if line.layer is not None:
                found.setdefault((line.stack, line.layer), []).append(line)
        return [Layer(stack, number, tuple(lines)) for (stack, number), lines in found.items()]

    @property
    def linear(self) -> Columns:
        """Operations of the forward pass in products with parameters."""
        return _sum(line.forward for line in self.lines if line.part not in ("attention", "states"))

    @property
    def attention(self) -> Columns:
        """Operations of the forward pass in scores and weighted values: 2 · (D + E) per allowed pair."""
        return _sum(line.forward for line in self.lines if line.part == "attention")

    @property
    def recurrent(self) -> Columns:
        """Operations of the forward pass in recurrences over a state, by their definition."""
        return _sum(line.forward for line in self.lines if line.part == "states")

    @property
    def forward(self) -> Columns:
        """All operations of the forward pass. What was found in one way only is in both sums."""
        found = [line.forward for line in self.lines]
        formula = sum(each.value if each.formula is None else each.formula for each in found)
        return Columns(formula, sum(each.value for each in found))

    @property
    def flops(self) -> int:
        """Operations of the phase: forward, and in training backward, without what is formed a second time."""
        return self.forward.value + self.backward.value

    @property
    def done(self) -> int:
        """Operations of the phase with those that are repeated because scores are not kept."""
        return self.flops + sum(line.done - line.backward for line in self.lines if line.done)

    @property
    def exponentials(self) -> int:
        """Exponentials of the softmax, one per allowed pair and head."""
        return sum(line.exponentials for line in self.lines)

    @property
    def moved(self) -> int:
        """Bytes that the products of the forward pass read and write."""
        return sum(line.moved for line in self.lines)

    @property
    def intensity(self) -> float:
        """Operations per byte, forward."""
        return self.forward.value / self.moved if self.moved else 0.0

    def __str__(self) -> str:
        return report(self)

    def to_json(self) -> dict[str, Any]:
        """Everything as numbers, texts and lists."""
        sums = {
            name: dataclasses.asdict(value) if isinstance(value, Columns) else value
            for name in (
                "linear",
                "attention",
                "recurrent",
                "forward",
                "flops",
                "done",
                "exponentials",
                "moved",
                "intensity",
            )
            for value in (getattr(self, name),)
        }
        return dataclasses.asdict(self) | sums


def _sum(columns: Iterable[Columns]) -> Columns:
    found = list(columns)

    def total(name: str) -> int | None:
        numbers = [getattr(each, name) for each in found]
        return None if any(each is None for each in numbers) else sum(numbers)

    return Columns(total("formula"), total("counted"))
