"""Direct calls of the two libraries, torch and NumPy: their functions, a module of machine code for each, and what
these know of the library whose arrays they read.

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

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from ....common import thread_count
from ....common.call_hooks import watchers
from ....common.dtypes import FLOATS
from .. import threads
from ..code import target
from ..code.ir import I64, PTR
from .forward import Attend, AttendArrays, Describe, DescribeArrays, Layout
from .gradients import Keep, PullBack
from .least import Least
from .tensors import Reader

# Nothing else looks at calls, and nothing limits them: an object, an attribute of it or None, and the value that this,
# or a call of the object, has to have.
CONDITIONS = (
    (target, "_forced", None),
    (thread_count, "limits", 0),
    (watchers.__len__, None, 0),
)


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


class Library(NamedTuple):
    """functions: their writers by name; describe: the one that gives keys. objects: words of the table. conditions: of
    a direct call. read: the address of the function that reads a tensor. strides_in_bytes: rather than in elements.
    dtype: by name.
    """

    functions: dict[str, type[Reader]]
    describe: str
    objects: dict[str, Any]
    conditions: tuple[tuple[Any, str | None, Any], ...]
    read: int
    strides_in_bytes: bool
    dtype: Callable[[str], Any]


def of_torch(torch) -> Library | None:
    """Tensors, read by DLPack's C exchange interface; None where torch lacks it."""
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    read = 0 if exchange is None else _reader(exchange)
    if not read:
        return None
    interception, profiler = torch._C, torch.autograd.profiler
    conditions = (
        (interception._are_functorch_transforms_active, None, False),
        (interception._len_torch_dispatch_stack, None, 0),
        (interception._is_tracing, None, False),
        (torch.autograd.forward_ad, "_current_level", -1),
        (profiler, "_is_profiler_enabled", False),
        *CONDITIONS,
    )
    objects = {
        "tensor": torch.Tensor,
        "parameter": torch.nn.Parameter,
        "requires_grad": "requires_grad",
        "grad_enabled": torch.is_grad_enabled,
        "is_neg": torch.Tensor.is_neg,
        "storage": torch.Tensor.untyped_storage,
        "offset": torch.Tensor.storage_offset,
        "empty": torch.Tensor.new_empty,
        "dtype": ("dtype",),
        "int16": torch.int16,
        "get_threads": threads.count,
    }
    return Library(OF_TENSORS, "describe", objects, conditions, read, False, lambda name: FLOATS[name].torch)


def of_numpy() -> Library:
    """Arrays."""
    objects = {
        "tensor": np.ndarray,
        "parameter": np.ndarray,
        "empty": np.empty,
        "get_threads": threads.count,
    }
    return Library(OF_ARRAYS, "describe_arrays", objects, CONDITIONS, 0, True, np.dtype)


def _reader(exchange) -> int:
    """The address of `dltensor_from_py_object_no_sync` in a DLPackExchangeAPI of version 1; 0 in another version."""
    python = ctypes.pythonapi
    name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", python))(exchange)
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", python))
    words = pointer(exchange, name)
    if ctypes.c_uint32.from_address(words).value != 1:
        return 0
    return ctypes.c_void_p.from_address(words + 40).value or 0
