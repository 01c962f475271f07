"""`profile`: the cost of each attention call of a model: time, operations, fraction of peak, memory, engine."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import math
import os
import re
import statistics
import tempfile
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from torch.profiler import ProfilerActivity

from ..common.arrays import name_of_dtype
from ..common.errors import Reason, refuse, refuse_all
from ..common.files.output import replacing
from ..common.text.terminal_text import printable
from ..common.text.units import seconds
from .handwritten import tensors_in
from .observed_call import ObservedCall, describe
from .observer import Observer, arguments, clock, left_alone, modules_of


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """A compressed Chrome trace, which can be written repeatedly (torch exports its own only once)."""

    packed: bytes

    @classmethod
    def of(cls, profiler) -> Timeline:
        """The trace of a torch profiler."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(file))
            return cls(gzip.compress(file.read_bytes()))

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of the trace: names, ts and dur in microseconds, and more."""
        return json.loads(gzip.decompress(self.packed))["traceEvents"]

    def memory(self, calls: list[int]) -> list[int | None]:
        """For each call by its index: the peak bytes that torch allocated during it; None for calls without a range."""
        events = self.events
        spans = {}
        for event in events:
            named = re.search(r" #(\d+)$", str(event.get("name"))) if event.get("cat") == "user_annotation" else None
            if named:
                spans[int(named[1])] = float(event["ts"]), float(event["ts"]) + float(event["dur"])
        marks = sorted(
            (float(event["ts"]), event["args"]["Total Allocated"], event["args"]["Bytes"])
            for event in events
            if event.get("name") == "[memory]" and "Total Allocated" in event.get("args", {})
        )
        times = np.array([mark[0] for mark in marks])
        found: list[int | None] = []
        for number in calls:
            if number not in spans:
                found.append(None)
                continue
            first, last = np.searchsorted(times, spans[number])
            inside = marks[first:last]
            before = inside[0][1] - inside[0][2] if inside else 0
            found.append(max((total for _, total, _ in inside), default=before) - before)
        return found


LISTED = 40  # the maximum number of rows in the table; of more calls, the slowest are listed


@printable
@dataclass(frozen=True, eq=False, repr=False)
class Profile:
    """The result of `regard.torch.profile`; print it, read its fields, or save its timeline.

    calls: in the order they were made. whole: seconds of a run of the model without observer; watched: with observer.
    backward: whether both include the backward pass. repeats: the number of runs of the medians. threads: torch's
    number of threads. notes: restrictions of these figures.
    """

    model: str
    calls: tuple[ObservedCall, ...]
    whole: float
    watched: float
    backward: bool
    repeats: int
    threads: int
    notes: list[str]
    timeline: Timeline

    @property
    def seconds(self) -> float:
        """Seconds of all attention calls together, without calls that have no time."""
        return sum(call.total for call in self.calls if not math.isnan(call.total))

    @property
    def flops(self) -> int:
        """Floating-point operations of all attention calls together, forward and backward."""
        return sum(call.all_flops for call in self.calls)

    @property
    def share(self) -> float:
        """The fraction of the model's time that is attention."""
        return self.seconds / self.whole if self.whole else math.nan

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the timeline of one run as a Chrome trace, for Perfetto and chrome://tracing.

        Args:
            path: the file to write; a name that ends in .gz is compressed.

        Returns:
            The path of the file.

        Raises:
            Refused: the folder does not exist.
        """
        file = Path(path)
        if not file.parent.is_dir() or file.is_dir():
            raise refuse(
                "save",
                "the trace cannot be written there",
                f"{os.fspath(path)!r}",
                "a file name in a folder that exists",
                "create the folder first, or use tensorboard(folder)",
            )
        packed = self.timeline.packed
        with replacing("save", "path", file) as draft:
            draft.write_bytes(packed if file.suffix == ".gz" else gzip.decompress(packed))
        return file

    def tensorboard(self, folder: str | os.PathLike[str], worker: str = "regard") -> Path:
        """Writes the timeline for TensorBoard's profiler plugin (tensorboard --logdir folder).

        Args:
            folder: the folder of logs, which is created if necessary.
            worker: the name of this process in TensorBoard.

        Returns:
            The path of the file.

        Raises:
            Refused: the path is a file, or the name is invalid.
        """
        if not re.fullmatch(r"[\w-]+", worker):
            raise refuse(
                "tensorboard", "not a valid worker name", repr(worker), "alphanumeric characters, - and _", "omit it"
            )
        logs = Path(folder)
        if logs.exists() and not logs.is_dir():
            raise refuse(
                "tensorboard",
                "the log path is not a folder",
                f"{os.fspath(folder)!r}, a file",
                "a new or existing folder",
                "pass another path",
            )
        logs.mkdir(parents=True, exist_ok=True)
        return self.save(logs / f"{worker}.{time.time_ns()}.pt.trace.json")

    def _printed(self, **options: Any) -> Console:
        console = Console(file=io.StringIO(), width=180, **options)
        console.print(self)
        return console

    def __str__(self) -> str:
        console = self._printed(color_system=None)
        return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._printed(record=True).export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def __rich__(self) -> Group:
        passes = "forward and backward" if self.backward else "forward"
        head = Text(
            f"{self.model}: {_time(self.whole)} a run {passes} ({_time(self.watched)} watched), "
            f"median of {self.repeats}; {self.threads} threads of torch"
        )
        if not self.calls:
            return Group(
                head,
                Text("no attention calls were observed: neither of regard, torch and FlexAttention nor handwritten"),
            )
        rest = len(self.calls) - LISTED
        hidden = [Text(f"{rest} faster calls are not listed")] if rest > 0 else []
        reasons = dict.fromkeys((call.engine, call.why) for call in self.calls)
        return Group(
            head,
            self._table(),
            *hidden,
            *[Text(f"{engine}: {why}", style="dim") for engine, why in reasons],
            *[Text(note, style="dim") for note in self.notes],
        )

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("#", "layer", "engine", "q · keys", "dtype"):
            table.add_column(heading, no_wrap=heading != "layer", overflow="fold")
        both = ("back",) if self.backward else ()
        for heading in ("time", *both, "GFLOP", "GFLOP/s", "of peak", "memory", "modelled", "of the run"):
            table.add_column(heading, justify="right", no_wrap=True)
        shown = self.calls
        if len(shown) > LISTED:
            longest = sorted(shown, key=lambda call: -call.total if call.total == call.total else 0.0)[:LISTED]
            shown = tuple(sorted(longest, key=lambda call: call.index))
        for call in shown:
            table.add_row(
                str(call.index),
                call.layer,
                call.engine,
                _sizes(call.dims),
                call.dtype,
                _time(call.seconds),
                *([_time(call.backward)] if self.backward else []),
                f"{call.all_flops / 1e9:.3g}",
                _number(call.rate / 1e9, ".3g"),
                _number(call.share, ".0%"),
                _bytes(call.measured),
                _bytes(call.modelled),
                _number(call.total / self.whole, ".1%"),
            )
        timed = [call for call in self.calls if not math.isnan(call.total)]
        rate = sum(call.all_flops for call in timed) / self.seconds if timed else math.nan
        table.add_section()
        table.add_row(
            str(len(self.calls)),
            "all",
            "",
            "",
            "",
            _time(sum(call.seconds for call in timed)),
            *([_time(sum(call.backward or 0 for call in timed))] if self.backward else []),
            f"{self.flops / 1e9:.3g}",
            _number(rate / 1e9, ".3g"),
            "",
            "",
            "",
            f"{self.share:.1%}",
        )
        return table


def _sizes(dims: dict[str, int]) -> str:
    """B×H×Q×D · G×K, and ×E if the depth of values differs."""
    if not dims:
        return "?"
    B, H, G, Q, K, D, E = (dims[name] for name in "BHGQKDE")
    return f"{B}×{H}×{Q}×{D} · {G}×{K}" + (f"×{E}" if E != D else "")


def _time(number: float | None) -> str:
    return "–" if number is None or math.isnan(number) else seconds(number)


def _bytes(size: int | None) -> str:
    if size is None:
        return "–"
    unit, factor = ("GB", 1e9) if size >= 1e9 else ("MB", 1e6) if size >= 1e6 else ("kB", 1e3)
    return f"{size / factor:.3g} {unit}"


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


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
    refuse_all("regard.torch.profile", _problems(model, repeats, warmup, peak))
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
        modules = modules_of(model)
        leaves = [parameter for parameter in modules[0].parameters() if parameter.requires_grad] if modules else []
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
    return _machine().of(name_of_dtype(call.q))


def _notes(model, calls: list[ObservedCall]) -> list[str]:
    """Restrictions of these figures, for the reader."""
    notes = []
    fast = (torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)
    if any(isinstance(module, fast) and not module.training for module in modules_of(model)):
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


def _problems(model, repeats, warmup, peak) -> Iterator[Reason]:
    if not callable(model):
        yield Reason("not a model", type(model).__name__, "a torch module, or a function", "pass the model itself")
    for name, value, least in (("repeats", repeats, 1), ("warmup", warmup, 0)):
        if type(value) is not int or value < least:
            yield Reason(f"{name} is not a number of runs", repr(value), f"an integer of {least} or more", "omit it")
    if peak is not None and not (isinstance(peak, int | float) and 0 < peak < math.inf):
        yield Reason("peak is not a positive number", repr(peak), "GFLOP/s, above 0", "omit it to measure the peak")
    compiled = [
        type(module).__name__
        for module in modules_of(model)
        if hasattr(module, "_orig_mod") or module._compiled_call_impl
    ]
    if compiled:
        yield Reason(
            "a compiled model hides its calls",
            compiled[0],
            "the model before torch.compile",
            "pass the original model; regard.torch.trace supports compiled models too",
        )
