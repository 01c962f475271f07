"""Direct calls: a call of torch like an earlier one goes from its tensors to its kernel in machine code.

Python needs longer to check a call of a few rows than the kernel needs to compute it. `attend` is a function in machine
code with a table of calls that have been checked (jit/run/direct_code.py); it makes what is not in the table, or
intercepted, or needs gradients, the caller's task. Tensors are read by DLPack's C exchange interface: without it, or
without CPython and its lock, every call is checked in Python (fast_path.py), with the same results.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
import sysconfig
from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np

from ..common.arrays import address
from ..common.caching import lock
from ..common.call_hooks import watchers

__all__ = ["attend", "layout", "remember"]

CALLS = 64  # in the table; another one takes the place of the oldest
LARGE = 4 << 20  # bytes of working memory beyond which a call takes so long that Python may start it
ADDRESSES = Struct("4q")


def attend(*call) -> Any:
    """The output of a call (q, k, v, *Arguments, engine) like one in the table; None for any other. Replaced by machine
    code when the first call is remembered.
    """
    return None


def layout(*tensors) -> bytes | None:
    """The addresses of seven plain tensors on the CPU, then their layouts; None if one is not. Replaced by machine code
    as `attend` is.
    """
    return None


def remember(call: tuple, kind, differentiate: Callable | None) -> None:
    """Enters a call that has been checked, if its rules read no arrays.

    kind: what `fast_path` keeps of it. differentiate: (kind, q, k, v) -> the output of a call that needs gradients.
    """
    global attend, layout
    if any(getattr(rule, "tables", ()) for rule in call[3:5]):
        return
    table = _table()
    if table is None:
        return
    table.remember(call, kind, differentiate)
    attend, layout = table.attend, table.layout


@functools.cache
def _table() -> _Table | None:
    """The table of this process; None where a call cannot be read in machine code."""
    torch = sys.modules["torch"]
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    locked = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
    if exchange is None or not locked or object.__basicsize__ != 2 * ctypes.sizeof(ctypes.c_void_p):
        return None
    read = _reader(exchange)
    return _Table(torch, read) if read else None


def _reader(exchange) -> int:
    """The address of `dltensor_from_py_object_no_sync` in a DLPackExchangeAPI of version 1; 0 in another version."""
    python = ctypes.pythonapi
    name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", python))(exchange)
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", python))
    words = pointer(exchange, name)
    if ctypes.c_uint32.from_address(words).value != 1:
        return 0
    return ctypes.c_void_p.from_address(words + 40).value or 0


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


METH_FASTCALL = 0x80


class _Table:
    """The memory that the machine code reads, and the owners of what it points to."""

    def __init__(self, torch, read: int):
        from .jit.code import build, target
        from .jit.run import direct_code as code
        from .jit.run import threads

        self.code, self.lock = code, lock()
        self.held: list[Any] = [None] * CALLS
        self.number = 0  # calls remembered so far
        self.entries = np.zeros((CALLS, code.KEY + len(code.ENTRY)), np.int64)
        self.rooms: dict[str, np.ndarray] = {}
        interception = torch._C
        level, profiler = torch.autograd.forward_ad, torch.autograd.profiler
        conditions = (
            (interception._are_functorch_transforms_active, None, False),
            (interception._len_torch_dispatch_stack, None, 0),
            (interception._is_tracing, None, False),
            (level, "_current_level", -1),
            (profiler, "_is_profiler_enabled", False),
            (target, "_forced", None),
            (threads, "limits", 0),
            (watchers.__len__, None, 0),
        )
        self.conditions = conditions
        triples = [[id(thing), 0 if name is None else id(name), id(expected)] for thing, name, expected in conditions]
        self.triples = np.array(triples, np.int64)
        objects = {
            "none": None,
            "false": False,
            "float": float,
            "tensor": torch.Tensor,
            "parameter": torch.nn.Parameter,
            "requires_grad": "requires_grad",
            "grad_enabled": torch.is_grad_enabled,
            "is_neg": torch.Tensor.is_neg,
            "storage": torch.Tensor.untyped_storage,
            "offset": torch.Tensor.storage_offset,
            "new_empty": torch.Tensor.new_empty,
            "get_threads": torch.get_num_threads,
        }
        self.objects = objects
        words = {name: id(thing) for name, thing in objects.items()}
        words |= {"count": 0, "latest": 0, "entries": address(self.entries), "read": read}
        words |= {"conditions": len(conditions), "first": address(self.triples)}
        self.words = np.array([words[name] for name in code.TABLE], np.int64)
        build.python_functions(code.PYTHON)
        self.machine_code = build.compiled("direct call", target.host(), code.write, "attend")
        self.methods: list[_Method] = []
        self.attend = self._function("attend")
        self.describe, self.layout = self._function("describe"), self._function("layout")

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
        """Enters a call, in the place of an equal one if there is one."""
        key = self.describe(*call)
        if key is None:
            return
        words = np.frombuffer(key, np.int64)
        known = np.flatnonzero((self.entries[:, : len(words)] == words).all(1))
        with self.lock:
            place = int(known[0]) if len(known) else self.number % CALLS
            values, held = self._entry(kind)
            if differentiate is not None and kind.even:
                held = held, (again := functools.partial(differentiate, kind))
                values["differentiate"] = id(again)
            self.entries[place] = 0  # no call is like it while it is written
            self.entries[place, len(words) :] = [values[name] for name in self.code.ENTRY]
            self.entries[place, : len(words)] = words
            self.held[place] = call[3:], held
            self.number += not len(known)
            self.words[self.code.TABLE.index("count")] = min(self.number, CALLS)

    def _entry(self, kind) -> tuple[dict[str, int], tuple]:
        """The words of an entry, and the owners of what they point to."""
        from .jit.engine import block_of, parts_of
        from .jit.run.launch import Arena
        from .jit.run.threads import crew

        recipe = kind.recipe
        alone = recipe.workers == 1 and not recipe.room
        values = dict.fromkeys(self.code.ENTRY, 0)
        values["shape"] = id(kind.out)
        size = math.prod(kind.sums) * kind.real.itemsize
        if not alone and size + recipe.room * kind.real.itemsize + recipe.workers * recipe.ready.scratch > LARGE:
            launch = functools.partial(_launch, kind)
            return values | {"launch": id(launch)}, (kind, launch)
        sums = self._room("sums", size) if alone else np.empty(size, np.uint8)
        block = block_of(recipe, sums[:size].view(kind.real).reshape(kind.sums))
        fresh = recipe.block[recipe.slots :].copy()
        values |= {
            "kernel": recipe.ready.kernel.address,
            "block": address(block),
            "counters": address(block) + 8 * recipe.slots,
        }
        fresh[0] = 0
        values |= {"fresh": address(fresh), "size": fresh.nbytes}
        held = kind, block, sums, fresh
        if alone:
            scratch = self._room("scratch", recipe.ready.scratch)
            return values | {"scratch": address(scratch)}, (*held, scratch)
        parts = parts_of(recipe, block, kind.real)
        arena = Arena.of(recipe.ready.scratch, recipe.workers)
        arena.fill(recipe.ready.kernel, block, recipe.ready.scratch, recipe.workers)
        team, number = crew(recipe.workers - 1), sys.modules["torch"].get_num_threads()
        values |= {
            "threads": id(number),
            "workers": recipe.workers - 1,
            "share": ctypes.cast(team.share, ctypes.c_void_p).value or 0,
            "first": team.first,
            "bell": team.bell,
            "job": arena.address,
        }
        return values, (*held, parts, arena, team, number)

    def _room(self, name: str, size: int) -> np.ndarray:
        """Memory that all calls on one thread use, because they hold Python's lock; entries keep the room that they
        know.
        """
        from .jit.engine import aligned

        room = self.rooms.get(name)
        if room is None or len(room) < size:
            room = self.rooms[name] = aligned(max(size, 1 << 16), np.dtype(np.uint8))
        return room

    def forget(self) -> None:
        """Forgets all calls."""
        self.words[self.code.TABLE.index("count")] = self.number = 0


def _forget() -> None:
    """A forked child has other threads."""
    if _table.cache_info().currsize and (table := _table()) is not None:
        table.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _launch(kind, addresses: bytes):
    """Runs a call on several threads; something other than None if their number is not that of the recipe."""
    from . import jit

    if jit.threads.count() != kind.threads:
        return kind.threads
    jit.run(kind.recipe, ADDRESSES.unpack(addresses), np.empty(kind.sums, kind.real), ())
    return None
