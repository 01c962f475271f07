"""`Profile`: the result of `regard.torch.profile`: figures, a printable table, and the timeline of one run."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ..common.errors import refuse
from ..common.files.output import replacing
from ..common.text.terminal_text import printable
from .observed_call import ObservedCall


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

    def save(self, path) -> Path:
        """Writes the trace, compressed if the name ends in .gz; an existing file is replaced atomically."""
        file = Path(path)
        if not file.parent.is_dir() or file.is_dir():
            raise refuse(
                "save",
                "the trace cannot be written there",
                f"{os.fspath(path)!r}",
                "a file name in a folder that exists",
                "create the folder first, or use tensorboard(folder)",
            )
        with replacing("save", "path", file) as draft:
            draft.write_bytes(self.packed if file.suffix == ".gz" else gzip.decompress(self.packed))
        return file

    def tensorboard(self, folder, worker: str = "regard") -> Path:
        """Writes the trace for TensorBoard's profiler plugin: <worker>.<time>.pt.trace.json in a folder of logs."""
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
        return self.timeline.save(path)

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
        return self.timeline.tensorboard(folder, worker)

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=180, color_system=None)
        console.print(self)
        return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]

    __repr__ = __str__

    def _repr_html_(self) -> str:
        console = Console(file=io.StringIO(), width=180, record=True)
        console.print(self)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")

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


def _time(seconds: float | None) -> str:
    if seconds is None or math.isnan(seconds):
        return "–"
    unit, factor = ("s", 1.0) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)
    return f"{seconds * factor:.3g} {unit}"


def _bytes(size: int | None) -> str:
    if size is None:
        return "–"
    unit, factor = ("GB", 1e9) if size >= 1e9 else ("MB", 1e6) if size >= 1e6 else ("kB", 1e3)
    return f"{size / factor:.3g} {unit}"


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)
