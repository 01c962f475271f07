"""The judged function in the process where it runs: each call is prepared, made, watched, and its result read."""

from __future__ import annotations

import _thread
import os
import pickle
import random
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..common.arrays import bytes_of
from ..common.errors import Refused, refuse
from ..laws.call import Answer, Call
from ..sandbox.messages import one_line, said
from ..sandbox.worker import peak, restart_peak
from .conventions.fields import ATTRIBUTE, Adapter
from .conventions.parameters import Parameter, parameters_of
from .conventions.read import Unreadable, read, with_gradients
from .conventions.translate import Absent, prepare
from .target import WHERE


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
        plain = bytes_of(array) if array.numel() else b""
    elif isinstance(array, np.ndarray):
        plain = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if not array.dtype.hasobject else b""
    else:
        return ()
    return tuple(array.shape), str(array.dtype), zlib.crc32(plain)


class EarlierResult(Contents):
    """The arrays of the previous result, kept to see whether the next call returns or changes them."""

    def __init__(self, result: Any):
        super().__init__({str(index): array for index, array in enumerate(_arrays(result))})

    def events(self, result: Any) -> list[str]:
        """What the call that returned `result` did to this earlier result."""
        now = list(_arrays(result))
        if any(_share_memory(old, new) for old in self.arrays.values() for new in now):
            return ["returned the same memory twice"]
        return ["changed an earlier result"] if self.changed() else []


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


MOST = 3  # events of one kind and call
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _name(value: object) -> str:
    """A path."""
    return one_line(os.fsdecode(value) if isinstance(value, bytes) else str(value))


def _opened(arguments: tuple) -> str:
    path, _, flags = arguments
    written, shown = not isinstance(path, int) and flags & WRITING, _name(path)
    # Python writes the byte code of a module that is imported by the call.
    return f"wrote to the file {shown}" if written and shown != os.devnull and "__pycache__" not in shown else ""


def _said(words: str, named: bool = True) -> Callable[[tuple], str]:
    return lambda arguments: words + _name(arguments[0]) if named else words


# The events of sys.addaudithook, and how they are said.
WORDS: dict[str, Callable[[tuple], str]] = {
    **dict.fromkeys(
        ("os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "subprocess.Popen", "os.system"),
        _said("started a process", named=False),
    ),
    "open": _opened,
    "os.remove": _said("removed the file "),
    "os.rename": _said("renamed the file "),
    "os.truncate": _said("wrote to the file "),
    "os.mkdir": _said("created the folder "),
    "os.rmdir": _said("removed the folder "),
}


class ReportedEvents:
    """The events of one call at a time. Python keeps the hook until the process ends: for the child only."""

    def __init__(self) -> None:
        self.seen: list[str] | None = None
        self.kinds: Counter[str] = Counter()
        self.threads = 0
        sys.addaudithook(self._hook)

    def start(self) -> None:
        """Begins to collect."""
        self.threads = _thread._count()  # those that Python started, as all versions report them
        self.kinds.clear()
        self.seen = []

    def stop(self) -> list[str]:
        """What was collected, each event once."""
        seen, self.seen = self.seen or [], None
        return [*seen, "left a thread running"] if _thread._count() > self.threads else seen

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        seen = self.seen
        if seen is not None and event in WORDS and self.kinds[event] < MOST:
            words = WORDS[event](arguments)
            if words and words not in seen:
                self.kinds[event] += 1
                seen.append(words)


class Callee:
    """The judged function, called again and again.

    events: what collects side effects, or None · caught: the exceptions that count as raised by the function
    """

    def __init__(
        self, function: Callable[..., Any], events: ReportedEvents | None, caught: tuple[type[BaseException], ...]
    ):
        self.function = function
        self.events = events
        self.caught = caught
        self.description = describe(function)
        self.earlier: EarlierResult | None = None

    def answer(self, call: Call, adapter: Adapter) -> Answer:
        """Makes one call. Raises Absent if the adapter cannot express it."""
        prepared = prepare(call, adapter, self.description.parameters)
        inputs, state = Contents(prepared.given), process_state()
        size = restart_peak()
        if self.events:
            self.events.start()
        answer: Answer | None = None
        start = time.perf_counter()
        try:
            if call.dout is None:
                result = prepared.call(self.function)
            else:
                answer = with_gradients(self.function, prepared, call, adapter)
        except Absent:
            raise
        except Unreadable as error:
            answer = _unreadable(error)
        except self.caught as error:
            answer = Answer(status="raised", words=said(error))
        finally:
            seconds = time.perf_counter() - start
            seen = self.events.stop() if self.events else []
        grown = peak(size)
        seen += [f"changed its input {name}" for name in inputs.changed()]
        seen += changed_state(state, random_allowed=call.dropout is not None)
        answer = answer or self._read(result, call, adapter, seen)
        return replace(answer, events=tuple(seen), seconds=seconds, peak=grown)

    def _read(self, result: Any, call: Call, adapter: Adapter, seen: list[str]) -> Answer:
        """The answer of a result. What it says of the previous result is added to the events `seen`."""
        try:
            with np.errstate(all="ignore"):
                if self.earlier is not None:
                    seen += self.earlier.events(result)
                self.earlier = EarlierResult(result)
                return read(result, call, adapter)
        except Unreadable as error:
            return _unreadable(error)
        except self.caught as error:  # the result may be of the function's own class, whose attributes raise anything
            return Answer(status="unreadable", words=said(error))


def _unreadable(error: Unreadable) -> Answer:
    return Answer(status="unreadable", words=one_line(str(error)), returned=error.returned)


@dataclass(frozen=True, kw_only=True)
class Description:
    """A function. name: qualified, as in "package.module.function" · parameters: empty if Python cannot tell them ·
    adapter: that which it declares, or None · version: of its package, or ""
    """

    name: str
    parameters: tuple[Parameter, ...]
    adapter: Adapter | None
    version: str


def describe(function: Callable[..., Any]) -> Description:
    """Reads what a function says about itself."""
    kind = type(function)
    module = getattr(function, "__module__", None) or kind.__module__
    name = getattr(function, "__qualname__", None) or kind.__qualname__
    version = getattr(sys.modules.get(str(module).split(".")[0]), "__version__", "")
    adapter = getattr(function, ATTRIBUTE, None)
    return Description(
        name=one_line(f"{module}.{name}"),
        parameters=parameters_of(function),
        adapter=adapter if isinstance(adapter, Adapter) else None,
        version=one_line(version) if isinstance(version, str) else "",
    )


def service() -> Callable[[bytes], bytes]:
    """The replies of this process: to the first request, which names the function, and to calls of it. A reply is what
    was requested, or the exception to be raised.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # a warning would count as printed by the function
    callee: Callee | None = None

    def reply(request: bytes) -> bytes:
        nonlocal callee
        try:
            content = pickle.loads(request)
            if callee is not None:
                return pickle.dumps(callee.answer(*content))
            callee = Callee(content.load(), ReportedEvents(), (BaseException,))
            return pickle.dumps(callee.description)
        except (Absent, Refused) as error:
            return pickle.dumps(error)
        except Exception as error:
            # What prepares the call failed: an array library that is not installed, or a state that the function left.
            expected, fix = "a call that can be prepared", "change what the adapter declares, or install what it needs"
            return pickle.dumps(refuse(WHERE, "the call cannot be prepared", said(error), expected, fix))

    return reply
