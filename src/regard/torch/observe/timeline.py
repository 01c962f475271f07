"""`Timeline`: torch's own trace of one run with named ranges, for Perfetto, chrome://tracing and TensorBoard."""

from __future__ import annotations

import gzip
import json
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...common.errors import refuse


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
