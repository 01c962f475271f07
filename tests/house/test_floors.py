"""The house: imports only go down, and every room stays small enough to read in one sitting."""

import ast
from pathlib import Path

from tests.support import import_graph

ROOT = import_graph.SOURCE

# Rooms on one floor do not import each other. The two doors are at the top: `import regard` and `python -m regard`.
FLOORS = [
    {"common"},
    {"language"},
    {"engines"},
    {"api"},
    {"torch"},
    {"lens", "models"},
    {"audits"},
    {"bench"},
    {"cli"},
    {"__init__", "__main__"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def imported(path: Path, root: Path):
    """The rooms that the file imports, at the top or inside a function."""
    inside = path.relative_to(root).parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == len(inside):
            yield from [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.level == 0):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            yield from (f"{name}, spelled in full" for name in names if name.split(".")[0] == "regard")


def complaints(root: Path) -> list[str]:
    """Every import that does not go down, as a sentence."""
    found = []
    for path in sorted(root.rglob("*.py")):
        room = path.relative_to(root).parts[0].removesuffix(".py")
        for other in imported(path, root):
            if other != room and FLOOR.get(other, 99) >= FLOOR.get(room, -1):
                found.append(
                    f"imports must go down: {path.relative_to(root)} (floor {FLOOR.get(room)}) imports "
                    f"{other} (floor {FLOOR.get(other)})"
                )
    return found


def test_imports_go_down():
    """A room knows only what lies below it."""
    assert complaints(ROOT) == []


def test_every_room_has_a_floor():
    """A new room is given its floor here, on purpose."""
    rooms = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")}

    assert rooms - FLOOR.keys() == set()


def test_meta_a_bad_import_is_named(tmp_path):
    """The check can fail: it sees imports inside functions, from nested folders, and those spelled in full."""
    (tmp_path / "lens").mkdir()
    (tmp_path / "lens" / "page.py").write_text(
        "def f():\n    from ..common import errors\n    from ..bench import run\n"
    )
    (tmp_path / "bench.py").write_text("from . import audits, cli\nfrom .lens import look\nimport regard.lens\n")
    lens, bench, cli = FLOOR["lens"], FLOOR["bench"], FLOOR["cli"]

    assert complaints(tmp_path) == [
        f"imports must go down: bench.py (floor {bench}) imports cli (floor {cli})",
        f"imports must go down: bench.py (floor {bench}) imports regard.lens, spelled in full (floor None)",
        f"imports must go down: lens/page.py (floor {lens}) imports bench (floor {bench})",
    ]


def test_engines_do_not_import_the_law():
    """An engine that is tested against the law must not be made of it."""
    files = import_graph.modules()
    judged = [name for name in files if name.startswith(("regard.engines.jit", "regard.engines.sdpa"))]
    law = "regard.engines.reference"

    assert [
        name for name in judged for found in import_graph.imports(name, files) if found.module.startswith(law)
    ] == []


def test_no_room_is_too_large():
    """No source file exceeds 400 lines."""
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")}

    assert {name: size for name, size in sizes.items() if size > 400} == {}


def test_every_room_says_what_it_is():
    """The first line of a file with code is a sentence about it."""
    texts = {path.relative_to(ROOT): path.read_text() for path in ROOT.rglob("*.py")}

    assert [str(path) for path, text in texts.items() if text.strip() and not text.startswith('"""')] == []
