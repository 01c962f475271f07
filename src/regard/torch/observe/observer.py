"""Observe: every attention call of any torch module, as it happens, with the path of the layer that made it.

Regard's own functions tell of their calls (`regard.common.call_hooks`). Torch's come by as torch functions:
scaled_dot_product_attention, FlexAttention, and the products and the softmax of attention that is written out. What a
compiled graph computes is not call.
"""

from __future__ import annotations

import contextlib
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ...common.call_hooks import watchers
from ...common.errors import refuse
from ...language.problem import Problem
from ..hf.recorder import listening
from .handwritten import Lineage, tensors_in
from .observed_call import CACHE, FLEX, HF, REGARD, SDPA, WRITTEN_OUT, ObservedCall

__all__ = ["Observer", "arguments", "clock", "left_alone", "module_of"]

ARGUMENTS = {
    REGARD: ("q", "k", "v", "asked", "engine"),
    CACHE: ("cache", "q", "asked", "engine"),
    HF: ("module", "q", "k", "v", "attention_mask"),
    SDPA: ("q", "k", "v", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"),
    FLEX: ("q", "k", "v", "score_mod", "block_mask", "scale", "kernel_options", "score_buffers", "mask_buffers"),
}
WORDS = {"query": "q", "key": "k", "value": "v"}


class Running(NamedTuple):
    """A module while it runs: its path, its range in a torch profile, and what it was given."""

    name: str
    span: Any
    args: tuple
    kwargs: dict[str, Any]


class Observer(TorchFunctionMode):
    """`with observer.watching():` every attention call of the model in this thread is kept in `seen`, in order.

    describing: whether calls will be described. ranges: whether layers and calls become named ranges of a torch
    profile.
    backward: whether the time of the way back is taken. Kinds of observers override `called`, `failed` and `stepped`.
    """

    def __init__(self, model, *, describing: bool = False, ranges: bool = False, backward: bool = False):
        super().__init__()
        owner = module_of(model)
        self.modules = {} if owner is None else dict(owner.named_modules())
        self.names = {id(module): name or type(module).__name__ for name, module in self.modules.items()}
        self.root = getattr(model, "__name__", type(model).__name__)
        self.describing, self.ranges, self.backward = describing, ranges, backward
        self.seen: list[ObservedCall] = []
        self.stack: list[Running] = []
        self.lineage = Lineage()
        self.inside: ObservedCall | None = None
        self.thread = threading.get_ident()

    # What kinds of observers do ---------------------------------------------------------------------------------------

    def called(self, call: ObservedCall) -> None:
        """After an attention call."""

    def failed(self, call: ObservedCall, error: Exception) -> None:
        """After an attention call that did not come to its end."""

    def stepped(self, function, args: tuple, kwargs: dict[str, Any], out, error: Exception | None) -> None:
        """After any other function of torch."""

    # How calls are seen -----------------------------------------------------------------------------------------------

    @property
    def layer(self) -> str:
        """The path of the module that is running."""
        return self.stack[-1].name if self.stack else self.root

    @contextlib.contextmanager
    def watching(self) -> Iterator[Observer]:
        handles: list[Any] = []
        for module in self.modules.values():
            handles.append(module.register_forward_pre_hook(self._entered, with_kwargs=True))
            handles.append(module.register_forward_hook(self._left, always_call=True))
        watchers.append(self._told)
        try:
            with listening(self) if self.describing else contextlib.nullcontext(), self:
                yield self
        finally:
            watchers.remove(self._told)
            for handle in handles:
                handle.remove()

    def add(self, module, problem: Problem) -> None:
        """What transformers' function was asked, as every listener is told of it."""
        if self.inside is not None:
            self.inside.problem = problem

    def _entered(self, module, args: tuple, kwargs: dict[str, Any]) -> None:
        name = self.names[id(module)]
        self.stack.append(Running(name, _range(name) if self.ranges else None, args, kwargs))

    def _left(self, *_) -> None:
        span = self.stack.pop().span
        if span is not None:
            span.__exit__(None, None, None)

    def _told(self, label: str, function: Callable, args: tuple, kwargs: dict[str, Any]):
        """A function of regard was called."""
        if threading.get_ident() != self.thread or self.inside is not None:
            return function(*args, **kwargs)
        given = _named(label, args, kwargs)
        return self._run(ObservedCall(len(self.seen), self.layer, label, given), lambda: function(*args, **kwargs))

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling() or self.inside is not None:
            return function(*args, **kwargs)
        if function is F.multi_head_attention_forward:
            with self:
                return _opened(function)(*args, **kwargs)
        kind = SDPA if function is F.scaled_dot_product_attention else FLEX if _is_flex(function) else None
        if kind is not None:
            call = ObservedCall(len(self.seen), self.layer, kind, _named(kind, args, kwargs))
            return self._run(call, lambda: function(*args, **kwargs))
        name = getattr(function, "__name__", "")
        begin = clock(args)
        try:
            out = function(*args, **kwargs)
        except Exception as error:  # noted and raised on: what failed is shown
            self._stepped(function, args, kwargs, None, error)
            raise
        ended = self.lineage.follow(name, args, kwargs, out, clock(args) - begin)
        if ended is None:
            self._stepped(function, args, kwargs, out, None)
        else:
            trail, v, came = ended
            given = {"q": trail.q, "k": trail.k, "v": v}
            call = ObservedCall(len(self.seen), self.layer, WRITTEN_OUT, given, came, trail.seconds)
            call.trail, call.outside = trail, trail.outside
            self._ended(call)
        return out

    def _run(self, call: ObservedCall, function: Callable[[], Any]):
        self.inside = call
        span = _range(f"{call.layer}: {call.kind} #{call.index}") if self.ranges else None
        begin = clock((call.q,))
        try:
            out = function()
            call.seconds = clock((call.q,)) - begin
        except Exception as error:  # noted and raised on: what failed is shown
            call.seconds = clock((call.q,)) - begin
            self.seen.append(call)
            self.failed(call, error)
            raise
        finally:
            self.inside = None
            if span is not None:
                span.__exit__(None, None, None)
        call.out = out[0] if isinstance(out, tuple) else out
        call.outside = tensors_in([value for name, value in call.given.items() if name not in ("module", "cache")])
        self._ended(call)
        return out

    def _ended(self, call: ObservedCall) -> None:
        self.seen.append(call)
        self.inside = call  # what is asked about a call is none of the model's
        if self.backward:
            _time_backward(call)
        self.called(call)
        self.inside = None

    def _stepped(self, *what) -> None:
        self.inside = ObservedCall(-1, "", "")  # what is asked about it is none of the model's
        self.stepped(*what)
        self.inside = None


def module_of(model) -> torch.nn.Module | None:
    """The module itself, or the one whose method this is, such as `model.generate`; None of any other function."""
    owner = getattr(model, "__self__", model)
    return owner if isinstance(owner, torch.nn.Module) else None


def arguments(inputs) -> tuple[tuple, dict[str, Any]]:
    """What a model is called with: a mapping by name, a tuple or list in order, a tensor alone, or a function that
    makes them anew.
    """
    if callable(inputs) and not isinstance(inputs, torch.Tensor | Mapping):
        inputs = inputs()
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    raise refuse(
        "regard.torch",
        "inputs that no model takes",
        given=type(inputs).__name__,
        expected="a tensor, a tuple of positional or a dict of named arguments, or a function that makes them",
        fix="pass (inputs,) for a single argument of another kind",
    )


@contextlib.contextmanager
def left_alone(model) -> Iterator[None]:
    """Buffers and torch's random numbers are afterwards as they were."""
    owner = module_of(model)
    buffers = [] if owner is None else list(owner.buffers())
    kept = [buffer.detach().clone() for buffer in buffers]
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in zip(buffers, kept):
                    buffer.copy_(before)


def clock(given) -> float:
    """Seconds, after all that was asked of a graphics card has been done."""
    if any(isinstance(value, torch.Tensor) and value.is_cuda for value in given):
        torch.cuda.synchronize()
    return time.perf_counter()


def _named(kind: str, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name; those that regard's own functions pass on as one, one by one."""
    given = dict(zip(ARGUMENTS[kind], args)) | kwargs
    asked = given.pop("asked", None)
    rules = {} if asked is None else asked._asdict()
    return {WORDS.get(name, name): value for name, value in given.items()} | rules


def _is_flex(function) -> bool:
    return isinstance(function, torch._ops.HigherOrderOperator) and function.name() == "flex_attention"


def _opened(function: Any) -> Callable[..., Any]:
    """A composite function of torch that does not ask once more who overrides it, so that its parts are seen."""
    quiet = {name: _never for name in function.__globals__ if name.startswith("has_torch_function")}
    opened = types.FunctionType(
        function.__code__, function.__globals__ | quiet, function.__name__, function.__defaults__
    )
    opened.__kwdefaults__ = function.__kwdefaults__
    return opened


def _never(*_) -> bool:
    return False


def _range(name: str):
    """An open range of a torch profile; its name is plain ASCII, because others become "unknown" there."""
    span = torch.profiler.record_function(name)
    span.__enter__()
    return span


def _time_backward(call: ObservedCall) -> None:
    """Adds the time of every step of autograd between the output and what the call was given to `call.backward`."""
    call.backward = 0.0
    first = getattr(call.out, "grad_fn", None)
    if first is None:
        return
    given = [call.q, call.k, call.v, *call.outside]
    ends = {tensor.grad_fn for tensor in given if isinstance(tensor, torch.Tensor)}
    found, waiting = set(), [first]
    while waiting:
        node = waiting.pop()
        if node in found or node in ends or hasattr(node, "variable"):  # an AccumulateGrad belongs to its leaf
            continue
        found.add(node)
        waiting += [follower for follower, _ in node.next_functions if follower is not None]
    device = (call.out,)
    for node in found:
        begun: list[float] = []
        node.register_prehook(lambda _, begun=begun: begun.append(clock(device)))

        def ended(*_, begun=begun) -> None:
            call.backward = (call.backward or 0.0) + clock(device) - begun.pop()

        node.register_hook(ended)
