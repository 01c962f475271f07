"""What the judged function changed: its inputs, the state of the whole process, results that it returned earlier."""

from __future__ import annotations

import os
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np


def _module(name: str) -> Any:
    """A module that is loaded already; the judge imports none."""
    return sys.modules.get(name)


class Contents:
    """Arrays of NumPy or torch, with a checksum that tells later whether they were changed."""

    def __init__(self, arrays: Mapping[str, Any]):
        self.arrays = dict(arrays)
        self.before = {name: _checksum(array) for name, array in self.arrays.items()}

    def changed(self) -> list[str]:
        """The names of the arrays that have other contents now."""
        return [name for name, array in self.arrays.items() if _checksum(array) != self.before[name]]


def _checksum(array: Any) -> tuple[Any, ...]:
    """The shape, dtype and contents; nothing of arrays that cannot be changed, as those of JAX."""
    torch = _module("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        plain = array.detach().cpu().contiguous().reshape(-1)
        return tuple(array.shape), str(array.dtype), zlib.crc32(plain.view(torch.uint8).numpy()) if len(plain) else 0
    if isinstance(array, np.ndarray):
        plain = np.ascontiguousarray(array).reshape(-1)
        readable = plain.size and not plain.dtype.hasobject
        return array.shape, str(array.dtype), zlib.crc32(plain.view(np.uint8).data) if readable else 0
    return ()


class EarlierResult:
    """The arrays of the previous result, kept to see whether the next call returns or changes them."""

    def __init__(self, result: Any):
        found = {str(index): array for index, array in enumerate(_arrays(result))}
        self.contents = Contents(found)

    def events(self, result: Any) -> list[str]:
        """What the call that returned `result` did to this earlier result."""
        now = list(_arrays(result))
        if any(_share_memory(old, new) for old in self.contents.arrays.values() for new in now):
            return ["returned the same memory twice"]
        return ["changed an earlier result"] if self.contents.changed() else []


def _arrays(result: Any, depth: int = 3) -> Iterator[Any]:
    torch = _module("torch")
    if isinstance(result, np.ndarray) or (torch is not None and isinstance(result, torch.Tensor)):
        yield result
    elif depth and isinstance(result, (list, tuple, dict)):
        for each in list(result.values() if isinstance(result, dict) else result)[:16]:
            yield from _arrays(each, depth - 1)


def _share_memory(old: Any, new: Any) -> bool:
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        return bool(old.size and new.size and np.may_share_memory(old, new))
    if isinstance(old, np.ndarray) or isinstance(new, np.ndarray):
        return False
    places = {each.untyped_storage().data_ptr() for each in (old, new)}
    return len(places) == 1 and places != {0} and old.device == new.device


def _numpy_random() -> Any:
    name, keys, *rest = np.random.get_state(legacy=True)
    return name, np.asarray(keys).tobytes(), *rest


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return ""


def _environment(names: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(names)


def _torch(name: str) -> Callable[..., Any]:
    return lambda *arguments: getattr(_module("torch"), name)(*arguments)


# What a function has to leave as it was: its name, the module that must be loaded, how it is read and how written.
STATE: dict[str, tuple[str, Callable[[], Any], Callable[[Any], object]]] = {
    "the random state of Python": ("random", random.getstate, random.setstate),
    "the random state of NumPy": (
        "numpy",
        _numpy_random,
        lambda state: np.random.set_state((state[0], np.frombuffer(state[1], np.uint32), *state[2:])),
    ),
    "the random state of torch": (
        "torch",
        lambda: _torch("get_rng_state")().numpy().tobytes(),
        lambda state: _torch("set_rng_state")(_torch("from_numpy")(np.frombuffer(bytearray(state), np.uint8))),
    ),
    "NumPy's handling of floating-point errors": ("numpy", np.geterr, lambda state: np.seterr(**state)),
    "torch's default dtype": ("torch", _torch("get_default_dtype"), _torch("set_default_dtype")),
    "torch's gradient mode": ("torch", _torch("is_grad_enabled"), _torch("set_grad_enabled")),
    "torch's deterministic mode": (
        "torch",
        _torch("are_deterministic_algorithms_enabled"),
        _torch("use_deterministic_algorithms"),
    ),
    "torch's number of threads": ("torch", _torch("get_num_threads"), _torch("set_num_threads")),
    "the current folder": ("os", _folder, lambda state: os.chdir(state) if state else None),
    "the environment": ("os", lambda: dict(os.environ), _environment),
}


def process_state() -> dict[str, Any]:
    """The state of the process that a function of its inputs does not change."""
    return {name: read() for name, (module, read, _) in STATE.items() if _module(module) is not None}


def changed_state(before: Mapping[str, Any], *, random_allowed: bool = False) -> list[str]:
    """What differs from an earlier state, and is then set back, so that each call finds what the first one found.
    random_allowed: a call with dropout may draw random numbers.
    """
    changed = []
    for name, state in before.items():
        _, read, write = STATE[name]
        if not (random_allowed and "random" in name) and read() != state:
            changed.append(f"changed {name}")
            write(state)
    return changed
