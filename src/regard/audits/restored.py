"""`restored` leaves a model as it was: some change their own attributes, modules or settings while they run."""

from __future__ import annotations

import contextlib
import inspect
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch

CONTAINERS = (dict, OrderedDict, list, set, deque)


@contextlib.contextmanager
def restored(model: Any) -> Iterator[None]:
    """Restores after the block: all that a model holds, which is the attributes, submodules, buffers and settings of
    its modules, the caches in them, and the dtype of its weights; and the random numbers of Python and numpy.

    BigBird replaces its attention layers where the text is short, Reformer keeps the seeds that it drew, and the
    routers of NLLB-MoE and Switch Transformers note the dtype of their input and move their weights to float32. The
    values of weights are not copied, except of tables that torch changes when they are read (max_norm): no other
    forward pass without gradients changes them.
    """
    undo = list(_saved(model))
    drawn, drawn_by_numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        for action in undo:
            action()
        random.setstate(drawn)
        np.random.set_state(drawn_by_numpy)


def _saved(model: Any) -> Iterator[Callable[[], None]]:
    """What restores everything that a model holds, in modules, settings, containers and objects of other classes."""
    known: set[int] = set()
    waiting = [model]
    while waiting:
        held = waiting.pop()
        if id(held) in known or inspect.isroutine(held) or isinstance(held, type | ModuleType):
            continue
        known.add(id(held))
        if isinstance(held, torch.nn.Parameter):
            yield partial(_point_to, held, held.data)
        elif isinstance(held, torch.Tensor):
            yield partial(_copy_back, held, held.detach().clone(), _version(held))
        elif isinstance(held, np.ndarray) and held.flags.writeable:
            yield partial(np.copyto, held, held.copy())
        elif isinstance(held, tuple):
            waiting += held
        else:
            if isinstance(held, torch.nn.Embedding) and held.max_norm:
                yield partial(_copy_back, held.weight, held.weight.detach().clone(), _version(held.weight))
            held = held if type(held) in CONTAINERS else getattr(held, "__dict__", {})
            if type(held) in CONTAINERS:  # others, such as those of TorchScript, cannot be changed
                yield partial(_refill, held, held.copy())
                waiting += _parts(held)


def _parts(held: Any) -> list[Any]:
    """The keys and values of a dict, or the elements of another container."""
    return [*held, *(held.values() if isinstance(held, dict) else ())]


def _refill(held: Any, before: Any) -> None:
    if [*map(id, _parts(held))] != [*map(id, _parts(before))]:
        held.clear()
        (held.update if hasattr(held, "update") else held.extend)(before)


def _point_to(weight: Any, before: Any) -> None:
    if weight.dtype != before.dtype or weight.data_ptr() != before.data_ptr():
        weight.data = before


def _version(tensor: Any) -> int:
    """How often a tensor was written into; those of inference mode do not count it, and cannot be written into."""
    return 0 if tensor.is_inference() else tensor._version


def _copy_back(tensor: Any, before: Any, version: int) -> None:
    if _version(tensor) != version:
        tensor.detach().copy_(before)
