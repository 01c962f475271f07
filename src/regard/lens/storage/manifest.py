"""The manifest of a recorded run, `run.json`: everything except the arrays as JSON, and its validation on reading;
rules as a list of nodes, of which nothing is executed; the arrays of a call by name, and the sizes that must agree;
bytes as people write them.
"""

from __future__ import annotations

import base64
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...common.errors import Reason, Refused, did_you_mean, page, refuse
from ...common.files.strict_json import FIX, Each, dumps, loads, wrong
from ...common.files.tensors import dtype_name
from ...language.expr import Const, Expr, Op, Read, Table, Var, fold_all
from ...language.operators import OPERATORS
from ..runs.axis import Axis, Segment
from ..runs.call import Call, Overview
from ..runs.run import Step

# One character per axis; the same character means the same size in all arrays of a call.
AXES = {
    "q": "HQD",
    "k": "GKD",
    "lse": "HQ",
    "sinks": "HS",
    "given": "HQK",
    "v": "GKE",
    "x": "QM",
    "out": "HQE",
    "received": "HK",
    "lengths": "HK",
    "overview.share": "HRC",
    "overview.largest": "HRC",
}
ROW = "rows."


def arrays_of(call: Call) -> dict[str, np.ndarray]:
    """Every array of the call by name."""
    found = {name: getattr(call, name) for name in AXES if "." not in name}
    if call.overview is not None:
        found |= {"overview.share": call.overview.share, "overview.largest": call.overview.largest}
    found |= {ROW + name: array for name, array in call.rows.items()}
    return {name: array for name, array in found.items() if array is not None}


