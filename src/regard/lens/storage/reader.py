"""A recorded run read back from its folder: what every file claims is compared with the others before a run is made of
it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...common.errors import Reason, Refused, refuse
from ...language.expr import Table, frozen_table, table
from ..runs.axis import Axis
from ..runs.call import Call
from ..runs.labels import words
from ..runs.run import Run
from . import arrays as layout
from . import manifest, tensors
from . import rules_json as rules
from .byte_sizes import shown
from .strict_json import FIX

__all__ = [
    "DRAFT",
    "FOLDER",
    "MANIFEST",
    "file_of",
    "generation_of",
    "is_run",
    "open_run",
    "run_of",
    "sha256",
    "state_of",
]

MANIFEST = "run.json"
DRAFT = ".run.json.part"
OURS = re.compile(r"call-[0-9]{3,6}(\.[0-9]{1,9})?\.safetensors")
FOLDER = "folder"  # the fact that a run which was opened has more than the one that was recorded: where it lies
SMALL = 1 << 16  # bytes of a table that is read at once, so that equal rules of several runs are one rule
FURTHEST = 1 << 48  # a position from which sums of positions still fit into 64 bits
MOST = 20  # reasons that an error lists; a file that is foreign altogether has thousands


def open_run(folder: Path | str, *, verify: bool = False) -> Run:
    """The run of a folder, in milliseconds and next to no memory: its arrays are mapped, read-only.

    verify: read everything once and compare it with the SHA-256 that it was written with. Refused, with every reason:
    folders without a run or with half of one, damaged, foreign and newer files, links, and arrays that do not fit each
    other.
    """
    try:
        return _open(Path(folder).expanduser(), verify)
    except Refused as refused:
        # What a foreign file says of itself is shown without doing anything.
        listed = [
            Reason(**{name: words(part)[:500] for name, part in vars(one).items()}) for one in refused.reasons[:MOST]
        ]
        if len(refused.reasons) > MOST:
            listed.append(
                Reason("more that is wrong", given=f"{len(refused.reasons) - MOST} reasons", expected="none", fix=FIX)
            )
        raise Refused("open", listed) from None


def _open(folder: Path, verify: bool) -> Run:
    where = "open"
    path = folder / MANIFEST
    if not folder.is_dir():
        raise refuse(
            where,
            "no run",
            given=f"{folder} is {'a file' if folder.exists() else 'not there'}",
            expected="the folder of a recorded run",
            fix="check the path, or record one with regard look --save",
        )
    if not os.path.lexists(path):
        if state_of(folder) == "broken":
            raise refuse(
                where,
                "a run that broke off",
                given=f"{folder} holds calls and no {MANIFEST}",
                expected=f"{MANIFEST}, which is written last",
                fix="record it again",
            )
        raise refuse(
            where,
            "no run",
            given=f"{folder} holds no {MANIFEST}",
            expected="the folder of a recorded run",
            fix="check the path",
        )
    try:
        with open(tensors.opened(path), "rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > manifest.LARGEST + 64:
                raise ValueError(f"{path} has {shown(size)}; at most {shown(manifest.LARGEST)} are read")
            raw = file.read()
    except (OSError, ValueError) as error:
        raise Refused(
            where, [Reason("a manifest that cannot be read", given=str(error), expected="a plain file", fix=FIX)]
        ) from error
    found = manifest.parse(raw, str(path), where)
    generation = generation_of(found["calls"][0]["file"]) if found["calls"] else None
    return run_of(found, folder, where, generation or 0, verify)


def run_of(found: Mapping[str, Any], folder: Path, where: str, generation: int, verify: bool = False) -> Run:
    """The run that a manifest describes; the axes, every call and the whole are looked through before anything is
    refused.
    """
    reasons: list[Reason] = []
    axes: dict[str, Axis] = {}
    calls: list[Call] = []
    files: list[dict[str, np.ndarray]] = []
    tables: dict[
        tuple[int, str, str], Table
    ] = {}  # each is made once, so that equal rules of several calls are one rule
    for name, described in found["axes"].items():
        try:
            axes[name] = manifest.axis_of(name, described, where)
        except Refused as refused:
            reasons += refused.reasons
    for number, described in enumerate(found["calls"]):
        try:
            files.append({})
            files[-1] = _arrays_of(folder, number, described, generation, where, verify)
            calls.append(_call_of(described, files, tables, where))
        except Refused as refused:
            reasons += refused.reasons
    if reasons:
        raise Refused(where, reasons)
    return Run(
        found["model"],
        found["text"],
        axes,
        tuple(calls),
        manifest.steps_of(found["steps"]),
        found["facts"] | {FOLDER: str(folder)},
    )


def _arrays_of(
    folder: Path, number: int, described: Mapping, generation: int, where: str, verify: bool
) -> dict[str, np.ndarray]:
    """The arrays of a call, after the manifest and the file have been found to say the same of them."""
    expected = file_of(number, generation)
    if described["file"] != expected:
        raise refuse(
            where,
            "a call in another file",
            given=f"call {number}: {described['file'][:80]!r}",
            expected=repr(expected),
            fix=FIX,
        )
    found = tensors.mapped(folder / expected, where)
    at, claims = f"{folder / expected}", described["arrays"]
    reasons = [
        Reason("an array that is not there", given=f"{at}: {name[:80]}", expected="what the manifest lists", fix=FIX)
        for name in claims.keys() - found.keys()
    ]
    reasons += [
        Reason(
            "an array that the manifest does not list", given=f"{at}: {name[:80]}", expected="what it lists", fix=FIX
        )
        for name in found.keys() - claims.keys()
    ]
    for name in claims.keys() & found.keys():
        array, claim = found[name], claims[name]
        if [tensors.dtype_name(array.dtype), list(array.shape)] != [claim["dtype"], claim["shape"]]:
            reasons.append(
                Reason(
                    "an array of another kind",
                    given=f"{at}: {name[:80]} is {array.dtype} {list(array.shape)}",
                    expected=f"{claim['dtype'][:20]} {claim['shape'][:16]}, as the manifest says",
                    fix=FIX,
                )
            )
        elif verify and sha256(array) != claim["sha256"]:
            reasons.append(
                Reason(
                    "an array that has changed",
                    given=f"{at}: {name}",
                    expected=f"SHA-256 {claim['sha256'][:80]}",
                    fix=FIX,
                )
            )
    if reasons:
        raise Refused(where, reasons)
    return {name: found[name] for name in claims}


def _call_of(
    described: Mapping, files: Sequence[Mapping[str, np.ndarray]], known: dict[tuple[int, str, str], Table], where: str
) -> Call:
    arrays = {name: array for name, array in files[-1].items() if not name.startswith("table.")}
    reasons = layout.faults(described["name"], {name: array.shape for name, array in arrays.items()})
    if (described["overview"] is None) != ("overview.share" not in arrays):
        reasons.append(
            Reason(
                "half an overview",
                given=f"{described['name']}",
                expected="its numbers, and how they came about",
                fix=FIX,
            )
        )
    if abs(described["start"]) > FURTHEST:
        reasons.append(
            Reason(
                "a start beyond all axes",
                given=f"{described['name']}: {str(described['start'])[:40]}",
                expected="a position",
                fix=FIX,
            )
        )
    tables: list[Table] = []
    for one in described["tables"]:
        place = one["call"], one["array"], one["name"]
        numbers = files[one["call"]].get(one["array"]) if 0 <= one["call"] < len(files) else None
        if numbers is None:
            reasons.append(
                Reason(
                    "a table that is not there",
                    given=f"{described['name']}: {one['array'][:80]} of call {one['call']}",
                    expected="a table of this call or an earlier one",
                    fix=FIX,
                )
            )
        else:
            if place not in known:
                known[place] = _table(numbers, one["name"])
            tables.append(known[place])
    made: dict[str, Any] = {}
    if not reasons:
        made = rules.unpack(described["rules"], tables, where)
        if made["mask"] is not None and (made["mask"].kind != "bool" or made["mask"].scored):
            reasons.append(
                Reason(
                    "no mask",
                    given=f"{described['name']}: `{made['mask']}`",
                    expected="a condition on positions",
                    fix=FIX,
                )
            )
        if made["score"] is not None and made["score"].kind == "bool":
            reasons.append(
                Reason("no score", given=f"{described['name']}: `{made['score']}`", expected="a number", fix=FIX)
            )
    if reasons:
        raise Refused(where, reasons)
    return Call(
        **manifest.fields_of(described),
        **made,
        **layout.fields_of(arrays, described["overview"]),
    )


def _table(numbers: np.ndarray, name: str) -> Table:
    """The numbers for rules to read. No file of a run is written a second time, so what was planned from them stays
    true.
    """
    if numbers.nbytes <= SMALL:
        return frozen_table(numbers, name)
    found = table(numbers, name)
    return Table(found.source, found.array, name, frozen=True)


def is_run(folder: Path | str) -> bool:
    """Whether this names a folder with a run in it, be it one that broke off."""
    try:
        path = Path(folder).expanduser()
        return path.is_dir() and (os.path.lexists(path / MANIFEST) or state_of(path) == "broken")
    except (OSError, ValueError, RuntimeError):  # too long for a name, a NUL in it, nobody's home
        return False


def state_of(folder: Path) -> str:
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


def file_of(number: int, generation: int) -> str:
    """The name of a call's file. A run that is written over another has files of the next generation beside those of
    the old one.
    """
    return f"call-{number:03}{f'.{generation}' if generation else ''}.safetensors"


def generation_of(name: str) -> int | None:
    """The number in the name of a call's file, None for other files."""
    found = OURS.fullmatch(name)
    return None if found is None else int((found[1] or ".0")[1:])


def sha256(array: np.ndarray) -> str:
    digest = hashlib.sha256()
    for block in tensors.blocks(array):
        digest.update(block)
    return digest.hexdigest()
