"""The functions of direct calls as modules of machine code, one for each library.

    attend(q, k, v, rule and numbers …)               the output, or None: no call like this one is in the table
    describe(q, k, v, rule and numbers …)             the key of such a call as bytes, or None: it goes through Python
    layout(tensors …)                                 addresses and layouts of seven tensors as bytes, or None likewise
    keep(kind, q, k, v)                               the output and what the backward pass needs, or None
    pull_back(kind, q, k, v, out, sums, lost, dout)   the gradients of q, k and v, or None
    least(tensor)                                     the least number of a small tensor of floats, or None

    attend_arrays, describe_arrays                    the same of NumPy's arrays

They are functions of Python's C interface (METH_FASTCALL), and hold its lock. Their `self` is the address of the table
(table.py), an integer.
"""

from __future__ import annotations

from llvmlite import ir

from ..code.ir import I64, PTR
from .arrays import AttendArrays, DescribeArrays
from .forward import Attend, Describe, Layout
from .gradients import Keep, PullBack
from .least import Least
from .tensors import Reader

OF_TENSORS = {
    "attend": Attend,
    "describe": Describe,
    "layout": Layout,
    "keep": Keep,
    "pull_back": PullBack,
    "least": Least,
}


OF_ARRAYS = {
    "attend_arrays": AttendArrays,
    "describe_arrays": DescribeArrays,
}


def write(functions: dict[str, type[Reader]]) -> ir.Module:
    """The module with these functions."""
    module = ir.Module("regard")
    for name, writer in functions.items():
        writer(ir.Function(module, ir.FunctionType(PTR, [PTR, PTR, I64]), name)).write()
    return module
