"""Effects: how much the output of a model changed without each of its heads, layers, tokens or edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...common.text.terminal_text import printable


@printable
@dataclass(frozen=True, eq=False, repr=False)
class Effects:
    """What interventions change; print it for a ranked table.

    Args:
        of: "heads", "layers", "tokens", "edges" or "stream".
        measure: the name of the measure.
        values: the measure with the intervention minus without: (layers, heads), (layers,), (tokens,), (rows, keys)
            or (blocks, tokens); NaN where a layer has no such head, a row no such key, or the computation was
            interrupted.
        clean: the measure without intervention.
        layers: the names of the layers, or of the blocks of the stream.
        tokens: the tokens of the text, or numbers.

    Examples:
        >>> import numpy as np
        >>> from regard.lens.runs.effects import Effects
        >>> found = Effects("heads", "loss", np.array([[0.1, 2.0]]), 3.0, ("attn",), ("a", "b"))
        >>> found.ranked()[0]
        ('attn head 1', 2.0)
    """

    of: str
    measure: str
    values: np.ndarray
    clean: float
    layers: tuple[str, ...]
    tokens: tuple[str, ...]

    def ranked(self, count: int | None = None) -> list[tuple[str, float]]:
        """What matters, the largest change first, with its value."""
        flat = self.values.reshape(-1)
        known = np.flatnonzero(~np.isnan(flat))
        order = known[np.argsort(-np.abs(flat[known]), kind="stable")][:count]
        return [(self._name(np.unravel_index(at, self.values.shape)), float(flat[at])) for at in order]

    @property
    def fact(self) -> dict[str, Any]:
        """The effects as plain JSON, for the facts of a run; what is not known is null."""
        values = np.where(np.isnan(self.values), np.array(None), self.values)
        return {**vars(self), "values": values.tolist(), "layers": list(self.layers), "tokens": list(self.tokens)}

    @classmethod
    def of_fact(cls, fact: Mapping[str, Any]) -> Effects:
        """The effects that `fact` was made of."""
        values = np.array(fact["values"], float)
        return cls(**{**fact, "values": values, "layers": tuple(fact["layers"]), "tokens": tuple(fact["tokens"])})

    @property
    def most(self) -> tuple[int, ...]:
        """The index of the largest change."""
        return tuple(map(int, np.unravel_index(np.nan_to_num(np.abs(self.values)).argmax(), self.values.shape)))

    def _name(self, at: Sequence[Any]) -> str:
        if self.of == "heads":
            return f"{self.layers[at[0]]} head {at[1]}"
        if self.of == "layers":
            return self.layers[at[0]]
        if self.of == "stream":
            return f"{self.layers[at[0]]} {self.tokens[at[1]]!r} ({at[1]})"
        return " -> ".join(f"{self.tokens[each]!r} ({each})" for each in at)

    def save(self, path: str | Path) -> None:
        """Writes the arrays and names as a NumPy archive (.npz)."""
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in vars(self).items()}
        np.savez(path, **arrays)

    def __str__(self) -> str:
        lines = [f"effects of {self.of} on {self.measure}, which is {self.clean:.4g} without intervention"]
        return "\n".join([*lines, *(f"{value:+12.4g}  {name}" for name, value in self.ranked(12))])

    __repr__ = __str__
