"""The house in numbers: rooms, floors, circles, sizes. `python -m tests.project.measure` prints, test_floors checks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests import ROOT
from tests.support.import_graph import SOURCE, imports, modules

# From the ground up; rooms on one floor do not import each other. Rooms that are to come have their floor already.
FLOORS = (
    ("common",),
    ("language",),
    ("engines",),
    ("api",),
    ("torch", "conform"),
    ("models", "lens", "ledger", "parallel"),
    ("audits",),
    ("bench", "learn"),
    ("cli",),
)
TO_COME = {"conform", "ledger", "parallel", "learn"}
DOORS = {"__init__", "__main__", "_old_names"}  # ways in, which count as no room
# Run.open and Run.save.
LAZY_CIRCLE = {"regard.lens.runs.run", *(f"regard.lens.storage.{name}" for name in ("folder", "manifest", "reader"))}


class House(NamedTuple):
    """What is measured."""

    rooms: int
    floors: int
    upward: list[str]
    circles: list[list[str]]
    folders: dict[str, int]
    lines: dict[str, int]
    skips: int


def measure() -> House:
    """The house as it is."""
    files = modules()
    paths = list(files.values())
    rooms = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in paths} - DOORS
    folders = Counter(str(path.parent.relative_to(SOURCE.parent)) for path in paths)
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in paths}
    return House(
        rooms=len(rooms),
        floors=sum(not TO_COME.issuperset(floor) for floor in FLOORS),
        upward=upward(files),
        circles=circles({name: {target for target, _ in imports(name, files)} for name in files}),
        folders=dict(folders),
        lines={name: len(text.splitlines()) for name, text in texts.items()},
        skips=sum(text.count("# fmt: skip") for text in texts.values()),
    )


def floor_of(name: str) -> int:
    """The floor of a module's room, counted from 0; the doors are above all."""
    room = name.split(".")[1] if "." in name else "__init__"
    return next((number for number, rooms in enumerate(FLOORS) if room in rooms), len(FLOORS))


def upward(files: dict[str, Path]) -> list[str]:
    """Every import that does not go down, or stay in its room; a room without a floor counts as above all."""
    return [
        f"{name} imports {target}"
        for name in files
        for target, _ in imports(name, files)
        if name != "regard" and name.split(".")[:2] != target.split(".")[:2] and floor_of(target) >= floor_of(name)
    ]


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The sets of files that import each other, imports inside functions included."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = [*graph[start]]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.extend(graph[name])
        reach[start] = seen
    within = (name for name in graph if name in reach[name])
    found = {tuple(sorted(other for other in reach[name] if name in reach[other])) for name in within}
    return [list(each) for each in sorted(found)]


if __name__ == "__main__":
    house = measure()
    print(
        f"{house.rooms} rooms on {house.floors} floors, {len(house.lines)} files, {sum(house.lines.values()):,} lines"
    )
    print(f"upward imports: {len(house.upward)}; `fmt: skip`: {house.skips}")
    print("circles:", "; ".join(", ".join(each) for each in house.circles) or "none")
    folder, most = max(house.folders.items(), key=lambda item: item[1])
    print(f"largest folder: {folder}, {most} Python files")
    name, lines = max(house.lines.items(), key=lambda item: item[1])
    print(f"largest file: {name}, {lines} lines ({ROOT.name})")
