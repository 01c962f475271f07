"""The table of known calls: the memory that the machine code reads, and the owners of what it points to.

Each of the two libraries, torch and NumPy, has a table, and a module of machine code with its functions:

    attend(q, k, v, rule and numbers …)               the output, or None: no call like this one is in the table
    describe(q, k, v, rule and numbers …)             the key of such a call as bytes, or None: it goes through Python
    layout(tensors …)                                 addresses and layouts of nine tensors as bytes, or None likewise
    keep(kind, q, k, v, mask, score)                  the output and what the backward pass needs, or None
    pull_back(kind, tensors …)                        the gradients of q, k and v, or None
    least(tensor)                                     the least number of a small tensor of floats, or None

    attend_arrays, describe_arrays                    the same of NumPy's arrays

They are functions of Python's C interface (METH_FASTCALL), and hold its lock. Their `self` is the address of the table,
an integer.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from ....common import thread_count
from ....common.arrays import address
from ....common.caching import lock
from ....common.call_hooks import watchers
from ....common.dtypes import FLOATS
from .. import engine, threads
from ..code import build, target
from ..code.arguments import FIXED
from ..code.ir import I64, PTR
from ..kernels.backward_specification import PHASES
from ..launch import Workspace
from .forward import Attend, AttendArrays, Describe, DescribeArrays, Layout, Least
from .gradients import BACK, BACK_KEY, Keep, PullBack
from .tensors import ENTRY, KEY, MASK, PYTHON, SCORE, TABLE, Reader

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


CALLS = 128  # in the table, of each pass: two for each kind (fast_path); another one takes the place of the oldest
ADDRESSES = Struct("4q")


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


METH_FASTCALL = 0x80


class _Part:
    """The entries of one pass. count: the word of the table with their number. names: their words after the key."""

    def __init__(self, count: str, key: int, names: tuple[str, ...]):
        self.count, self.names = count, names
        self.entries = np.zeros((CALLS, key + len(names)), np.int64)
        self.held: list[Any] = [None] * CALLS
        self.number = 0  # entered so far


class Table:
    """The memory that the machine code reads, and the owners of what it points to."""

    def __init__(self, library: Library):
        self.lock, self.library = lock(), library
        self.calls, self.backs = _Part("count", KEY, ENTRY), _Part("back_count", BACK_KEY, BACK)
        conditions = [[id(thing), 0 if name is None else id(name), id(to)] for thing, name, to in library.conditions]
        self.conditions = np.array(conditions, np.int64)
        self.objects = {"none": None, "false": False, "float": float} | library.objects
        words = {name: id(thing) for name, thing in self.objects.items()}
        words |= {"count": 0, "latest": 0, "entries": address(self.calls.entries), "read": library.read}
        words |= {"back_count": 0, "backs": address(self.backs.entries)}
        words |= {"conditions": len(conditions), "first": address(self.conditions)}
        self.words = np.array([words.get(name, 0) for name in TABLE], np.int64)
        build.python_functions(PYTHON)
        names = list(library.functions)
        self.machine_code = build.compiled(
            f"direct calls: {names}", target.host(), lambda: write(library.functions), names[0]
        )
        self.methods: list[_Method] = []
        self.functions = {name: self._function(name) for name in names}
        self.describe = self.functions[library.describe]

    def _function(self, name: str):
        """A function of the machine code as an object of Python."""
        pointer = self.machine_code.engine.get_function_address(name)
        method = _Method(name.encode(), pointer, METH_FASTCALL, None)
        self.methods.append(method)
        make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            ("PyCFunction_NewEx", ctypes.pythonapi)
        )
        return make(ctypes.addressof(method), address(self.words), None)

    def remember(self, call: tuple, kind, differentiate: Callable | None) -> None:
        """Enters a call, in the place of an equal one if there is one, and a step of decoding also as such a step.

        Only mask and score may be tensors, and they may not require gradients.
        """
        keys = self.describe(*call)
        if keys is None or target.is_forced():  # kernels for another machine are not those of later calls
            return
        key, step = keys[: 8 * KEY], keys[8 * KEY :]
        rules, score = list(call[3:]), call[3 + SCORE] if kind.read[SCORE] else None
        with self.lock:
            values, held = self._entry(kind)
            for place in (MASK, SCORE):
                if kind.read[place]:
                    rules[place] = None  # not kept alive
            if differentiate is not None and kind.even:
                again = functools.partial(_differentiate, differentiate, kind)
                held, values["differentiate"] = (held, again), id(again)
            self._enter(self.calls, key, values, (rules, held))
            runs = kind.recipe.plan.runs  # of each tile one, which ends with the keys
            if step != key and "launch" not in values and (runs == runs[0]).all():
                values, held = self._step(kind, *(self._unit(array) for array in (call[0], score)))
                self._enter(self.calls, step, values, (rules, held))

    def _unit(self, array) -> int:
        """Bytes in which the strides of an array are given."""
        return 1 if self.library.strides_in_bytes or array is None else array.itemsize

    def _step(self, kind, size: int, score_size: int) -> tuple[dict[str, int], tuple]:
        """The entry of a step of decoding: its runs of keys are its own, because the machine code writes their end."""
        values, held = self._entry(kind)
        runs, (_, _, (workspace, *_)) = kind.recipe.plan.runs.copy(), held
        workspace.block[FIXED.index("runs")] = address(runs)
        values |= {"kind": 0, "runs": address(runs), "tiles": len(runs), "bytes": size, "score_bytes": score_size}
        return values, (held, runs)

    def remember_backward(self, kind, layouts: bytes, recipe, places: tuple, tensors: tuple) -> None:
        """Enters a backward pass. places: of the addresses of mask and score in the argument block."""
        if recipe.once or kind.recipe is None:
            return
        workspace = recipe.workspace()
        start = address(workspace.room)
        shapes = [tuple(tensor.shape) for tensor in kind.swapped(tensors[:3])]
        sums = tensors[4]
        values = {
            "kind": id(kind),
            "narrow": int(kind.narrow),
            "counters": start + recipe.within["counters"],
            "step": sums.nbytes // 3,
            "room": start,
            "room_bytes": recipe.room,
        }
        values |= {name: id(shape) for name, shape in zip(("dq", "dk", "dv"), shapes, strict=True)}
        values |= {f"{phase}_tasks": tasks for phase, tasks in zip(PHASES, recipe.tasks, strict=True)}
        values |= zip(kind.arrays(("mask", "score")), places, strict=True)
        with self.lock:
            words, held = self._words(workspace)
            key = id(kind).to_bytes(8, sys.byteorder) + layouts
            self._enter(self.backs, key, values | words, (kind, recipe, shapes, held))

    def _enter(self, part: _Part, key: bytes, values: dict[str, int], held: tuple) -> None:
        """Enters words, and the owners of what they point to, in the place of those with the same key if there are."""
        words = np.frombuffer(key, np.int64)
        known = np.flatnonzero((part.entries[:, : len(words)] == words).all(1))
        place = int(known[0]) if len(known) else part.number % CALLS
        if part.entries[place, len(words) + part.names.index("busy")]:  # in another thread
            return
        part.entries[place] = 0  # no call is like it while it is written
        part.entries[place, len(words) :] = [values.get(name, 0) for name in part.names]
        part.entries[place, : len(words)] = words
        part.held[place] = held
        part.number += not len(known)
        self.words[TABLE.index(part.count)] = min(part.number, CALLS)

    def _entry(self, kind) -> tuple[dict[str, int], tuple]:
        """The words of a call, and the owners of what they point to."""
        recipe, real = kind.recipe, self.library.dtype(kind.real.name)
        values = {"kind": id(kind), "shape": id(kind.out), "sums_shape": id(kind.sums), "real": id(real)}
        values |= zip(kind.arrays(("mask", "score")), kind.tables, strict=True)
        values["narrow"] = int(kind.narrow)
        if recipe.slow or recipe.once:
            launch = functools.partial(_launch, kind)
            return values | {"launch": id(launch)}, (kind, launch)
        workspace, fresh = recipe.workspace(), recipe.block[recipe.slots :].copy()
        values |= {
            "counters": workspace.block[0],
            "fresh": address(fresh),
            "size": fresh.nbytes,
            "sums": workspace.block[FIXED.index("lse")],
            "step": recipe.step,
        }
        words, held = self._words(workspace)
        return values | words, (kind, fresh, held)

    def _words(self, workspace: Workspace) -> tuple[dict[str, int], tuple]:
        """The words of a workspace: its kernel, its memory, and the threads that run it."""
        job = dict(zip(("kernel", "block", "scratch"), workspace.job[:3], strict=True))
        if workspace.alone is not None:
            return job, (workspace,)
        number, team = threads.count(), threads.crew(helpers := workspace.workers - 1)
        share = ctypes.cast(team.share, ctypes.c_void_p).value or 0
        job |= {"threads": id(number), "workers": helpers, "share": share, "first": team.first, "bell": team.bell}
        return job | {"job": workspace.address}, (workspace, team, number)

    def forget(self) -> None:
        """Forgets all calls."""
        for part in (self.calls, self.backs):
            self.words[TABLE.index(part.count)] = part.number = 0


def _differentiate(differentiate: Callable, kind, q, k, v, *rules):
    """The output of a call that needs gradients. rules: mask and score."""
    return differentiate(kind, q, k, v, *kind.arrays(rules))


def _launch(kind, addresses: bytes):
    """Runs a call on several threads; something other than None if their number is not that of the recipe."""
    if threads.count() != kind.threads:
        return kind.threads
    engine.run(kind.recipe, ADDRESSES.unpack(addresses))
    return None
