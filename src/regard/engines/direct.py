"""Direct calls: a call like an earlier one goes from its tensors or arrays to its kernel in machine code.

Python needs longer to check a call of a few rows than the kernel needs to compute it. The functions here are replaced
by machine code (jit/direct/) when the first call is remembered. What is not like a call in the table, or is
intercepted, goes through Python (fast_path.py), with the same results; so does everything without DLPack's C exchange
interface, by which tensors are read, and without CPython and its lock.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import sysconfig
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .jit.direct.table import Table

_tables: list[Table] = []


def attend(*call) -> Any:
    """The output of a call (q, k, v, *Arguments, engine) like one in the table; None for any other."""
    return None


def attend_arrays(*call) -> Any:
    """The same for NumPy's arrays."""
    return None


def layout(*tensors) -> bytes | None:
    """The addresses of nine tensors, then their layouts; None if one is not plain and on the CPU, or one of the first
    seven is None.
    """
    return None


def least(tensor) -> float | None:
    """The least number of a tensor of floats, NaN excepted; None for any that is large, small or has gaps in memory."""
    return None


def keep(kind, q, k, v, mask, score) -> tuple | None:
    """(out, sums) or, in 16 bits, (out, sums, lost) of a call in the table; None for any other."""
    return None


def pull_back(kind, *tensors) -> tuple | None:
    """The gradients of q, k and v, from (q, k, v, out, sums, lost, dout, mask, score); None if their layouts are not in
    the table.
    """
    return None


def remember(call: tuple, kind, differentiate: Callable | None) -> None:
    """Enters a call that has been checked, if its rules read no arrays; its mask and score may be tensors.

    kind: what `fast_path` keeps of it. differentiate: (kind, q, k, v, *given) -> the output of a call that needs
    gradients; given: mask or score that are tensors.
    """
    if any(getattr(rule, "tables", ()) for rule in call[3:5]):
        return
    table = _table(type(call[0]) is not np.ndarray)
    if table is not None:
        table.remember(call, kind, differentiate)
        globals().update(table.functions)


def remember_backward(kind, layouts: bytes, recipe, places: tuple, tensors: tuple) -> None:
    """Enters a backward pass that has been checked: tensors (q, k, v, *kept, dout) of these layouts. places: of the
    addresses of mask and score in the argument block, where they are tensors.
    """
    table = _table(True)
    if table is not None:
        table.remember_backward(kind, layouts, recipe, places, tensors)


@functools.cache
def _table(of_tensors: bool) -> Table | None:
    """The table of this process for tensors or for arrays; None where a call cannot be read in machine code."""
    locked = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
    if not locked or object.__basicsize__ != 2 * ctypes.sizeof(ctypes.c_void_p):
        return None
    from .jit.direct import table

    found = table.of_torch(sys.modules["torch"]) if of_tensors else table.of_numpy()
    if found is None:
        return None
    made = table.Table(found)
    _tables.append(made)
    return made


def _forget() -> None:
    """A forked child has other threads."""
    for table in _tables:
        table.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
