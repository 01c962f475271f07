"""Writes a run into a folder: `run.json`, and one safetensors file per call, memory-mapped when the run is opened.

    run.json              the manifest: everything but the arrays
    call-000.safetensors  the arrays of a call: q, k, lse, rows.entropy, table.0, …

The manifest is written last and put in place by one rename, so a folder contains the old run, the new run, or calls
without a manifest, which identify an interrupted recording. Nothing is unpickled, and no other file is opened.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...common.arrays import elsewhere, read_array
from ...common.errors import Reason, Refused, refuse
from ...common.files import output as system
from ...common.files import tensors
from ..runs.axis import Axis
from ..runs.call import Call
from ..runs.run import Run, Step
from . import manifest
from .manifest import arrays_of, shown, size_of
from .reader import DRAFT, FOLDER, MANIFEST, file_of, generation_of, run_of, sha256, state_of
from .reader import open_run as open_run


def save(run: Run, folder: Path | str, *, overwrite: bool = False, limit: int | str | None = None) -> Run:
    """Writes the run into a folder and returns the same run with its arrays memory-mapped from there.

    Refused before anything is written: a folder that contains other files, an existing run unless `overwrite` is set,
    more bytes than `limit` or than the disk has. With `overwrite` the old run stays intact until the new one is
    complete.

    >>> import numpy as np, tempfile; from regard.lens.look import of_arrays
    >>> run = of_arrays(*np.random.default_rng(0).standard_normal((2, 4, 10, 8)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = save(run, folder)
    ...     again = open_run(folder)
    >>> bool((again.calls[0].weights() == run.calls[0].weights()).all())
    True
    """
    with Writer(folder, limit, overwrite=overwrite) as writer:
        writer.expect(run.calls)
        for call in run.calls:
            writer.add(call)
        return writer.finish(run.model, run.text, run.axes, run.steps, run.facts)


class Writer:
    """Writes the calls of a run one by one, while a model runs, so that they are on disk instead of in memory.

        with Writer(folder, limit="2GB") as writer:
            kept = [writer.add(call) for call in calls]
            run = writer.finish(model, text, axes, steps, facts)

    limit: the most bytes that are written, as a number or as "2GB"; None means the free space of the disk. Incomplete
    files are removed after an error. After a kill they are recognized, and removed by the next run that is written
    there with `overwrite`. Refused: see `save`.
    """

    def __init__(self, folder: Path | str, limit: int | str | None = None, *, overwrite: bool = False):
        self.folder = Path(folder).expanduser()
        self.limit = None if limit is None else size_of(limit, "save")
        self.written = 0
        self._calls: list[dict[str, Any]] = []
        self._tables: dict[tuple, tuple[int, str]] = {}  # by content: the call and name of a stored table
        self._generation = check_free(self.folder, overwrite)
        self._lock = -1

    def __enter__(self) -> Writer:
        try:
            self._new = not self.folder.exists()
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = system.lock_folder(self.folder)
        except BlockingIOError as error:
            raise refuse(
                "save",
                "the folder is in use",
                f"another run is being written to {self.folder}",
                "one at a time",
                "wait for it, or choose another folder",
            ) from error
        except OSError as error:
            raise _unwritten(self.folder, error) from error
        self._remove(lambda name: generation_of(name) == self._generation)  # files of an interrupted recording
        return self

    def __exit__(self, kind, error, trace) -> None:
        if self._lock >= 0:  # not finished
            self._remove(lambda name: name == DRAFT or generation_of(name) == self._generation)
            self._leave()
            if self._new and not os.listdir(self.folder):
                self.folder.rmdir()

    def expect(self, calls: Sequence[Call]) -> None:
        """Refuses calls that will not fit before the first byte is written."""
        self._fit(sum(array.nbytes for call in calls for array in arrays_of(call).values()), f"{len(calls)} calls")

    def add(self, call: Call) -> Call:
        """Writes a call and returns it with its arrays memory-mapped. Refused: a call that exceeds the limit."""
        number = len(self._calls)
        arrays = arrays_of(call)
        if reasons := list(manifest.faults(call.name, arrays)):
            raise Refused("save", reasons)
        described, tables = manifest.pack({"mask": call.mask, "score": call.score})
        places = []
        for one in tables:
            numbers = read_array(one.source.cpu(), "table") if elsewhere(one.source) else one.array
            content = (numbers.dtype.str, numbers.shape, sha256(numbers))
            if content not in self._tables:
                self._tables[content] = number, f"table.{len(self._tables)}"
                arrays[self._tables[content][1]] = numbers
            at, name = self._tables[content]
            places.append({"name": one.name, "call": at, "array": name})
        self._fit(sum(array.nbytes for array in arrays.values()), f"call {number}, {call.name}")
        path = self.folder / file_of(number, self._generation)
        try:
            tensors.write(path, arrays)
        except OSError as error:
            raise _unwritten(self.folder, error) from error
        self.written += path.stat().st_size
        self._calls.append(
            {
                **{name: getattr(call, name) for name in manifest.FIELDS},
                "notes": dict(call.notes),
                "overview": None if call.overview is None else call.overview.exact,
                "rules": described,
                "tables": places,
                "file": path.name,
                "arrays": {
                    name: {
                        "dtype": tensors.dtype_name(array.dtype),
                        "shape": list(array.shape),
                        "sha256": sha256(array),
                    }
                    for name, array in arrays.items()
                },
            }
        )
        return dataclasses.replace(call, **manifest.fields_of(self._calls[-1], tensors.mapped(path, "save")))

    def finish(
        self, model: str, text: str, axes: Mapping[str, Axis], steps: Sequence[Step] = (), facts: Mapping | None = None
    ) -> Run:
        """Writes the manifest, which completes the folder, and returns the run."""
        known = {name: fact for name, fact in (facts or {}).items() if name != FOLDER}
        raw = manifest.text(model, text, axes, self._calls, steps, known)
        made = run_of(manifest.parse(raw, MANIFEST), self.folder, self._generation)
        draft = self.folder / DRAFT
        try:
            draft.unlink(missing_ok=True)
            with open(system.create(draft), "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            system.to_disk(self.folder)  # the entries of the calls reach the disk before that of the manifest
            draft.replace(self.folder / MANIFEST)
            system.to_disk(self.folder)
        except OSError as error:
            raise _unwritten(self.folder, error) from error
        self._remove(lambda name: generation_of(name) not in (None, self._generation))
        self._leave()
        return made

    def _fit(self, more: int, what: str) -> None:
        reasons = []
        if self.limit is not None and self.written + more > self.limit:
            reasons.append(
                Reason(
                    "more than the limit",
                    f"{what}: {shown(more)}, after {shown(self.written)}",
                    f"at most {shown(self.limit)}",
                    "choose fewer layers, or raise the limit",
                )
            )
        room = shutil.disk_usage(self.folder).free
        if more > room:
            reasons.append(
                Reason(
                    "more than the free space of the disk",
                    f"{what}: {shown(more)}",
                    f"at most {shown(room)}",
                    "choose fewer layers, or another disk",
                )
            )
        if reasons:
            raise Refused("save", reasons)

    def _remove(self, whether: Callable[[str], bool]) -> None:
        for name in os.listdir(self.folder):
            if whether(name):
                (self.folder / name).unlink()

    def _leave(self) -> None:
        os.close(self._lock)
        self._lock = -1


def check_free(folder: Path, overwrite: bool = False) -> int:
    """The unused generation number for the new run's files. Refused: files that must not be overwritten."""
    if folder.suffix in (".html", ".htm") and not folder.exists():
        fix = f"save the page: Path({str(folder)!r}).write_text(rg.lens.page(run)), or regard look … --out {folder}"
        raise refuse("save", "the name of a page", f"{folder}", "the name of a folder", fix)
    state = state_of(folder)
    if state == "run" and overwrite:
        numbers = map(generation_of, os.listdir(folder))
        return max((number for number in numbers if number is not None), default=-1) + 1
    if state == "free" or (state == "broken" and overwrite):
        return 0
    what = {"run": "the folder contains a run", "broken": "the folder contains an interrupted recording"}.get(
        state, "the folder contains other files"
    )
    raise refuse(
        "save",
        what,
        f"{folder}",
        "a new or an empty folder",
        "choose another folder"
        if state == "other"
        else "choose another folder, or overwrite it with overwrite=True (--force)",
    )


def _unwritten(folder: Path, error: OSError) -> Refused:
    return refuse(
        "save",
        "the run cannot be written",
        f"{folder}: {error.strerror}",
        "a writable folder with enough space",
        "choose another folder",
    )
