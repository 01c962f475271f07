"""The catalog of known mistakes in attention code, simplest first. The files have them by subject, as tuples whose
entries say in order: the name, what is computed, the likely cause, the fix, and the change of the law.
"""

from __future__ import annotations

from ..mistake import Mistake
from .gradients import GRADIENTS
from .heads import HEADS
from .masks import MASKS, POSITIONS
from .outputs import FILLS, OUTPUTS, ROWS
from .products import PRODUCTS, VALUES
from .scores import SCALES, SCORES
from .softmax import LSE, SINKS, SOFTMAX

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
