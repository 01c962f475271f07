"""Ledger: parameters, operations, bytes and time of whole models.

cost          the public entry point, and the least time; result: what it returns, and as text
build         builds a model without data from a configuration; inputs: what it is called with
counting      runs it once: what ran, the formula of each kind of module, pairs of a mask, and the sums of both
stand_ins     what runs in place of attention, experts and recurrences
memory        bytes; machine: what a machine can do at most
fit           what a given memory holds; measure: a run with data
"""

from ..common.optional import requires_extra
from ..common.public import belong

with requires_extra("cost", "hf"):
    from .cost import cost
    from .machine import Machine
    from .result import Columns, Layer, Line, Memory, ModelCost, Time

__all__ = ["Columns", "Layer", "Line", "Machine", "Memory", "ModelCost", "Time", "cost"]

belong(__name__)
