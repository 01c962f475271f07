"""The structure of the source in numbers: `python -m tests.project.measure` prints them, test_layers checks them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.support.import_graph import SOURCE, imports, modules

# From the bottom up; packages in one layer do not import each other.
LAYERS = (
    ("common",),
    ("language",),
    ("engines", "laws", "sandbox"),
    ("api", "observe"),
    ("torch", "conformance"),
    ("parallel", "compat"),
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

    packages: set[str]
    upward: list[str]
    cycles: list[list[str]]
    skips: int


def measure() -> Structure:
    """The structure as it is."""
    files = modules()
    return Structure(
        {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in files.values()} - ENTRY_FILES,
        upward(files),
        cycles({name: {target for target, _ in imports(name, files)} for name in files}),
        sum(path.read_text().count("# fmt: skip") for path in files.values()),
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
        seen, waiting = set(), [*graph[start]]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.extend(graph[name])
        reach[start] = seen
    found = {tuple(sorted(other for other in reach[name] if name in reach[other])) for name in graph}
    return [list(each) for each in sorted(found - {()})]


if __name__ == "__main__":
    structure = measure()
    print(f"{len(structure.packages)} packages in {len(LAYERS)} layers, {len(modules())} files")
    print(f"upward imports: {len(structure.upward)}; `fmt: skip`: {structure.skips}")
    print("cycles:", "; ".join(", ".join(each) for each in structure.cycles) or "none")
