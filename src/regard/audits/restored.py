"""`restored` leaves a model as it was: some change their own attributes, modules or settings while they run."""

from __future__ import annotations

import contextlib
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

CONTAINERS = (dict, OrderedDict, list, set, deque)


@contextlib.contextmanager
def restored(model: Any) -> Iterator[None]:
    """Restores after the block: all attributes, submodules, buffers and settings of the modules of a model, the dtype
    of its weights, and the random numbers of Python and numpy.

    BigBird replaces its attention layers where the text is short, Reformer keeps the seeds that it drew, and the
    routers of NLLB-MoE and Switch Transformers note the dtype of their input and move their weights to float32. The
    values of weights are not copied: no forward pass without gradients changes them.
    """
    undo = [action for owner in _owners(model) for action in _saved(owner)]
    drawn, drawn_by_numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        for action in undo:
            action()
        random.setstate(drawn)
        np.random.set_state(drawn_by_numpy)


def _owners(model: Any) -> Iterator[Any]:
    """The modules of a model and their configurations, each once."""
    known: set[int] = set()
    for module in getattr(model, "modules", tuple)():
        for owner in (module, *(getattr(module, name, None) for name in ("config", "generation_config"))):
            if hasattr(owner, "__dict__") and not isinstance(owner, type) and id(owner) not in known:
                known.add(id(owner))
                yield owner


def _saved(owner: Any) -> Iterator[Callable[[], None]]:
    """What restores the attributes of an object: which it had, the contents of its containers, and its buffers."""
    attributes = vars(owner)
    for held in (attributes, *(value for value in attributes.values() if type(value) in CONTAINERS)):
        yield partial(_refill, held, held.copy())
    for weight in (attributes.get("_parameters") or {}).values():
        if weight is not None:
            yield partial(_point_to, weight, weight.data)
    for buffer in (attributes.get("_buffers") or {}).values():
        if buffer is not None:
            yield partial(_copy_back, buffer, buffer.detach().clone(), buffer._version)


def _refill(held: Any, before: Any) -> None:
    held.clear()
    (held.update if hasattr(held, "update") else held.extend)(before)


def _point_to(weight: Any, before: Any) -> None:
    if weight.dtype != before.dtype or weight.data_ptr() != before.data_ptr():
        weight.data = before


def _copy_back(buffer: Any, before: Any, version: int) -> None:
    if buffer._version != version:
        buffer.detach().copy_(before)
