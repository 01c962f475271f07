"""`Timeline`: torch's own trace of one run with named ranges, for Perfetto, chrome://tracing and TensorBoard."""

from __future__ import annotations

import gzip
import html
import json
import os
import re
import tempfile
import time
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ...common.errors import refuse
from ...common.text.terminal_text import printable
from .faults import KINDS, Finding
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
        new = file.with_name(f".{file.name}.new")
        new.write_bytes(self.packed if file.suffix == ".gz" else gzip.decompress(self.packed))
        new.replace(file)
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


FIRST = {
    "shape": "the first wrong shape",
    "number": "NaN or infinity first appears",
    "row": "the first fully masked row",
}


@printable
@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """The result of `regard.torch.trace`; print it, or read its fields. findings: the faults, in order of detection."""

    model: str
    calls: tuple[ObservedCall, ...]
    findings: tuple[Finding, ...]

    def first(self, kind: str) -> Finding | None:
        """The first finding of a kind: "shape", "number" or "row"; None if there is none."""
        return next((finding for finding in self.findings if finding.kind == kind), None)

    def __str__(self) -> str:
        calls = (
            f"{len(self.calls)} attention call{'' if len(self.calls) == 1 else 's'}"
            if self.calls
            else "no attention call"
        )
        lines = [f"{self.model}: {calls}"]
        for kind in KINDS:
            finding = self.first(kind)
            if finding is not None:
                more = sum(other.kind == kind for other in self.findings) - 1
                lines.append(f"{FIRST[kind]}: {finding}" + (f" (and {more} more below)" if more else ""))
        if not self.findings and self.calls:
            lines.append("shapes fit, all numbers are finite, no row is fully masked")
        if not self.calls:
            lines.append(
                "neither regard, torch's attention or FlexAttention, nor a softmax between two products was called"
            )
        for (block, texts), group in groupby(
            self.calls, lambda call: (call.lines, [f.text for f in self.findings if f.call == call.index])
        ):
            some = list(group)
            where = some[0].layer if len(some) == 1 else f"{some[0].layer} … {some[-1].layer}, {len(some)} calls alike"
            lines += ["", f"{some[0].index:<3} {where}: {block[0]}"]
            lines += [f"    {line}" for line in block[1:]]
            lines += [f"  ! {text}" for text in texts]
        elsewhere = [finding for finding in self.findings if finding.call is None]
        return "\n".join([*lines, *([""] if elsewhere else []), *[f"  ! {finding}" for finding in elsewhere]])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