def faults(name: str, arrays: Mapping[str, np.ndarray]) -> Iterator[Reason]:
    """A reason for every array of the call `name` that is unknown, cannot be stored or does not fit the others."""
    sizes: dict[str, tuple[int, str]] = {}
    for array, numbers in arrays.items():
        axes, shape = "HQ" if array.startswith(ROW) else AXES.get(array), numbers.shape
        given = f"{name[:80]}: {array[:80]} of {list(shape)}"
        if not dtype_name(numbers.dtype):
            dtype, expected = f"{name}: {array} of {numbers.dtype}", "floats, integers or booleans"
            yield Reason("an array with a dtype that cannot be stored", dtype, expected, "convert it with .astype(…)")
        elif axes is None:
            yield Reason("an unknown array", given, f"one of {', '.join(AXES)}, {ROW}…", FIX)
        elif len(axes) != len(shape):
            yield Reason("an array of the wrong shape", given, f"({', '.join(axes)})", FIX)
        else:
            for axis, size in zip(axes, shape, strict=True):
                known, other = sizes.setdefault(axis, (size, array))
                if known != size:
                    yield Reason("arrays that do not fit each other", given, f"{axis} = {known}, as in {other}", FIX)
    (heads, _), (groups, _) = sizes.get("H", (0, "")), sizes.get("G", (1, ""))
    if groups < 1 or heads % groups:
        given = f"{name[:80]}: {heads} of queries, {groups} of keys"
        yield Reason("the number of heads is not a multiple of the key heads", given, "H a multiple of G", FIX)
    missing = {
        "lse": "lse" not in arrays,
        "either q and k, or given": ("given" in arrays) == ("q" in arrays and "k" in arrays),
        "both parts of the overview": ("overview.share" in arrays) != ("overview.largest" in arrays),
    }
    for one, lacking in missing.items():
        if lacking:
            yield Reason("missing arrays", f"{name[:80]}: {', '.join(arrays)}", one, FIX)


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
UNKNOWN = {"unknown": [{"position": int, "characters": str}]}  # if the text has characters that the vocabulary lacks
TILES = {"tiles": [[int]]}  # if it has several images
# The fields of a call that are plain JSON, under their own names; its arrays are those of `AXES`.
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
# The forms of a node of a rule: nodes follow their operands, of which `of` and `at` are the places; `read` is that of a
# table.
NODE = ({"const": (bool, int, float)}, {"var": str}, {"op": str, "of": [int]}, {"read": int, "at": [int]})
CALL = {
    **FIELDS,
    "overview": (str, None),  # how the overview was computed; null without an overview
    "rules": {"nodes": [NODE], "mask": (int, None), "score": (int, None)},
    "tables": [{"name": str, "call": int, "array": str}],  # each in the file of the first call that read it
    "file": str,
    "arrays": Each({"dtype": str, "shape": [int], "sha256": str}),
}
RUN = {
    "format": str,
    "version": int,
    "model": str,
    "text": str,
    "axes": Each(tuple({**AXIS, **unknown, **tiles} for unknown in ({}, UNKNOWN) for tiles in ({}, TILES))),
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


def parse(raw: bytes, name: str) -> dict[str, Any]:
    """The validated content of the manifest. Refused: other files, other versions, and manifests that were changed."""

    def refused(what: str, given: str, expected: str, fix: str = FIX) -> Refused:
        return refuse("open", what, f"{name}: {given}", expected, fix)

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
        given = f"version {str(found.get('version'))[:20]}"
        raise refused("a run of another version", given, f"version {VERSION}", "update regard")
    if reasons := list(wrong(found, RUN, name)):
        raise Refused("open", reasons)
    body = raw[: raw.rfind(SUM)]
    if found["sum"] != zlib.crc32(body):
        raise refused("the manifest was changed", f"CRC-32 {zlib.crc32(body)}", str(found["sum"]))
    return found


def fields_of(described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The fields of a call from its part of the manifest and its arrays; without its rules."""
    found = {name: described[name] for name in FIELDS} | {"scale": float(described["scale"])}
    found |= {name: array for name, array in arrays.items() if name in AXES and "." not in name}
    found["rows"] = {name.removeprefix(ROW): array for name, array in arrays.items() if name.startswith(ROW)}
    if described["overview"] is not None:
        found["overview"] = Overview(arrays["overview.share"], arrays["overview.largest"], described["overview"])
    return found


def described_axis(axis: Axis) -> dict[str, Any]:
    unknown = [{"position": i, "characters": each} for i, each in axis.unknown]
    return {
        "tokens": axis.tokens,
        "special": [i for i, marked in enumerate(axis.special) if marked],
        "grid": axis.grid,
        "picture": None if axis.picture is None else base64.b64encode(axis.picture).decode(),
        "segments": [{"start": part.start, "stop": part.stop, "name": part.name} for part in axis.segments],
        **({"unknown": unknown} if unknown else {}),
        **({"tiles": axis.tiles} if axis.tiles else {}),
    }


def axis_of(name: str, described: Mapping[str, Any]) -> Axis:
    """The axis that `described_axis` described."""
    marked, count, grid = set(described["special"]), len(described["tokens"]), described["grid"]
    reasons = []
    if not marked <= set(range(count)):
        given, expected = f"axis {name!r}: {sorted(marked)[-1]}", f"positions below {count}"
        reasons.append(Reason("special tokens outside the axis", given, expected, FIX))
    tiles: Any = tuple(map(tuple, described.get("tiles", ())))
    if any(len(tile) != 4 for tile in tiles) or (
        grid is not None and (len(grid) != 2 or not 0 <= min(grid) <= max(grid) <= count)
    ):
        given = f"axis {name!r}: {str([grid, *tiles])[:80]}"
        expected = "rows and columns; rows, columns, top and left of a tile"
        reasons.append(Reason("not a grid of patches", given, expected, FIX))
    try:
        image = None if described["picture"] is None else base64.b64decode(described["picture"], validate=True)
    except ValueError:
        given = f"axis {name!r}: {described['picture'][:40]}"
        reasons.append(Reason("the image is not valid base64", given, "base64", FIX))
    if reasons:
        raise Refused("open", reasons)
    segments = tuple(Segment(part["start"], part["stop"], part["name"]) for part in described["segments"])
    return Axis(
        name,
        tuple(described["tokens"]),
        tuple(i in marked for i in range(count)),
        None if grid is None else (grid[0], grid[1]),
        image,
        segments,
        unknown=tuple((each["position"], each["characters"]) for each in described.get("unknown", ())),
        tiles=tiles,
    )


def steps_of(described: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    return tuple(
        Step(step["position"], tuple((one["token"], float(one["probability"])) for one in step["candidates"]))
        for step in described
    )


UNITS = (
    {"": 1, "b": 1}
    | {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)}
    | {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)}
)


def size_of(given: int | str, where: str) -> int:
    """The number of bytes: kB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB of 1024. Refused: anything that
    is not a size above 0.

    >>> size_of("2GB", "look"), size_of("1.5 KiB", "look"), size_of(10, "look")
    (2000000000, 1536, 10)
    """
    found = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([a-zA-Z]{0,3})\s*", str(given))
    if (
        isinstance(given, bool)
        or found is None
        or found[2].lower() not in UNITS
        or not (size := math.floor(float(found[1]) * UNITS[found[2].lower()]))
    ):
        raise refuse(
            where,
            "not a size in bytes",
            repr(given),
            "bytes, or a number with kB, MB, GB or TB",
            "write it as in limit='2GB'",
        )
    return size


def shown(size: float) -> str:
    """A size as text with three significant digits.

    >>> shown(999), shown(1234567), shown(2e9)
    ('999 bytes', '1.23 MB', '2 GB')
    """
    power = 0
    while float(f"{size:.3g}") >= 1000 and power < 4:
        size, power = size / 1000, power + 1
    return f"{size:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"


def pack(rules: Mapping[str, Expr | None]) -> tuple[dict[str, Any], list[Table]]:
    """(rules as JSON, the tables that they read, in order). Shared nodes are stored once.

    >>> from regard.language.expr import key, query
    >>> pack({"mask": key <= query, "score": None})[0]
    {'nodes': [{'var': 'key'}, {'var': 'query'}, {'op': 'le', 'of': [0, 1]}], 'mask': 2, 'score': None}
    """
    nodes: list[dict[str, Any]] = []
    tables: list[Table] = []

    def place(described: dict[str, Any]) -> int:
        nodes.append(described)
        return len(nodes) - 1

    def read(node: Read, *index: int) -> int:
        if node.table not in tables:
            tables.append(node.table)
        return place({"read": tables.index(node.table), "at": list(index)})

    places: dict[int, int] = fold_all(
        [rule for rule in rules.values() if rule is not None],
        lambda node: place({"const": node.value}),
        lambda node: place({"var": node.name}),
        read,
        lambda node, *args: place({"op": node.name, "of": list(args)}),
        {},
    )
    return {
        "nodes": nodes,
        **{name: None if rule is None else places[id(rule)] for name, rule in rules.items()},
    }, tables


def unpack(described: Mapping[str, Any], tables: Sequence[Table]) -> dict[str, Expr | None]:
    """The rules of nodes that have these forms. Refused, listing every problem: what `pack` cannot have written."""
    reasons: list[Reason] = []
    made: list[Expr | None] = []
    for number, node in enumerate(described["nodes"]):
        try:
            made.append(_node(node, made, tables, f"node {number}"))
        except Refused as refused:
            reasons.extend(refused.reasons)
            made.append(None)
    roots = {name: place for name, place in described.items() if name != "nodes"}
    for name, place in roots.items():
        reasons += _earlier([] if place is None else [place], made, name)
    if reasons:
        raise Refused("open", reasons)
    return {name: None if place is None else made[place] for name, place in roots.items()}


def _node(node: Mapping[str, Any], made: Sequence[Expr | None], tables: Sequence[Table], at: str) -> Expr | None:
    """The node, or None if one of its operands was invalid."""
    if "const" in node:
        return Const(node["const"])
    if "var" in node:
        return Var(node["var"])
    places = node["of"] if "op" in node else node["at"]
    if missing := _earlier(places, made, at):
        raise Refused("rules", missing)
    parts = [made[place] for place in places]
    whole = all(part is not None for part in parts)
    if "op" in node:
        row, given = OPERATORS.get(node["op"]), f"{at}: {node['op'][:80]}"
        if row is None:
            fix = did_you_mean(node["op"][:80], OPERATORS, page("The language of masks and scores"))
            raise refuse("rules", "an unknown operator", given, "an operator of regard", fix)
        if len(parts) != len(row.takes):
            expected = f"{len(row.takes)}"
            raise refuse("rules", "the wrong number of arguments", f"{given} of {len(parts)}", expected, FIX)
        return Op(row.name, *parts) if whole else None
    if not 0 <= node["read"] < len(tables):
        raise refuse("rules", "a missing table", f"{at}: table {node['read']}", f"one of {len(tables)}", FIX)
    return Read(tables[node["read"]], *parts) if whole else None


def _earlier(places: Sequence[int], made: Sequence[Any], at: str) -> list[Reason]:
    return [
        Reason("a missing node", f"{at}: {str(place)[:80]}", f"an index below {len(made)}", FIX)
        for place in places
        if not 0 <= place < len(made)
    ]
