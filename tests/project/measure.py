"""The structure of the source in numbers: `python -m tests.project.measure` prints them, test_layers checks them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests import ROOT
from tests.support.import_graph import SOURCE, imports, modules

# From the bottom up; packages in one layer do not import each other.
LAYERS = (
    ("common",),
    ("language",),
    ("engines",),
    ("api",),
    ("torch", "conformance"),
    ("parallel",),
    ("models", "ledger"),
    ("lens",),
    ("audits", "learn"),
    ("cli",),
)
ENTRY_FILES = {"__init__", "__main__"}  # ways in, which count as no package
# Run.open and Run.save.
LAZY_CYCLE = {"regard.lens.runs.run", *(f"regard.lens.storage.{name}" for name in ("folder", "manifest", "reader"))}


class Structure(NamedTuple):
    """What is measured."""

    packages: int
    layers: int
    upward: list[str]
    cycles: list[list[str]]
    lines: dict[str, int]
    skips: int


def measure() -> Structure:
    """The structure as it is."""
    files = modules()
    paths = list(files.values())
    packages = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in paths} - ENTRY_FILES
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in paths}
    return Structure(
        packages=len(packages),
        layers=len(LAYERS),
        upward=upward(files),
        cycles=cycles({name: {target for target, _ in imports(name, files)} for name in files}),
        lines={name: len(text.splitlines()) for name, text in texts.items()},
        skips=sum(text.count("# fmt: skip") for text in texts.values()),
    )


def layer_of(name: str) -> int:
    """The layer of a module's package, counted from 0; the doors are above all."""
    package = name.split(".")[1] if "." in name else "__init__"
    return next((number for number, packages in enumerate(LAYERS) if package in packages), len(LAYERS))


def upward(files: dict[str, Path]) -> list[str]:
    """Every import that does not go down, or stay in its package; a package without a layer counts as above all."""
    return [
        f"{name} imports {target}"
        for name in files
        for target, _ in imports(name, files)
        if name != "regard" and name.split(".")[:2] != target.split(".")[:2] and layer_of(target) >= layer_of(name)
    ]


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
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
    structure = measure()
    total = sum(structure.lines.values())
    print(f"{structure.packages} packages in {structure.layers} layers, {len(structure.lines)} files, {total:,} lines")
    print(f"upward imports: {len(structure.upward)}; `fmt: skip`: {structure.skips}")
    print("cycles:", "; ".join(", ".join(each) for each in structure.cycles) or "none")
    name, lines = max(structure.lines.items(), key=lambda item: item[1])
    print(f"largest file: {name}, {lines} lines ({ROOT.name})")
