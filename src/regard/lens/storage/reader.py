"""Reads a recorded run from its folder; the files are validated against each other before the run is built."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...common.errors import Reason, Refused, refuse
from ...common.files import tensors
from ...common.files.strict_json import FIX
from ...language.expr import Table, frozen_table, table
from ..runs.axis import Axis
from ..runs.call import Call
from ..runs.labels import words
from ..runs.run import Run
from ..text_or_path import exists
from . import manifest
from .manifest import shown

MANIFEST = "run.json"
DRAFT = ".run.json.part"
OURS = re.compile(r"call-[0-9]{3,6}(\.[0-9]{1,9})?\.safetensors")
FOLDER = "folder"  # the additional fact of a run that was opened: its folder
SMALL = 1 << 16  # bytes: smaller tables are copied, so that equal rules of several runs are one rule
FURTHEST = 1 << 48  # a position from which sums of positions still fit into 64 bits
MOST = 20  # reasons that an error lists; a file of another format may have thousands


def open_run(folder: Path | str, *, verify: bool = False) -> Run:
    """Opens the run of a folder in milliseconds and almost no memory: its arrays are memory-mapped, read-only.

    verify: read all arrays and compare them with the SHA-256 in the manifest. Refused, listing every problem: folders
    without a complete run, damaged files, files of another format or a newer version, links, and arrays that do not
    fit each other.
    """
    try:
        return _open(Path(folder).expanduser(), verify)
    except Refused as refused:
        # Text of an untrusted file is escaped before it is shown.
        listed = [
            Reason(**{name: words(part)[:500] for name, part in vars(one).items()}) for one in refused.reasons[:MOST]
        ]
        if len(refused.reasons) > MOST:
            listed.append(Reason("more problems", f"{len(refused.reasons) - MOST} reasons", "none", FIX))
        raise Refused("open", listed) from None


def _open(folder: Path, verify: bool) -> Run:
    path = folder / MANIFEST
    if not os.path.lexists(path):
        if state_of(folder) == "broken":
            raise refuse(
                "open",
                "an interrupted recording",
                f"{folder} contains calls without a {MANIFEST}",
                f"{MANIFEST}, which is written last",
                "record it again",
            )
        lacking = f"without a {MANIFEST}" if folder.is_dir() else "is a file" if folder.exists() else "does not exist"
        raise refuse(
            "open",
            "not the folder of a run",
            f"{folder} {lacking}",
            "the folder of a recorded run",
            "check the path, or record one with regard look --save",
        )
    try:
        with open(tensors.opened(path), "rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > manifest.LARGEST + 64:
                raise ValueError(f"{path} has {shown(size)}; at most {shown(manifest.LARGEST)} are read")
            raw = file.read()
    except (OSError, ValueError) as error:
        raise refuse("open", "a manifest that cannot be read", str(error), "a regular file", FIX) from error
    found = manifest.parse(raw, str(path))
    generation = generation_of(found["calls"][0]["file"]) if found["calls"] else None
    return run_of(found, folder, generation or 0, verify)


def run_of(found: Mapping[str, Any], folder: Path, generation: int, verify: bool = False) -> Run:
    """The run that a manifest describes. All axes and calls are checked before `Refused` is raised."""
    reasons: list[Reason] = []
    axes: dict[str, Axis] = {}
    calls: list[Call] = []
    files: list[dict[str, np.ndarray]] = []
    tables: dict[
        tuple[int, str, str], Table
    ] = {}  # each is created once, so that equal rules of several calls are one rule
    for name, described in found["axes"].items():
        try:
            axes[name] = manifest.axis_of(name, described)
        except Refused as refused:
            reasons += refused.reasons
    for number, described in enumerate(found["calls"]):
        try:
            files.append({})
            files[-1] = _arrays_of(folder, number, described, generation, verify)
            calls.append(_call_of(described, files, tables))
        except Refused as refused:
            reasons += refused.reasons
    if reasons:
        raise Refused("open", reasons)
    return Run(
        found["model"],
        found["text"],
        axes,
        tuple(calls),
        manifest.steps_of(found["steps"]),
        found["facts"] | {FOLDER: str(folder)},
    )


def _arrays_of(folder: Path, number: int, described: Mapping, generation: int, verify: bool) -> dict[str, np.ndarray]:
    """The arrays of a call, after checking that the manifest agrees with the file."""
    expected = file_of(number, generation)
    if described["file"] != expected:
        raise refuse(
            "open", "a call in another file", f"call {number}: {described['file'][:80]!r}", repr(expected), FIX
        )
    found = tensors.mapped(folder / expected, "open")
    at, claims = f"{folder / expected}", described["arrays"]
    reasons = [
        Reason("a missing array", f"{at}: {name[:80]}", "all arrays of the manifest", FIX)
        for name in claims.keys() - found.keys()
    ]
    reasons += [
        Reason("an array that the manifest does not list", f"{at}: {name[:80]}", "only arrays of the manifest", FIX)
        for name in found.keys() - claims.keys()
    ]
    for name in claims.keys() & found.keys():
        array, claim = found[name], claims[name]
        if [tensors.dtype_name(array.dtype), list(array.shape)] != [claim["dtype"], claim["shape"]]:
            reasons.append(
                Reason(
                    "an array with another dtype or shape",
                    f"{at}: {name[:80]} is {array.dtype} {list(array.shape)}",
                    f"{claim['dtype'][:20]} {claim['shape'][:16]}, as in the manifest",
                    FIX,
                )
            )
        elif verify and sha256(array) != claim["sha256"]:
            reasons.append(Reason("the array was changed", f"{at}: {name}", f"SHA-256 {claim['sha256'][:80]}", FIX))
    if reasons:
        raise Refused("open", reasons)
    return {name: found[name] for name in claims}


def _call_of(
    described: Mapping, files: Sequence[Mapping[str, np.ndarray]], known: dict[tuple[int, str, str], Table]
) -> Call:
    arrays = {name: array for name, array in files[-1].items() if not name.startswith("table.")}
    reasons = list(manifest.faults(described["name"], arrays))
    if (described["overview"] is None) != ("overview.share" not in arrays):
        reasons.append(Reason("an incomplete overview", f"{described['name']}", "its arrays and its exactness", FIX))
    if abs(described["start"]) > FURTHEST:
        reasons.append(
            Reason("start is too large", f"{described['name']}: {str(described['start'])[:40]}", "a position", FIX)
        )
    tables: list[Table] = []
    for one in described["tables"]:
        place = one["call"], one["array"], one["name"]
        numbers = files[one["call"]].get(one["array"]) if 0 <= one["call"] < len(files) else None
        if numbers is None:
            reasons.append(
                Reason(
                    "a missing table",
                    f"{described['name']}: {one['array'][:80]} of call {one['call']}",
                    "a table of this call or an earlier one",
                    FIX,
                )
            )
        else:
            if place not in known:
                known[place] = _table(numbers, one["name"])
            tables.append(known[place])
    made: dict[str, Any] = {}
    if not reasons:
        made = manifest.unpack(described["rules"], tables)
        if made["mask"] is not None and (made["mask"].kind != "bool" or made["mask"].scored):
            reasons.append(
                Reason(
                    "the mask is not a condition",
                    f"{described['name']}: `{made['mask']}`",
                    "a condition on positions",
                    FIX,
                )
            )
        if made["score"] is not None and made["score"].kind == "bool":
            reasons.append(
                Reason("the score is not a number", f"{described['name']}: `{made['score']}`", "a number", FIX)
            )
    if reasons:
        raise Refused("open", reasons)
    return Call(
        **manifest.fields_of(described, arrays),
        **made,
    )


def _table(numbers: np.ndarray, name: str) -> Table:
    """The array as a table for rules. Files of a run are never rewritten, so plans made from them stay valid."""
    if numbers.nbytes <= SMALL:
        return frozen_table(numbers, name)
    found = table(numbers, name)
    return Table(found.source, found.array, name, frozen=True)


def is_run(folder: Path | str) -> bool:
    """Whether this is a folder with a run, complete or interrupted."""
    if not exists(str(folder)):
        return False
    path = Path(folder).expanduser()
    return path.is_dir() and (os.path.lexists(path / MANIFEST) or state_of(path) == "broken")


def state_of(folder: Path) -> str:
    """The content of the folder: "free" (nothing), "run", "broken" (calls without a manifest) or "other"."""
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


def file_of(number: int, generation: int) -> str:
    """The name of a call's file. A run that overwrites another one writes files of the next generation."""
    return f"call-{number:03}{f'.{generation}' if generation else ''}.safetensors"


def generation_of(name: str) -> int | None:
    """The generation number in the name of a call's file; None for other files."""
    found = OURS.fullmatch(name)
    return None if found is None else int((found[1] or ".0")[1:])


def sha256(array: np.ndarray) -> str:
    digest = hashlib.sha256()
    for block in tensors.blocks(array):
        digest.update(block)
    return digest.hexdigest()
