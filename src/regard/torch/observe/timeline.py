"""The timeline of one profiled run: torch's own trace with our named ranges, for Perfetto, chrome://tracing and
TensorBoard.
"""

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

__all__ = ["Timeline"]


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """A Chrome trace, compressed; torch lets its own be written only once."""

    packed: bytes

    @classmethod
    def of(cls, profiler) -> Timeline:
        """What torch.profiler has seen."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(file))
            return cls(gzip.compress(file.read_bytes()))

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events as data: names, ts and dur in microseconds."""
        return json.loads(gzip.decompress(self.packed))["traceEvents"]

    def save(self, path) -> Path:
        """Writes the trace; a name that ends in .gz gets it compressed. What stood there stays until the new file is
        whole.
        """
        file = Path(path)
        if not file.parent.is_dir() or file.is_dir():
            raise refuse(
                "save",
                "the trace cannot be written there",
                given=f"{os.fspath(path)!r}",
                expected="a file name in a folder that exists",
                fix="create the folder first, or use tensorboard(folder)",
            )
        new = file.with_name(f".{file.name}.new")
        new.write_bytes(self.packed if file.suffix == ".gz" else gzip.decompress(self.packed))
        new.replace(file)
        return file

    def tensorboard(self, folder, worker: str = "regard") -> Path:
        """Writes the trace as TensorBoard's profiler plugin reads it: <worker>.<time>.pt.trace.json in a folder of
        logs.
        """
        if not re.fullmatch(r"[\w-]+", worker):
            raise refuse(
                "tensorboard",
                "no name of a worker",
                given=repr(worker),
                expected="letters, digits, - and _",
                fix="leave it out",
            )
        logs = Path(folder)
        if logs.exists() and not logs.is_dir():
            raise refuse(
                "tensorboard",
                "the logs need a folder",
                given=f"{os.fspath(folder)!r}, a file",
                expected="a folder, new or not",
                fix="choose another name",
            )
        logs.mkdir(parents=True, exist_ok=True)
        return self.save(logs / f"{worker}.{time.time_ns()}.pt.trace.json")

    def memory(self, calls: list[int]) -> list[int | None]:
        """For each call by its number: the most that torch held during it, above what it held before; None where no
        range is.
        """
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
