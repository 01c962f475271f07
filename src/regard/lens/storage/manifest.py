"""The manifest of a recorded run, `run.json`: everything except the arrays as JSON, and its validation on reading."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from ...common.errors import Reason, Refused, refuse
from ...common.files.strict_json import FIX, Each, dumps, loads, wrong
from ..runs.axis import Axis, Segment
from ..runs.call import Call
from ..runs.run import Step
from .arrays import shown

FORMAT, VERSION = "regard run", 1
LARGEST = 1 << 26  # bytes: sixty times the size of a manifest with 100,000 tokens
SUM = b', "sum": '  # the file ends with the CRC-32 of everything before this

AXIS = {
    "tokens": [str],
    "special": [int],  # the positions
    "grid": ([int], None),
    "picture": (str, None),  # a PNG file in base64
    "segments": [{"start": int, "stop": int, "name": str}],
}
# Only if the text has characters that the vocabulary lacks.
AXIS_WITH_UNKNOWN = {**AXIS, "unknown": [{"position": int, "characters": str}]}
# The fields of a call that are plain JSON, under their own names; its arrays are those of `arrays.AXES`.
FIELDS = {
    "name": str,
    "layer": (int, None),
    "queries": str,
    "keys": str,
    "scale": float,
    "start": int,
    "engine": str,
    "notes": Each(object),
}
CALL = {
    **FIELDS,
    "overview": (str, None),  # how the overview was computed; null without an overview
    "rules": {"nodes": [object], "mask": (int, None), "score": (int, None)},
    "tables": [{"name": str, "call": int, "array": str}],  # each in the file of the first call that read it
    "file": str,
    "arrays": Each({"dtype": str, "shape": [int], "sha256": str}),
}
RUN = {
    "format": str,
    "version": int,
    "model": str,
    "text": str,
    "axes": Each((AXIS, AXIS_WITH_UNKNOWN)),
    "calls": [CALL],
    "steps": [{"position": int, "candidates": [{"token": str, "probability": float}]}],
    "facts": Each(object),
    "sum": int,
}


def text(
    model: str, words: str, axes: Mapping[str, Axis], calls: Sequence[Mapping], steps: Sequence[Step], facts: Mapping
) -> bytes:
    """The manifest as one line. Refused: facts and notes that are not plain JSON, and manifests too large to read."""
    described = {
        "format": FORMAT,
        "version": VERSION,
        "model": model,
        "text": words,
        "axes": {name: described_axis(axis) for name, axis in axes.items()},
        "calls": list(calls),
        "steps": [
            {
                "position": step.position,
                "candidates": [{"token": token, "probability": share} for token, share in step.candidates],
            }
            for step in steps
        ],
        "facts": dict(facts),
    }
    body = dumps(described, "save")[:-1].encode()
    if len(body) > LARGEST:
        raise refuse(
            "save",
            "the manifest is too large",
            f"{shown(len(body))} of tokens, facts and notes",
            f"at most {shown(LARGEST)}",
            "store fewer facts",
        )
    return body + SUM + b"%d}\n" % zlib.crc32(body)


def parse(raw: bytes, name: str, where: str) -> dict[str, Any]:
    """The validated content of the manifest. Refused: other files, other versions, and manifests that were changed."""

    def refused(what: str, given: str, expected: str, fix: str = FIX) -> Refused:
        return Refused(where, [Reason(what, f"{name}: {given}", expected, fix)])

    try:
        found = loads(raw)
    except ValueError as error:
        raise refused("a manifest that cannot be read", str(error)[:200], "JSON") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise refused(
            "a file of another program",
            "it was not written by regard",
            f'an object with "format": "{FORMAT}"',
            "pass the folder of a run that regard recorded",
        )
    if found.get("version") != VERSION:
        raise refused(
            "a run of another version",
            f"version {str(found.get('version'))[:20]}",
            f"version {VERSION}",
            "update regard",
        )
    if reasons := list(wrong(found, RUN, name)):
        raise Refused(where, reasons)
    body = raw[: raw.rfind(SUM)]
    if found["sum"] != zlib.crc32(body):
        raise refused("the manifest was changed", f"CRC-32 {zlib.crc32(body)}", str(found["sum"]))
    return found


def described_call(call: Call) -> dict[str, Any]:
    return {name: getattr(call, name) for name in FIELDS} | {"notes": dict(call.notes)}


def fields_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a call that `described_call` described."""
    return {name: described[name] for name in FIELDS} | {"scale": float(described["scale"])}


def described_axis(axis: Axis) -> dict[str, Any]:
    unknown = [{"position": i, "characters": each} for i, each in axis.unknown]
    return {
        "tokens": axis.tokens,
        "special": [i for i, marked in enumerate(axis.special) if marked],
        "grid": axis.grid,
        "picture": None if axis.picture is None else base64.b64encode(axis.picture).decode(),
        "segments": [{"start": part.start, "stop": part.stop, "name": part.name} for part in axis.segments],
        **({"unknown": unknown} if unknown else {}),
    }


def axis_of(name: str, described: Mapping[str, Any], where: str) -> Axis:
    """The axis that `described_axis` described."""
    marked, count, grid = set(described["special"]), len(described["tokens"]), described["grid"]
    reasons = []
    if not marked <= set(range(count)):
        reasons.append(
            Reason(
                "special tokens outside the axis",
                f"axis {name!r}: {sorted(marked)[-1]}",
                f"positions below {count}",
                FIX,
            )
        )
    if grid is not None and (len(grid) != 2 or min(grid) < 0):
        reasons.append(
            Reason("not a grid of patches", f"axis {name!r}: {str(grid)[:80]}", "two integers: rows and columns", FIX)
        )
    try:
        image = None if described["picture"] is None else base64.b64decode(described["picture"], validate=True)
    except (binascii.Error, ValueError):
        reasons.append(
            Reason("the image is not valid base64", f"axis {name!r}: {described['picture'][:40]}", "base64", FIX)
        )
    if reasons:
        raise Refused(where, reasons)
    segments = tuple(Segment(part["start"], part["stop"], part["name"]) for part in described["segments"])
    return Axis(
        name,
        tuple(described["tokens"]),
        tuple(i in marked for i in range(count)),
        None if grid is None else (grid[0], grid[1]),
        image,
        segments,
        unknown=tuple((each["position"], each["characters"]) for each in described.get("unknown", ())),
    )


def steps_of(described: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    return tuple(
        Step(step["position"], tuple((one["token"], float(one["probability"])) for one in step["candidates"]))
        for step in described
    )
