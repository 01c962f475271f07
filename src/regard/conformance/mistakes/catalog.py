"""The catalog of known mistakes in attention code, simplest first."""

from __future__ import annotations

from .entries.gradients import GRADIENTS
from .entries.heads import HEADS
from .entries.lse import LSE
from .entries.masks import MASKS
from .entries.outputs import FILLS, OUTPUTS, ROWS
from .entries.positions import POSITIONS
from .entries.products import PRODUCTS
from .entries.scales import SCALES
from .entries.scores import SCORES
from .entries.sinks import SINKS
from .entries.softmax import SOFTMAX
from .entries.values import VALUES
from .mistake import Mistake

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
