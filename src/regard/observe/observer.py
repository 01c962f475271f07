"""`Observer`: observes every attention call of a torch module, with the path of the layer that made it.

Calls of regard are reported by `regard.common.call_hooks`. Calls of torch are intercepted as torch functions:
scaled_dot_product_attention, FlexAttention, and the products and softmax of handwritten attention. Calls inside a
compiled graph are not observed.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import CausalBias
from torch.overrides import TorchFunctionMode

from ..common.call_hooks import watchers
from ..common.errors import refuse
from ..language.problem import Problem
from .handwritten import Products, tensors_in
from .observed_call import CACHE, FLEX, HF, REGARD, SDPA, WRITTEN_OUT, ObservedCall
from .recorder import listening

ARGUMENTS = {
    REGARD: ("q", "k", "v", "arguments", "engine"),
    CACHE: ("cache", "q", "arguments", "engine", "sequences"),
    HF: ("module", "q", "k", "v", "attention_mask"),
    SDPA: ("q", "k", "v", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"),
    FLEX: ("q", "k", "v", "score_mod", "block_mask", "scale", "kernel_options", "score_buffers", "mask_buffers"),
}
WORDS = {"query": "q", "key": "k", "value": "v"}
HOOK = ObservedCall(-1, "", "")  # what is inside while an observer looks at a call: its functions are not the model's


class Running(NamedTuple):
    """A running module: its path, its range in a torch profile, and its arguments."""

    name: str
    span: Any
    args: tuple
    kwargs: dict[str, Any]


class Observer(TorchFunctionMode):
    """`with observer.watching():` appends every attention call of the model in this thread to `seen`, in order.

    describing: whether calls will be described. ranges: whether layers and calls become named ranges of a torch
    profile. backward: whether the backward pass is timed. Subclasses override `called`, `failed`, `stepped` and
    `compute`.
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
        self.products = Products()
        self.inside: ObservedCall | None = None
        self.thread = threading.get_ident()

    # Hooks for subclasses ---------------------------------------------------------------------------------------------

    def called(self, call: ObservedCall) -> None:
        """Called after an attention call."""

    def failed(self, call: ObservedCall, error: Exception) -> None:
        """Called after an attention call that raised an error."""

    def stepped(self, function, args: tuple, kwargs: dict[str, Any], out, error: Exception | None) -> None:
        """Called after any other torch function."""

    def compute(self, call: ObservedCall, function: Callable[..., Any]) -> Any:
        """The result of an attention call, which is that of the function unless a subclass computes another.

        The function takes other arguments than those of the call by name.
        """
        return function()

    # Interception of calls --------------------------------------------------------------------------------------------

    @property
    def layer(self) -> str:
        """The path of the innermost running module."""
        return self.stack[-1].name if self.stack else self.root

    @contextlib.contextmanager
    def watching(self) -> Iterator[Observer]:
        def here(hook):
            """The hook, for calls of this thread; another one may call the same model."""
            return lambda *given: hook(*given) if threading.get_ident() == self.thread else None

        handles: list[Any] = []
        for module in self.modules.values():
            handles.append(module.register_forward_pre_hook(here(self._entered), with_kwargs=True))
            handles.append(module.register_forward_hook(here(self._left), always_call=True))
        watchers.append(self._intercept)
        try:
            with listening(self) if self.describing else contextlib.nullcontext(), self:
                yield self
        finally:
            watchers.remove(self._intercept)
            for handle in handles:
                handle.remove()

    def add(self, module, problem: Problem) -> None:
        """The problem of a call from transformers, which arrives while the call is observed."""
        if self.inside is not None:
            self.inside.problem = problem

    def _entered(self, module, args: tuple, kwargs: dict[str, Any]) -> None:
        name = self.names[id(module)]
        self.stack.append(Running(name, _range(name) if self.ranges else None, args, kwargs))

    def _left(self, *_) -> None:
        span = self.stack.pop().span
        if span is not None:
            span.__exit__(None, None, None)

    def _intercept(self, label: str, function: Callable, args: tuple, kwargs: dict[str, Any]):
        """Runs and observes a call of a function of regard; older observers see it, too."""
        if self.inside is HOOK and threading.get_ident() == self.thread:
            return function(*args, **kwargs)
        present = list(watchers)  # another thread may end this block meanwhile
        if older := present[: present.index(self._intercept)] if self._intercept in present else []:
            function = functools.partial(_passed, older[-1], label, function)
        if threading.get_ident() != self.thread or self.inside is not None:
            return function(*args, **kwargs)
        return self._observe(label, function, args, kwargs)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling() or self.inside is not None:
            return function(*args, **kwargs)
        if function is F.multi_head_attention_forward:
            with self:
                return _opened(function)(*args, **kwargs)
        kind = SDPA if function is F.scaled_dot_product_attention else FLEX if _is_flex(function) else None
        if kind is not None:
            return self._observe(kind, function, args, kwargs)
        name = getattr(function, "__name__", "")
        begin = clock(args)
        try:
            out = function(*args, **kwargs)
        except Exception as error:  # reported, then raised again
            self._stepped(function, args, kwargs, None, error)
            raise
        ended = self.products.follow(name, args, kwargs, out, clock(args) - begin)
        if ended is None:
            self._stepped(function, args, kwargs, out, None)
        else:
            trail, v, product = ended
            given = {"q": trail.q, "k": trail.k, "v": v}
            call = ObservedCall(len(self.seen), self.layer, WRITTEN_OUT, given, product, trail.seconds)
            call.trail, call.outside = trail, trail.outside
            self._ended(call)
        return out

    def _observe(self, kind: str, function: Callable, args: tuple, kwargs: dict[str, Any]):
        call = ObservedCall(len(self.seen), self.layer, kind, _named(kind, args, kwargs))

        def computed(**others):
            own = [others.pop(name, value) for name, value in zip(ARGUMENTS[kind], args)]
            return function(*own, *args[len(own) :], **kwargs | others)

        return self._run(call, computed)

    def _run(self, call: ObservedCall, function: Callable[..., Any]):
        self.inside = call
        span = _range(f"{call.layer}: {call.kind} #{call.index}") if self.ranges else None
        begin = clock((call.q,))
        try:
            out = self.compute(call, function)
            call.seconds = clock((call.q,)) - begin
        except Exception as error:  # reported, then raised again
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
        self.inside = HOOK
        if self.backward:
            _time_backward(call)
        self.called(call)
        self.inside = None

    def _stepped(self, *what) -> None:
        self.inside = HOOK
        self.stepped(*what)
        self.inside = None


