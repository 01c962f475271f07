"""A recorded run in a folder: `run.json`, and a safetensors file for each call, mapped into memory when it is opened.

    run.json              the manifest: everything but the arrays
    call-000.safetensors  the arrays of a call: q, k, lse, rows.entropy, table.0, …

The manifest is written last and put in place by one rename, so a folder holds the old run, the new run, or calls without a manifest,
which is how a recording that broke off is recognised. Nothing is unpickled, and no file but these is opened.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import elsewhere, read_array
from ..errors import Reason, Refused, refuse
from ..expr import Table, frozen_table, table
from . import layout, manifest, rules, tensors
from .axis import Axis
from .call import Call
from .run import Run, Step
from .sizes import shown, size_of
from .strict import MEND

__all__ = ["MANIFEST", "Writer", "check_free", "open_run", "save"]

MANIFEST = "run.json"
DRAFT = ".run.json.part"
FOLDER = "folder"  # the fact that a run which was opened has more than the one that was recorded: where it lies
OURS = re.compile(r"call-[0-9]{3,6}(\.[0-9]{1,9})?\.safetensors")
FURTHEST = 1 << 48  # a position from which sums of positions still fit into 64 bits
SMALL = 1 << 16  # bytes of a table that is read at once, so that equal rules of several calls are one rule


def save(run: Run, folder: Path | str, *, overwrite: bool = False, limit: int | str | None = None) -> Run:
    """Writes the run into a folder -> the same run, its arrays mapped from there.

    Refused before anything is written: a folder that holds something else, a run in the way unless `overwrite`, more bytes than
    `limit` or than the disk has. With `overwrite` the old run stays whole until the new one is.

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
    """Takes the calls of a run one by one, while a model makes them, and keeps them on the disk instead of in memory.

        with Writer(folder, limit="2GB") as writer:
            kept = [writer.add(call) for call in calls]
            run = writer.finish(model, text, axes, steps, facts)

    limit: the most bytes that are written, as a number or as "2GB"; None is no limit but the disk's. What is left unfinished by
    an error is removed again; what is left by a kill is recognised, and goes with the next run that is written there with
    `overwrite`. Refused: see `save`.
    """

    def __init__(self, folder: Path | str, limit: int | str | None = None, *, overwrite: bool = False):
        self.folder = Path(folder)
        self.limit = None if limit is None else size_of(limit, "save")
        self.written = 0
        self._calls: list[dict[str, Any]] = []
        self._tables: dict[tuple, tuple[int, str]] = {}  # by content: the call and the name under which a table stands
        self._generation = check_free(self.folder, overwrite)
        self._lock = -1

    def __enter__(self) -> Writer:
        try:
            self._new = not self.folder.exists()
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise refuse("save", "the folder is in use", f"another run is being written to {self.folder}", "one at a time",
                         "wait for it, or choose another folder") from error  # fmt: skip
        except OSError as error:
            raise _unwritten(self.folder, error) from error
        self._remove(lambda name: _generation_of(name) == self._generation)  # of a run that broke off
        return self

    def __exit__(self, kind, error, trace) -> None:
        if self._lock >= 0:  # not finished
            self._remove(lambda name: _generation_of(name) == self._generation)
            self._leave()
            if self._new:
                self.folder.rmdir()

    def expect(self, calls: Sequence[Call]) -> None:
        """Refuses what will not fit before the first byte is written."""
        self._fit(sum(array.nbytes for call in calls for array in layout.arrays_of(call).values()), f"{len(calls)} calls")

    def add(self, call: Call) -> Call:
        """Writes a call -> the same call with its arrays mapped from the disk. Refused: one that does not fit into the limit."""
        number = len(self._calls)
        arrays = layout.arrays_of(call)
        if reasons := [
            *_unkept(call, arrays),
            *layout.faults(call.name, {name: array.shape for name, array in arrays.items()}),
        ]:
            raise Refused("save", reasons)
        described, tables = rules.pack({"mask": call.mask, "score": call.score})
        places = []
        for one in tables:
            numbers = read_array(one.source.cpu(), "table") if elsewhere(one.source) else one.array
            content = (numbers.dtype.str, numbers.shape, _sha256(numbers))
            if content not in self._tables:
                self._tables[content] = number, f"table.{len(self._tables)}"
                arrays[self._tables[content][1]] = numbers
            at, name = self._tables[content]
            places.append({"name": one.name, "call": at, "array": name})
        self._fit(sum(array.nbytes for array in arrays.values()), f"call {number}, {call.name}")
        path = self.folder / _file(number, self._generation)
        try:
            tensors.write(path, arrays)
        except OSError as error:
            raise _unwritten(self.folder, error) from error
        self.written += path.stat().st_size
        self._calls.append({
            "name": call.name, "layer": call.layer, "queries": call.queries, "keys": call.keys, "scale": call.scale,
            "start": call.start, "engine": call.engine, "notes": dict(call.notes),
            "overview": None if call.overview is None else call.overview.exact, "rules": described, "tables": places,
            "file": path.name,
            "arrays": {name: {"dtype": tensors.dtype_name(array.dtype), "shape": list(array.shape), "sha256": _sha256(array)}
                       for name, array in arrays.items()},
        })  # fmt: skip
        kept = tensors.mapped(path, "save")
        return dataclasses.replace(call, **layout.fields_of({name: kept[name] for name in arrays}, self._calls[-1]["overview"]))

    def finish(
        self, model: str, text: str, axes: Mapping[str, Axis], steps: Sequence[Step] = (), facts: Mapping | None = None
    ) -> Run:
        """Puts the manifest in place, which makes the folder a run -> the run."""
        known = {name: fact for name, fact in (facts or {}).items() if name != FOLDER}
        raw = manifest.text(model, text, axes, self._calls, steps, known)
        made = _run_of(manifest.parse(raw, MANIFEST, "save"), self.folder, "save", self._generation)
        draft = self.folder / DRAFT
        try:
            draft.unlink(missing_ok=True)
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
            with open(handle, "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(handle)
            os.fsync(self._lock)  # the names of the calls come to the disk before the name of the manifest
            draft.replace(self.folder / MANIFEST)
            os.fsync(self._lock)
        except OSError as error:
            raise _unwritten(self.folder, error) from error
        self._remove(lambda name: _generation_of(name) not in (None, self._generation))
        self._leave()
        return made

    def _fit(self, more: int, what: str) -> None:
        reasons = []
        if self.limit is not None and self.written + more > self.limit:
            reasons.append(Reason("more than the limit", f"{what}: {shown(more)}, with {shown(self.written)} before it",
                                  f"at most {shown(self.limit)}", "choose fewer layers, or raise the limit"))  # fmt: skip
        room = shutil.disk_usage(self.folder).free
        if more > room:
            reasons.append(Reason("more than the disk has", f"{what}: {shown(more)}", f"at most the {shown(room)} that are free",
                                  "choose fewer layers, or another disk"))  # fmt: skip
        if reasons:
            raise Refused("save", reasons)

    def _remove(self, whether) -> None:
        for name in os.listdir(self.folder):
            if whether(name):
                (self.folder / name).unlink()

    def _leave(self) -> None:
        os.close(self._lock)
        self._lock = -1


def open_run(folder: Path | str, *, verify: bool = False) -> Run:
    """The run of a folder, in milliseconds and next to no memory: its arrays are mapped, read-only.

    verify: read everything once and compare it with the SHA-256 that it was written with. Refused, with every reason: folders
    without a run or with half of one, damaged, foreign and newer files, links, and arrays that do not fit each other.
    """
    folder = Path(folder)
    where = "open"
    path = folder / MANIFEST
    if not folder.is_dir():
        raise refuse(where, "no run", f"{folder} is {'a file' if folder.exists() else 'not there'}", "the folder of a recorded run",
                     "check the path, or record one with regard look --save")  # fmt: skip
    if not os.path.lexists(path):
        if _state(folder) == "broken":
            raise refuse(where, "a run that broke off", f"{folder} holds calls and no {MANIFEST}", f"{MANIFEST}, which is written last",
                         "record it again")  # fmt: skip
        raise refuse(where, "no run", f"{folder} holds no {MANIFEST}", "the folder of a recorded run", "check the path")
    try:
        with open(tensors.opened(path), "rb") as file:
            raw = file.read()
    except (OSError, ValueError) as error:
        raise Refused(where, [Reason("a manifest that cannot be read", str(error), "a plain file", MEND)]) from error
    found = manifest.parse(raw, str(path), where)
    generation = _generation_of(found["calls"][0]["file"]) if found["calls"] else None
    return _run_of(found, folder, where, generation or 0, verify)


def _run_of(found: Mapping[str, Any], folder: Path, where: str, generation: int, verify: bool = False) -> Run:
    """The run that a manifest describes; the axes, every call and the whole are looked through before anything is refused."""
    reasons: list[Reason] = []
    axes: dict[str, Axis] = {}
    calls: list[Call] = []
    files: list[dict[str, np.ndarray]] = []
    for name, described in found["axes"].items():
        try:
            axes[name] = manifest.axis_of(name, described, where)
        except Refused as refused:
            reasons += refused.reasons
    for number, described in enumerate(found["calls"]):
        try:
            files.append({})
            files[-1] = _arrays_of(folder, number, described, generation, where, verify)
            calls.append(_call_of(described, files, where))
        except Refused as refused:
            reasons += refused.reasons
    if reasons:
        raise Refused(where, reasons)
    return Run(found["model"], found["text"], axes, tuple(calls), manifest.steps_of(found["steps"]),
               found["facts"] | {FOLDER: str(folder)})  # fmt: skip


def _arrays_of(
    folder: Path, number: int, described: Mapping, generation: int, where: str, verify: bool
) -> dict[str, np.ndarray]:
    """The arrays of a call, after the manifest and the file have been found to say the same of them."""
    expected = _file(number, generation)
    if described["file"] != expected:
        raise refuse(where, "a call in another file", f"call {number}: {described['file'][:80]!r}", repr(expected), MEND)
    found = tensors.mapped(folder / expected, where)
    at, claims = f"{folder / expected}", described["arrays"]
    reasons = [Reason("an array that is not there", f"{at}: {name[:80]}", "what the manifest lists", MEND)
               for name in claims.keys() - found.keys()]  # fmt: skip
    reasons += [Reason("an array that the manifest does not list", f"{at}: {name[:80]}", "what it lists", MEND)
                for name in found.keys() - claims.keys()]  # fmt: skip
    for name in claims.keys() & found.keys():
        array, claim = found[name], claims[name]
        if [tensors.dtype_name(array.dtype), list(array.shape)] != [claim["dtype"], claim["shape"]]:
            reasons.append(Reason("an array of another kind", f"{at}: {name[:80]} is {array.dtype} {list(array.shape)}",
                                  f"{claim['dtype'][:20]} {claim['shape'][:16]}, as the manifest says", MEND))  # fmt: skip
        elif verify and _sha256(array) != claim["sha256"]:
            reasons.append(Reason("an array that has changed", f"{at}: {name}", f"SHA-256 {claim['sha256'][:80]}", MEND))
    if reasons:
        raise Refused(where, reasons)
    return {name: found[name] for name in claims}


def _call_of(described: Mapping, files: Sequence[Mapping[str, np.ndarray]], where: str) -> Call:
    arrays = {name: array for name, array in files[-1].items() if not name.startswith("table.")}
    reasons = layout.faults(described["name"], {name: array.shape for name, array in arrays.items()})
    if (described["overview"] is None) != ("overview.share" not in arrays):
        reasons.append(Reason("half an overview", f"{described['name']}", "its numbers, and how they came about", MEND))
    if abs(described["start"]) > FURTHEST:
        reasons.append(
            Reason("a start beyond all axes", f"{described['name']}: {str(described['start'])[:40]}", "a position", MEND)
        )
    tables: list[Table] = []
    for one in described["tables"]:
        numbers = files[one["call"]].get(one["array"]) if 0 <= one["call"] < len(files) else None
        if numbers is None:
            reasons.append(Reason("a table that is not there", f"{described['name']}: {one['array'][:80]} of call {one['call']}",
                                  "a table of this call or an earlier one", MEND))  # fmt: skip
        else:
            tables.append((frozen_table if numbers.nbytes <= SMALL else table)(numbers, one["name"]))
    made: dict[str, Any] = {}
    if not reasons:
        made = rules.unpack(described["rules"], tables, where)
        if made["mask"] is not None and (made["mask"].kind != "bool" or made["mask"].scored):
            reasons.append(Reason("no mask", f"{described['name']}: `{made['mask']}`", "a condition on positions", MEND))
        if made["score"] is not None and made["score"].kind == "bool":
            reasons.append(Reason("no score", f"{described['name']}: `{made['score']}`", "a number", MEND))
    if reasons:
        raise Refused(where, reasons)
    return Call(
        described["name"], described["layer"], described["queries"], described["keys"], scale=float(described["scale"]),
        start=described["start"], engine=described["engine"], notes=described["notes"], **made,
        **layout.fields_of(arrays, described["overview"]),
    )  # fmt: skip


def _unkept(call: Call, arrays: Mapping[str, np.ndarray]) -> list[Reason]:
    return [
        Reason("an array of a kind that is not kept", f"{call.name}: {name} of {array.dtype}", "floats, whole numbers or booleans",
               "convert it with .astype(…)")
        for name, array in arrays.items() if not tensors.dtype_name(array.dtype)
    ]  # fmt: skip


def check_free(folder: Path, overwrite: bool = False) -> int:
    """The number of the new run's files, which no run in the folder uses. Refused: what must not be written over."""
    state = _state(folder)
    if state == "run" and overwrite:
        used = {_generation_of(name) for name in os.listdir(folder)} - {None}
        return max(used, default=-1) + 1  # type: ignore[type-var, operator]
    if state == "free" or (state == "broken" and overwrite):
        return 0
    what = {"run": "a run is in the way", "broken": "a run that broke off is in the way"}.get(state, "something is in the way")
    raise refuse("save", what, f"{folder}", "a new or an empty folder", "choose another folder" if state == "other" else
                 "choose another folder, or write over it with overwrite=True (--force)")  # fmt: skip


def _state(folder: Path) -> str:
    """What the folder holds: "free" (nothing), "run", "broken" (calls without a manifest), "other"."""
    if not folder.exists():
        return "free"
    names = os.listdir(folder) if folder.is_dir() else [folder.name]
    if MANIFEST in names:
        with (folder / MANIFEST).open("rb") if (folder / MANIFEST).is_file() else open(os.devnull, "rb") as file:
            ours = manifest.FORMAT.encode() in file.read(64)
        return "run" if ours else "other"
    if not all(OURS.fullmatch(name) or name == DRAFT for name in names):
        return "other"
    return "broken" if names else "free"


def _file(number: int, generation: int) -> str:
    return f"call-{number:03}{f'.{generation}' if generation else ''}.safetensors"


def _generation_of(name: str) -> int | None:
    """The number in the name of a call's file, None for other files."""
    found = OURS.fullmatch(name)
    return None if found is None else int((found[1] or ".0")[1:])


def _sha256(array: np.ndarray) -> str:
    digest = hashlib.sha256()
    for block in tensors.blocks(array):
        digest.update(block)
    return digest.hexdigest()


def _unwritten(folder: Path, error: OSError) -> Refused:
    return refuse(
        "save", "the run cannot be written", f"{folder}: {error.strerror}", "a folder with room in it", "choose another folder"
    )
