"""The catalog of known mistakes in attention code, simplest first."""

from __future__ import annotations

from .mistake import Mistake
from .mistakes.gradients import GRADIENTS
from .mistakes.heads import HEADS
from .mistakes.lse import LSE
from .mistakes.masks import MASKS
from .mistakes.outputs import FILLS, OUTPUTS, ROWS
from .mistakes.positions import POSITIONS
from .mistakes.products import PRODUCTS
from .mistakes.scales import SCALES
from .mistakes.scores import SCORES
from .mistakes.sinks import SINKS
from .mistakes.softmax import SOFTMAX
from .mistakes.values import VALUES

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