def module_of(model) -> torch.nn.Module | None:
    """The module itself, or the one whose method this is, such as `model.generate`; None of any other function."""
    owner = getattr(model, "__self__", model)
    return owner if isinstance(owner, torch.nn.Module) else None


def modules_of(model) -> list[torch.nn.Module]:
    """The module itself and all inside it; none of any other function."""
    owner = module_of(model)
    return [] if owner is None else list(owner.modules())


def arguments(inputs) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a model, from a mapping, a tuple or list, a tensor, or a function that returns one of these."""
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
        "inputs have an unsupported type",
        type(inputs).__name__,
        "a tensor, a tuple of positional or a dict of named arguments, or a function that returns them",
        "pass (inputs,) for a single argument of another kind",
    )


@contextlib.contextmanager
def left_alone(model) -> Iterator[None]:
    """Restores the buffers of the model and the state of torch's random numbers after the block."""
    owner = module_of(model)
    buffers = [] if owner is None else list(owner.buffers())
    saved = [buffer.detach().clone() for buffer in buffers]
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in zip(buffers, saved):
                    buffer.copy_(before)


def clock(given) -> float:
    """The time in seconds, after synchronizing with the GPU if a tensor is on one."""
    if any(isinstance(value, torch.Tensor) and value.is_cuda for value in given):
        torch.cuda.synchronize()
    return time.perf_counter()


def _named(kind: str, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, with the fields of `Arguments` as separate entries."""
    given = dict(zip(ARGUMENTS[kind], args)) | kwargs
    arguments = given.pop("arguments", None)
    rules = {} if arguments is None else arguments._asdict()
    if isinstance(mask := given.get("attn_mask"), CausalBias):  # a tensor without contents
        first = next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
        given["attn_mask"] = mask._materialize(first.device)
    return {WORDS.get(name, name): value for name, value in given.items()} | rules


def _passed(watcher, label: str, function: Callable, *args, **kwargs):
    """A call that goes to another observer."""
    return watcher(label, function, args, kwargs)


def _is_flex(function) -> bool:
    return isinstance(function, torch._ops.HigherOrderOperator) and function.name() == "flex_attention"


def _opened(function: Any) -> Callable[..., Any]:
    """A composite torch function without its check for overrides, so that the functions it calls are intercepted."""
    quiet = {name: _never for name in function.__globals__ if name.startswith("has_torch_function")}
    opened = types.FunctionType(
        function.__code__, function.__globals__ | quiet, function.__name__, function.__defaults__
    )
    opened.__kwdefaults__ = function.__kwdefaults__
    return opened


def _never(*_) -> bool:
    return False


def _range(name: str):
    """An open range of a torch profile; its name must be ASCII, because other names become "unknown" there."""
    span = torch.profiler.record_function(name)
    span.__enter__()
    return span


def _time_backward(call: ObservedCall) -> None:
    """Adds the time of every autograd node between the output and the inputs of the call to `call.backward`."""
    call.backward = 0.0
    first = getattr(call.out, "grad_fn", None)
    if first is None:
        return
    given = [call.q, call.k, call.v, *call.outside]
    ends = {tensor.grad_fn for tensor in given if isinstance(tensor, torch.Tensor)}
    nodes, waiting = set(), [first]
    while waiting:
        node = waiting.pop()
        if node in nodes or node in ends or hasattr(node, "variable"):  # AccumulateGrad belongs to its leaf
            continue
        nodes.add(node)
        waiting += [follower for follower, _ in node.next_functions if follower is not None]
    device = (call.out,)
    for node in nodes:
        begun: list[float] = []
        node.register_prehook(lambda _, begun=begun: begun.append(clock(device)))

        def ended(*_, begun=begun) -> None:
            call.backward = (call.backward or 0.0) + clock(device) - begun.pop()

        node.register_hook(ended)
