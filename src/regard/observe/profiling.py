"""`profile`: the cost of each attention call of a model: time, operations, fraction of peak, memory, engine."""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from ..common.errors import Reason, Refused, refuse
from .handwritten import tensors_in
from .observed_call import ObservedCall, describe
from .observer import Observer, arguments, clock, left_alone, module_of
from .profile_result import Profile, Timeline


def profile(
    model: torch.nn.Module | Callable[..., Any],
    inputs: Any,
    *,
    backward: bool = False,
    repeats: int = 5,
    warmup: int = 2,
    peak: float | None = None,
) -> Profile:
    """Measures the cost of each attention call of a model: time, FLOPs, fraction of peak, memory, engine and shapes.

    FLOPs of a call = 2 · (D + E) · allowed pairs; backward 2 · (3D + 2E) · allowed pairs (the scores are recomputed).

    The calls of regard, torch's scaled_dot_product_attention and MultiheadAttention, FlexAttention, and handwritten
    attention (products and a softmax) are observed. The model runs 2 · repeats + warmup + 2 times. It is left
    unchanged: mode and gradients are not modified, buffers and the state of torch's random numbers are restored. A
    compiled function inside the model, such as FlexAttention, is listed without a time.

    Args:
        model: a torch module, a method of one (`model.generate`), or a function.
        inputs: a tensor, a tuple of positional or a dict of named arguments; or a function that returns them for each
            run, if the model modifies them (a cache).
        backward: whether the backward pass of the sum of all outputs is measured too; otherwise the model runs without
            gradients.
        repeats: the number of measured runs.
        warmup: the number of runs before.
        peak: the peak in GFLOP/s to compare with; None means the measured peak of this machine in each call's dtype.

    Returns:
        The calls with their figures, medians over the repeats in seconds; print it for a table.

    Raises:
        Refused: a compiled model, an invalid argument, or `backward` for a model without gradients; the error lists
            every problem.

    Examples:
        >>> import torch, regard.torch
        >>> layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
        >>> result = regard.torch.profile(layer, torch.zeros(1, 8, 16), repeats=1, peak=100.0)
        >>> [(call.layer, call.dims["Q"], call.flops) for call in result.calls]
        [('self_attn', 8, 4096)]
    """
    _check(model, repeats, warmup, peak)
    step = _step(model, inputs, backward)
    with left_alone(model):
        for _ in range(warmup):
            step()
        listed = _Listing(model, describing=True)
        with torch.compiler.set_stance("force_eager"), _traced_memory(), listed.watching():
            step()
        whole, watched, times = _times(step, model, backward, repeats, listed.seen)
        ranged, timeline = _timeline(step, model)
    memory = dict(zip(_keys(ranged.seen), timeline.memory([call.index for call in ranged.seen])))
    for key, call in zip(_keys(listed.seen), listed.seen):
        spans = times.get(key)
        measured = memory.get(key)
        call.seconds = statistics.median(span[0] for span in spans) if spans else math.nan
        call.backward = statistics.median(span[1] for span in spans) if spans and backward else None
        call.measured = None if measured is None else measured + (call.measured or 0)
        call.limit = _peak(call) if peak is None else float(peak)
        call.let_go()
    return Profile(
        model=getattr(model, "__name__", type(model).__name__),
        calls=tuple(listed.seen),
        whole=whole,
        watched=watched,
        backward=backward,
        repeats=repeats,
        threads=torch.get_num_threads(),
        notes=_notes(model, listed.seen),
        timeline=timeline,
    )


class _Listing(Observer):
    """Describes every call, and measures the memory that NumPy allocates during it."""

    def compute(self, call: ObservedCall, function: Callable[[], Any]) -> Any:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        out = function()
        call.measured = tracemalloc.get_traced_memory()[1] - before
        return out

    def called(self, call: ObservedCall) -> None:
        describe(call)

    def failed(self, call: ObservedCall, error: Exception) -> None:
        self.called(call)  # activation checkpointing stops its recomputation by an error


def _step(model, inputs, backward: bool) -> Callable[[], None]:
    """A function for one run of the model, forward or forward and backward."""

    def step() -> None:
        args, named = arguments(inputs)
        with torch.set_grad_enabled(backward and torch.is_grad_enabled()):
            out = model(*args, **named)
        if not backward:
            return
        ends = [tensor for tensor in tensors_in([out]) if tensor.requires_grad]
        owner = module_of(model)
        leaves = [] if owner is None else [parameter for parameter in owner.parameters() if parameter.requires_grad]
        leaves += [tensor for tensor in tensors_in([args, named]) if tensor.requires_grad and tensor.is_leaf]
        if not ends or not leaves:
            raise refuse(
                "regard.torch.profile",
                "the output has no grad_fn: nothing to backpropagate",
                "backward=True, and an output that does not require gradients",
                "a model whose parameters or inputs require gradients",
                "call it with backward=False",
            )
        torch.autograd.grad(ends, leaves, [torch.ones_like(tensor) for tensor in ends], allow_unused=True)

    return step


