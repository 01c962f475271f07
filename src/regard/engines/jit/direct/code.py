"""The functions of direct calls in one module of machine code, and the words of their table.

    attend(q, k, v, rule and numbers …)               the output, or None: no call like this one is in the table
    describe(q, k, v, rule and numbers …)             the key of such a call as bytes, or None: it goes through Python
    layout(tensors …)                                 addresses and layouts of seven tensors as bytes, or None likewise
    keep(kind, q, k, v)                               the output and what the backward pass needs, or None
    pull_back(kind, q, k, v, out, sums, lost, dout)   the gradients of q, k and v, or None
    least(tensor)                                     the least number of a small tensor of floats, or None

They are functions of Python's C interface (METH_FASTCALL), and hold its lock. Their `self` is the address of the table
(table.py), an integer.
"""

from __future__ import annotations

from llvmlite import ir

from ..code.ir import I64, PTR
from .forward import Attend, Describe, Layout
from .gradients import Keep, PullBack
from .least import Least

__all__ = ["FUNCTIONS", "write"]

FUNCTIONS = {
    "attend": Attend,
    "describe": Describe,
    "layout": Layout,
    "keep": Keep,
    "pull_back": PullBack,
    "least": Least,
}


def write() -> ir.Module:
    """The module with all functions."""
    module = ir.Module("regard")
    for name, writer in FUNCTIONS.items():
        writer(ir.Function(module, ir.FunctionType(PTR, [PTR, PTR, I64]), name)).write()
    return module
