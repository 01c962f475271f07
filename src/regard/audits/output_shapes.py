"""How the outputs of a model follow the number of positions: row by row, or as one output for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Shapes = Mapping[str, tuple[int, ...]]


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