def _times(step, model, backward: bool, repeats: int, listed: list[ObservedCall]) -> tuple[float, float, dict]:
    """Median seconds of a run without and with observer, and (forward, backward) seconds of each call and repeat."""
    whole, watched = [], []
    times: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    device = [call.q for call in listed[:1]]
    for _ in range(repeats):
        begin = clock(device)
        step()
        whole.append(clock(device) - begin)
        observer = Observer(model, backward=backward)
        with observer.watching():
            begin = clock(device)
            step()
            watched.append(clock(device) - begin)
        for key, call in zip(_keys(observer.seen), observer.seen):
            times[key].append((call.seconds, call.backward or 0.0))
    return statistics.median(whole), statistics.median(watched), times


def _timeline(step, model) -> tuple[Observer, Timeline]:
    """One run under torch's profiler, with every layer and call as a named range."""
    observer = Observer(model, ranges=True)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with (
        torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True) as profiler,
        observer.watching(),
    ):
        step()
    return observer, Timeline.of(profiler)


def _keys(calls: list[ObservedCall]) -> list[tuple]:
    """A key for each call that is the same in every run: layer, kind, sizes, and a number among equal ones."""
    count: dict[tuple, int] = defaultdict(int)
    keys = []
    for call in calls:
        key = (call.layer, call.kind, tuple(call.q.shape))
        keys.append((*key, count[key]))
        count[key] += 1
    return keys


@functools.cache
def _machine():
    from ..engines.peak import measure

    return measure(memory=False)


@functools.cache
def _card(dtype: torch.dtype) -> float:
    """GFLOP/s of the GPU, measured by a large matrix product, the best of five."""
    n = 4096
    a = torch.ones(n, n, dtype=dtype, device="cuda")
    spans = []
    for _ in range(6):
        begin = clock((a,))
        a @ a
        spans.append(clock((a,)) - begin)
    return 2 * n**3 / min(spans[1:]) / 1e9


def _peak(call: ObservedCall) -> float:
    if getattr(call.q, "is_cuda", False):
        return _card(call.q.dtype)
    return _machine().of(str(call.q.dtype).removeprefix("torch."))


def _notes(model, calls: list[ObservedCall]) -> list[str]:
    """Restrictions of these figures, for the reader."""
    notes = []
    fast = (torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)
    owner = module_of(model)
    modules = () if owner is None else owner.modules()
    if any(isinstance(module, fast) and not module.training for module in modules):
        notes.append("torch's fused path through whole encoder layers is off while calls are watched, and on otherwise")
    if any(math.isnan(call.seconds) for call in calls):
        notes.append("a call without a time runs inside compiled code, where it cannot be timed separately")
    return notes


@contextlib.contextmanager
def _traced_memory() -> Iterator[None]:
    """Traces the memory of NumPy inside the block; tracing that was on before stays on."""
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    try:
        yield
    finally:
        if started:
            tracemalloc.stop()


def _check(model, repeats, warmup, peak) -> None:
    reasons = []
    if not callable(model):
        reasons.append(
            Reason("not a model", type(model).__name__, "a torch module, or a function", "pass the model itself")
        )
    for name, value, least in (("repeats", repeats, 1), ("warmup", warmup, 0)):
        if type(value) is not int or value < least:
            reasons.append(
                Reason(f"{name} is not a number of runs", repr(value), f"an integer of {least} or more", "omit it")
            )
    if peak is not None and not (isinstance(peak, int | float) and 0 < peak < math.inf):
        reasons.append(
            Reason("peak is not a positive number", repr(peak), "GFLOP/s, above 0", "omit it to measure the peak")
        )
    owner = module_of(model)
    modules = () if owner is None else owner.modules()
    compiled = [
        type(module).__name__ for module in modules if hasattr(module, "_orig_mod") or module._compiled_call_impl
    ]
    if compiled:
        reasons.append(
            Reason(
                "a compiled model hides its calls",
                compiled[0],
                "the model before torch.compile",
                "pass the original model; regard.torch.trace supports compiled models too",
            )
        )
    if reasons:
        raise Refused("regard.torch.profile", reasons)
