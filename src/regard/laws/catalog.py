"""The catalog of known mistakes in attention code, simplest first."""

from __future__ import annotations

from .mistake import Mistake
from .mistakes.denominators import LSE, SINKS
from .mistakes.gradients import GRADIENTS
from .mistakes.heads import HEADS
from .mistakes.masks import MASKS
from .mistakes.outputs import FILLS, OUTPUTS, ROWS
from .mistakes.positions import POSITIONS
from .mistakes.products import PRODUCTS, VALUES
from .mistakes.scores import SCALES, SCORES
from .mistakes.softmax import SOFTMAX

CATALOG: tuple[Mistake, ...] = (
    *SCORES[:2],
    *SINKS[:1],
    *SCALES,
    *MASKS,
    *POSITIONS,
    *HEADS,
    *ROWS[:1],
    *SOFTMAX,
    *VALUES,
    *PRODUCTS,
    *OUTPUTS,
    *FILLS,
    *ROWS[1:],
    *LSE,
    *SINKS[1:],
    *SCORES[2:],
    *GRADIENTS,
)

_by_name = {mistake.name: mistake for mistake in CATALOG}


def of_name(name: str) -> Mistake:
    """The mistake of this name."""
    return _by_name[name]
